"""Views of a load test: a live table on a terminal, lines elsewhere, and the report."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.shared.console import is_live, make_console
from zae_limiter_ops.cli.shared.errors import folded
from zae_limiter_ops.cli.shared.tables import print_line, print_table, rich_table
from zae_limiter_ops.views.formatting import count_of, format_number, printable

if TYPE_CHECKING:
    from rich.console import Console

    from zae_limiter_lab.loadtest import LoadPlan
    from zae_limiter_lab.loadtest.processes import Outcome

HEADS = ("request=", "name", "count>", "failed>", "per s>", "p50 ms>", "p95 ms>", "p99 ms>", "max>")
STEP_HEADS = ("users>", "acquires/s>", "p50 ms>", "p95 ms>", "failed>", "good")
STYLES = {"RATE_LIMITED": "yellow", "ACQUIRE": "green", "COMMIT": "green"}
LINE_EVERY_S = 5.0  # where there is no terminal


class LoadView:
    """Prints the place and the progress of a test as lines on stderr, for pipes and logs."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._last_s = 0.0

    def begin(self, plan: LoadPlan, where: str, place: str = "on this machine") -> None:
        """Print the first line."""
        workers = count_of(plan.workers, "worker")
        at_most, steps = ("up to ", "steps of ") if plan.mode == "tune" else ("", "")
        users = at_most + count_of(plan.users, "user")
        self.say(f"load test {place}: {workers}, {users}, {steps}{plan.seconds:g} s, on {where}")

    def show(self, message: dict[str, Any]) -> None:
        """Show a message of the master."""
        if message["event"] == "lost":
            self.say(f"{message['text']}; the test goes on without it")
        elif message["event"] == "step":
            self.say(f"{count_of(message['users'], 'user')}: {_step(message)}")
        elif message["event"] == "progress":
            self.progress(message)

    def progress(self, message: dict[str, Any]) -> None:
        if message["seconds"] - self._last_s >= LINE_EVERY_S:
            self._last_s = message["seconds"]
            self.say(f"{message['seconds']:6.1f} s  {_totals(message)}")

    def say(self, line: str) -> None:
        if not self._quiet:
            click.echo(folded(printable(line), sys.stderr), err=True)

    def __enter__(self) -> LoadView:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Release the terminal."""


class TableView(LoadView):
    """Redraws a table of all requests in place."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        super().__init__(quiet=False)
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def say(self, line: str) -> None:
        self._console.print(printable(line))  # above the table

    def progress(self, message: dict[str, Any]) -> None:
        caption = f"{message['seconds']:.0f} s  {_totals(message)}"
        rows = _rows(message["requests"])
        table = rich_table(HEADS, rows, STYLES, width=self._console.width, caption=caption)
        self._live.update(table, refresh=True)

    def __enter__(self) -> LoadView:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()


def view_for(output: str) -> LoadView:
    """Return a live table if stderr is a terminal that can be redrawn, otherwise lines."""
    if output != "json" and sys.stderr.isatty():
        console = make_console(stderr=True)
        if is_live(console):
            return TableView(console)
    return LoadView(quiet=output == "json")


def run_json(outcome: Outcome, place: str, ledger: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON of a run; fields may be added, none changes its meaning."""
    from zae_limiter_lab.loadtest.report import LoadReport

    report = outcome.report or LoadReport(0.0, 0, (), ()).as_dict()
    return {
        "place": place,
        **report,
        "lost_workers": list(outcome.lost_workers),
        "ledger": None if ledger is None else {**ledger, "problems": list(ledger["problems"])},
        "interrupted": outcome.interrupted,
    }


def tune_json(outcome: Outcome, place: str) -> dict[str, Any]:
    """Return the JSON of a search; fields may be added, none changes its meaning."""
    from zae_limiter_lab.loadtest.tuning import UserSearch

    return {
        "place": place,
        **(outcome.report or UserSearch(1).as_dict()),
        "lost_workers": list(outcome.lost_workers),
        "interrupted": outcome.interrupted,
    }


def print_run(data: dict[str, Any]) -> None:
    """Print the requests as a table, then totals, the cause that bounds the test, and problems."""
    if data["requests"]:
        print_table(HEADS, _rows(data["requests"]), last_styles=STYLES)
        print_line("")
    limited, asked = data["limited"], data["admitted"] + data["limited"]
    share = f" ({limited / asked:.1%})" if asked else ""
    print_line(
        f"{format_number(data['admitted'])} admitted, {format_number(limited)} limited{share}, "
        f"{format_number(data['failures'])} failed in {data['seconds']:.1f} s: "
        f"{data['acquires_per_second']:,.0f} acquires/s, {data['writes_per_second']:,.0f} writes/s"
    )
    print_line(f"bound by {data['bound']}: {data['bound_reason']}")
    if data["lost_settlements"]:
        print_line(f"{count_of(data['lost_settlements'], 'settlement')} could not be written")
    for problem in (*data["lost_workers"], *data["errors"]):
        print_line(f"problem: {problem}")
    if data["ledger"] is not None:
        _print_ledger(data["ledger"])


def _print_ledger(ledger: dict[str, Any]) -> None:
    problems = ledger["problems"]
    for problem in problems:
        print_line(f"ledger: {problem}")
    if not problems:
        print_line(
            f"ledger holds: {count_of(ledger['admitted'], 'acquire')}, no limit of "
            f"{format_number(ledger['limits'])} admitted too much in "
            f"{count_of(ledger['windows'], 'window')} (the fullest at {ledger['fullest']:.0%}); "
            "usage is what users counted"
        )


def print_tuned(data: dict[str, Any]) -> None:
    """Print the steps as a table, then the best number."""
    rows = (
        (
            step["users"],
            f"{step['per_second']:,.0f}",
            _ms(step["p50_ms"]),
            _ms(step["p95_ms"]),
            step["failures"],
            "yes" if step["good"] else "no",
        )
        for step in data["steps"]
    )
    if data["steps"]:
        print_table(STEP_HEADS, rows, last_styles={"yes": "green", "no": "red"})
        print_line("")
    if data["best_users"]:
        print_line(
            f"best: {count_of(data['best_users'], 'user')} per worker, "
            f"{data['per_second']:,.0f} acquires/s, p95 at most {data['max_latency_ms']:g} ms"
        )
    else:
        print_line("not even one user was fast enough; raise --max-latency")


def _rows(requests: Iterable[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (
            row["kind"],
            row["name"],
            format_number(row["requests"]),
            format_number(row["failures"]),
            f"{row['per_second']:,.1f}",
            *(_ms(row[name]) for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")),
        )
        for row in requests
    ]


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.2g}"


def _step(step: dict[str, Any]) -> str:
    return (
        f"{step['per_second']:,.0f} acquires/s, p95 {_ms(step['p95_ms'])} ms, "
        f"{'good' if step['good'] else 'too slow'}"
    )


def _totals(message: dict[str, Any]) -> str:
    """Return users, acquires per second and failures of a progress message."""
    rows = message["requests"]
    acquires = sum(row["requests"] for row in rows if row["kind"] in ("ACQUIRE", "RATE_LIMITED"))
    failed = sum(row["failures"] for row in rows)
    rate = acquires / message["seconds"] if message["seconds"] else 0.0
    return f"{count_of(message['users'], 'user')}, {rate:,.0f} acquires/s, {failed} failed"

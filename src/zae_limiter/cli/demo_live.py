"""The demo under way: bars on a terminal, a line a second elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zae_limiter.cli.render import Glyphs, is_live, number
from zae_limiter.demo.scenario import Member, members

if TYPE_CHECKING:
    from zae_limiter.demo.run import DemoOptions, Progress
    from zae_limiter.demo.traffic import Tally
    from zae_limiter.models.limit import Limit

MAX_BAR = 32
FRAME_LINES = 5  # title, head, totals and two empty ones


class View:
    """Sees the progress, and remembers it. Shows nothing."""

    every_seconds = 0.25

    def __init__(self) -> None:
        self.last: Progress | None = None

    def begin(self, engine: str, options: DemoOptions) -> None:
        """The run starts."""

    def show(self, progress: Progress) -> None:
        """The run goes on."""
        self.last = progress

    def __enter__(self) -> View:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """The run has ended."""


def view_for(console: Console, *, silent: bool) -> View:
    """Bars where they can be painted; else lines, unless ``silent``."""
    if is_live(console):
        return BarView(console)
    return View() if silent else LineView(console)


class LineView(View):
    """For pipes, logs and simple terminals."""

    every_seconds = 1.0

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def begin(self, engine: str, options: DemoOptions) -> None:
        self._line(_title(engine, options))

    def show(self, progress: Progress) -> None:
        super().show(progress)
        self._line(f"{progress.seconds:6.1f} s  {_totals(progress)}")

    def _line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


class BarView(View):
    """For terminals: what is left in every bucket, painted over and over."""

    every_seconds = 0.1

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._glyphs = Glyphs.of(console)
        self._title = ""
        self._counts: dict[str, tuple[int, int]] = {}  # of the frame before
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> View:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def begin(self, engine: str, options: DemoOptions) -> None:
        self._title = _title(engine, options)
        self._live.update(Text(self._title, style="bold"), refresh=True)

    def show(self, progress: Progress) -> None:
        super().show(progress)
        self._live.update(self._frame(progress), refresh=True)

    def _frame(self, progress: Progress) -> Group:
        title = Table.grid(expand=True)
        title.add_column()
        title.add_column(justify="right")
        time = f"{progress.seconds:.1f} of {progress.of_seconds:g} s"
        title.add_row(Text(self._title, style="bold"), Text(time, style="cyan"))
        rows = self._rows_that_fit(progress)
        hidden = len(members(progress.cast)) - len(rows)
        more = f"  ({hidden} rows hidden)" if hidden else ""
        totals = Text.assemble(_totals(progress), (more, "dim"), no_wrap=True)
        return Group(title, Text(), self._bars(progress, rows), Text(), totals)

    def _bars(self, progress: Progress, rows: list[tuple[str, Member]]) -> Table:
        limits = [limit.name for limit in progress.cast[0].limits]
        names = max(len(name) for name, _ in rows)
        numbers = len("admitted") + len("limited") + len("-99,999") * len(limits)
        gaps = 2 * (2 + 2 * len(limits))
        bar = min(MAX_BAR, (self._console.width - names - numbers - gaps) // len(limits))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("", width=names, no_wrap=True)
        for name in limits:
            table.add_column(name, width=bar, no_wrap=True)
            table.add_column("left", width=len("-99,999"), justify="right", no_wrap=True)
        table.add_column("admitted", justify="right")
        table.add_column("limited", justify="right")
        for name, member in rows:
            cells = [Text(name, style="bold" if member.parent_id is None else "")]
            for limit in member.limits:
                left = progress.levels.get((member.entity_id, limit.name), limit.capacity)
                cells += self._bar(left, limit, bar)
            cells += self._counters(member.entity_id, progress.tallies[member.entity_id])
            table.add_row(*cells)
        return table

    def _counters(self, entity_id: str, tally: Tally) -> list[Text]:
        """Lit up while they rise."""
        admitted, limited = self._counts.get(entity_id, (0, 0))
        self._counts[entity_id] = (tally.admitted, tally.limited)
        return [
            Text(number(tally.admitted), style="green" if tally.admitted > admitted else ""),
            Text(number(tally.limited), style="red" if tally.limited > limited else ""),
        ]

    def _bar(self, left: int, limit: Limit, width: int) -> list[Text]:
        share = left / limit.capacity
        style = "green" if share > 0.4 else "yellow" if share > 0.1 else "red"
        full, rest = self._glyphs.bar(share, width)
        return [
            Text.assemble((full, style), (rest, "dim")),
            Text(number(left), style="red" if left < 0 else ""),
        ]

    def _rows_that_fit(self, progress: Progress) -> list[tuple[str, Member]]:
        """Projects with their keys; without them, or only the first, on a low terminal."""
        room = max(1, self._console.height - FRAME_LINES)
        rows: tuple[Member, ...] = members(progress.cast)
        if len(rows) > room:
            rows = progress.cast[:room]
        names = self._glyphs.tree((each.name, each.parent_id is not None) for each in rows)
        return list(zip(names, rows, strict=True))


def _title(engine: str, options: DemoOptions) -> str:
    tenants = "1 tenant" if options.tenants == 1 else f"{options.tenants} tenants"
    return f"{tenants} calling for {options.seconds:g} s, on {engine}"


def _totals(progress: Progress) -> str:
    total = progress.total
    rate = (total.admitted + total.limited) / max(progress.seconds, 0.001)
    return (
        f"{number(total.admitted)} admitted  {number(total.limited)} limited  "
        f"{number(total.adjusted)} adjusted  {number(round(rate))} acquires/s"
    )

"""Views of a running demo: bars on a terminal, a line per second elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zae_limiter_lab.demo.scenario import DemoEntity, all_entities
from zae_limiter_ops.cli.shared.console import Glyphs, is_live
from zae_limiter_ops.cli.shared.formatting import count_of, format_number

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit
    from zae_limiter_lab.demo.run import DemoOptions, Progress
    from zae_limiter_lab.demo.traffic import CallCounts

MAX_BAR = 32  # columns; wider bars show nothing more
FRAME_LINES = 5  # title, head, totals and two empty lines


class ProgressView:
    """Keeps the last progress of a run and shows nothing; the base of the views that do."""

    every_seconds = 0.25

    def __init__(self) -> None:
        self.last: Progress | None = None

    def begin(self, engine: str, options: DemoOptions) -> None:
        """Announce the run."""

    def show(self, progress: Progress) -> None:
        """Show the progress; called every ``every_seconds``."""
        self.last = progress

    def __enter__(self) -> ProgressView:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Release the terminal."""


def view_for(console: Console, *, silent: bool) -> ProgressView:
    """Return a view with bars if the console is live; otherwise lines, unless ``silent``."""
    if is_live(console):
        return BarView(console)
    return ProgressView() if silent else LineView(console)


class LineView(ProgressView):
    """Prints a line per second: for pipes, logs and dumb terminals."""

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


class BarView(ProgressView):
    """Draws the levels of all buckets as bars and redraws them in place."""

    every_seconds = 0.1

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._glyphs = Glyphs.of(console)
        self._title = ""
        self._counts: dict[str, tuple[int, int]] = {}  # admitted and limited in the last frame
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> ProgressView:
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
        hidden = len(all_entities(progress.projects)) - len(rows)
        more = f"  ({count_of(hidden, 'row')} hidden)" if hidden else ""
        totals = Text.assemble(_totals(progress), (more, "dim"), no_wrap=True)
        return Group(title, Text(), self._bars(progress, rows), Text(), totals)

    def _bars(self, progress: Progress, rows: list[tuple[str, DemoEntity]]) -> Table:
        limits = [limit.name for limit in progress.projects[0].limits]
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
        for name, entity in rows:
            cells = [Text(name, style="bold" if entity.parent_id is None else "")]
            for limit in entity.limits:
                left = progress.levels.get((entity.entity_id, limit.name), limit.capacity)
                cells += self._bar(left, limit, bar)
            cells += self._counters(entity.entity_id, progress.counts[entity.entity_id])
            table.add_row(*cells)
        return table

    def _counters(self, entity_id: str, counts: CallCounts) -> list[Text]:
        """Return the counters, coloured if they have risen since the last frame."""
        admitted, limited = self._counts.get(entity_id, (0, 0))
        self._counts[entity_id] = (counts.admitted, counts.limited)
        return [
            Text(
                format_number(counts.admitted), style="green" if counts.admitted > admitted else ""
            ),
            Text(format_number(counts.limited), style="red" if counts.limited > limited else ""),
        ]

    def _bar(self, left: int, limit: Limit, width: int) -> list[Text]:
        share = left / limit.capacity
        style = "green" if share > 0.4 else "yellow" if share > 0.1 else "red"
        full, rest = self._glyphs.bar(share, width)
        return [
            Text.assemble((full, style), (rest, "dim")),
            Text(format_number(left), style="red" if left < 0 else ""),
        ]

    def _rows_that_fit(self, progress: Progress) -> list[tuple[str, DemoEntity]]:
        """Return projects with their keys; on a low terminal only projects, or the first ones."""
        room = max(1, self._console.height - FRAME_LINES)
        rows: tuple[DemoEntity, ...] = all_entities(progress.projects)
        if len(rows) > room:
            rows = progress.projects[:room]
        names = self._glyphs.tree((entity.name, entity.parent_id is not None) for entity in rows)
        return list(zip(names, rows, strict=True))


def _title(engine: str, options: DemoOptions) -> str:
    tenants = "1 tenant" if options.tenants == 1 else f"{options.tenants} tenants"
    return f"{tenants} calling for {options.seconds:g} s, on {engine}"


def _totals(progress: Progress) -> str:
    total = progress.total
    rate = (total.admitted + total.limited) / max(progress.seconds, 0.001)
    return (
        f"{format_number(total.admitted)} admitted  {format_number(total.limited)} limited  "
        f"{format_number(total.adjusted)} adjusted  {format_number(round(rate))} acquires/s"
    )

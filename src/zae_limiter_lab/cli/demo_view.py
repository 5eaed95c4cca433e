"""Views of a running demo: bars on a terminal, a line per second elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zae_limiter_ops.cli.shared.console import Glyphs, is_live
from zae_limiter_ops.views.formatting import count_of, format_number

if TYPE_CHECKING:
    from zae_limiter_lab.demo.scenario import DemoEntity
    from zae_limiter_lab.demo.traffic import DemoOptions, DemoRun

MAX_BAR = 32  # columns; wider bars show nothing more
FRAME_LINES = 5  # title, head, totals and two empty lines
LEFT = len("-99,999")  # columns of the remaining tokens


class View:
    """Keeps the run and shows nothing; the base of the views that show it."""

    every_seconds = 0.25

    def __init__(self, console: Console) -> None:
        self.console = console
        self.run: DemoRun | None = None

    def begin(self, title: str) -> None:
        """Announce the run."""

    def show(self, run: DemoRun) -> None:
        """Show the progress; called every ``every_seconds``."""
        self.run = run

    def close(self) -> None:
        """Release the terminal."""


def view_for(console: Console, *, silent: bool) -> View:
    """Return a view with bars if the console is live; otherwise lines, unless ``silent``."""
    if is_live(console):
        return BarView(console)
    return View(console) if silent else LineView(console)


class LineView(View):
    """Prints a line per second: for pipes, logs and dumb terminals."""

    every_seconds = 1.0

    def begin(self, title: str) -> None:
        self.console.print(title, soft_wrap=True)

    def show(self, run: DemoRun) -> None:
        super().show(run)
        self.console.print(f"{run.seconds:6.1f} s  {totals(run)}", soft_wrap=True)


class BarView(View):
    """Draws the levels of all buckets as bars and redraws them in place."""

    every_seconds = 0.1

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._title = ""
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def begin(self, title: str) -> None:
        self._title = title
        self._live.start()
        self._live.update(Text(title, style="bold"), refresh=True)

    def show(self, run: DemoRun) -> None:
        super().show(run)
        title = Table.grid(expand=True)
        title.add_column()
        title.add_column(justify="right")
        elapsed = f"{run.seconds:.1f} of {run.options.seconds:g} s"
        title.add_row(Text(self._title, style="bold"), Text(elapsed, style="cyan"))
        entities = self._entities_that_fit(run)
        hidden = len(run.entities) - len(entities)
        more = f"  ({count_of(hidden, 'row')} hidden)" if hidden else ""
        last = Text.assemble(totals(run), (more, "dim"), no_wrap=True)
        frame = Group(title, Text(), self._bars(run, entities), Text(), last)
        self._live.update(frame, refresh=True)

    def close(self) -> None:
        self._live.stop()

    def _entities_that_fit(self, run: DemoRun) -> list[DemoEntity]:
        """Return projects with their keys; on a low terminal only projects, or the first ones."""
        room = max(1, self.console.height - FRAME_LINES)
        if len(run.entities) <= room:
            return run.entities
        return [entity for entity in run.entities if entity.parent_id is None][:room]

    def _bars(self, run: DemoRun, entities: list[DemoEntity]) -> Table:
        glyphs = Glyphs.of(self.console)
        names = glyphs.tree((each.name, each.parent_id is not None) for each in entities)
        limits = entities[0].limits
        width = max(map(len, names))
        columns = width + len("admitted") + len("limited") + LEFT * len(limits)
        gaps = 2 * (2 + 2 * len(limits))
        bar = min(MAX_BAR, (self.console.width - columns - gaps) // len(limits))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("", width=width, no_wrap=True)
        for limit in limits:
            table.add_column(limit.name, width=bar, no_wrap=True)
            table.add_column("left", width=LEFT, justify="right", no_wrap=True)
        table.add_column("admitted", justify="right")
        table.add_column("limited", justify="right")
        for name, entity in zip(names, entities, strict=True):
            cells = [Text(name, style="bold" if entity.parent_id is None else "")]
            for limit in entity.limits:
                left = run.levels.get((entity.entity_id, limit.name), limit.capacity)
                share = left / limit.capacity
                style = "green" if share > 0.4 else "yellow" if share > 0.1 else "red"
                full, rest = glyphs.bar(share, bar)
                cells.append(Text.assemble((full, style), (rest, "dim")))
                cells.append(Text(format_number(left), style="red" if left < 0 else ""))
            counts = run.counts[entity.entity_id]
            cells.append(Text(format_number(counts.admitted)))
            cells.append(Text(format_number(counts.limited)))
            table.add_row(*cells)
        return table


def title_of(engine: str, options: DemoOptions) -> str:
    """Return the first line of a run."""
    return f"{count_of(options.tenants, 'tenant')} calling for {options.seconds:g} s, on {engine}"


def totals(run: DemoRun) -> str:
    """Return the counters of all tenants so far."""
    total = run.total
    rate = (total.admitted + total.limited) / max(run.seconds, 0.001)
    return (
        f"{format_number(total.admitted)} admitted  {format_number(total.limited)} limited  "
        f"{format_number(total.adjusted)} adjusted  {format_number(round(rate))} acquires/s"
    )

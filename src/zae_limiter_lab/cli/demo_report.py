"""The result of a demo: a table and a verdict, or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from zae_limiter_ops.cli.shared.console import Glyphs
from zae_limiter_ops.cli.shared.formatting import count_of, format_number, format_short_number

if TYPE_CHECKING:
    from zae_limiter_lab.demo.invariant import Window
    from zae_limiter_lab.demo.result import DemoResult, EntityResult, LimitUse
    from zae_limiter_lab.demo.run import DemoOptions

BAR = 12  # columns: two limits with bars fit a terminal of 120
MAX_WIDTH = 1000  # wider than any of the tables, to measure how wide they would be


def print_report(console: Console, result: DemoResult) -> None:
    """Print what each entity was admitted, and whether the invariant holds."""
    lines = [(_summary(result), ""), *_notes(result), *_verdict(Glyphs.of(console), result)]
    console.print()
    console.print(_table_that_fits(console, result))
    console.print()
    for text, style in lines:
        console.print(text, style=style, soft_wrap=not console.is_terminal)


class ReportLayout(NamedTuple):
    """How much the table shows of each limit; ``LAYOUTS`` are tried from wide to narrow."""

    figure: Callable[[int], str] | None  # None: the percentage alone
    bar: int


LAYOUTS = (
    ReportLayout(format_number, BAR),
    ReportLayout(format_number, 0),
    ReportLayout(format_short_number, 0),
    ReportLayout(None, 0),
)

Cells = tuple[Column, list[Text]]


def _table_that_fits(console: Console, result: DemoResult) -> Table:
    tables = [_table(Glyphs.of(console), result, layout) for layout in LAYOUTS]
    unbounded = console.options.update(width=MAX_WIDTH)
    for table in tables:
        if console.measure(table, options=unbounded).maximum <= console.width:
            return table
    return tables[-1]


def _table(glyphs: Glyphs, result: DemoResult, layout: ReportLayout) -> Table:
    columns = [_names(glyphs, result), *_counts(result, layout.figure or format_short_number)]
    for uses in zip(*(entity.limits for entity in result.entities), strict=True):
        columns += _uses(glyphs, uses, layout)
    table = Table(
        *(column for column, _ in columns),
        box=box.SIMPLE,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_footer=True,
    )
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*row)
    return table


def _names(glyphs: Glyphs, result: DemoResult) -> Cells:
    entries = [(entity.name, entity.parent_id is not None) for entity in result.entities]
    return Column("entity", "total", no_wrap=True), [
        Text(label, style="" if is_child else "bold")
        for label, (_, is_child) in zip(glyphs.tree(entries), entries, strict=True)
    ]


def _counts(result: DemoResult, figure: Callable[[int], str]) -> list[Cells]:
    entities = result.entities
    return [
        _right("admitted", [figure(e.admitted) for e in entities], figure(result.admitted)),
        _right("limited", [figure(e.limited) for e in entities], figure(result.limited)),
        _right("adjusted", [figure(e.adjusted) for e in entities], figure(result.adjusted)),
    ]


def _uses(glyphs: Glyphs, uses: Sequence[LimitUse], layout: ReportLayout) -> Iterator[Cells]:
    """Yield the columns of one limit: figures, percentage and bar, as the layout has them."""
    name, figure = uses[0].limit.name, layout.figure
    shares = [use.used / use.allowed for use in uses]
    styles = ["yellow" if share > 1 else "green" for share in shares]
    if figure is not None:
        used = _aligned([figure(use.used) for use in uses])
        allowed = _aligned([figure(use.allowed) for use in uses])
        yield (
            Column(f"{name}/allowed", justify="right", no_wrap=True),
            [Text.assemble(u, (f" / {a}", "dim")) for u, a in zip(used, allowed, strict=True)],
        )
    yield (
        Column("" if figure else name, justify="right", no_wrap=True),
        [Text(f"{share:.0%}", style) for share, style in zip(shares, styles, strict=True)],
    )
    if layout.bar:
        bars = [glyphs.bar(share, layout.bar) for share in shares]
        yield (
            Column("", no_wrap=True),
            [
                Text.assemble((full, style), (rest, "dim"))
                for (full, rest), style in zip(bars, styles, strict=True)
            ],
        )


def _right(title: str, cells: list[str], footer: str) -> Cells:
    return Column(title, footer, justify="right", no_wrap=True), [Text(cell) for cell in cells]


def _aligned(cells: list[str]) -> list[str]:
    width = max(map(len, cells))
    return [cell.rjust(width) for cell in cells]


def _summary(result: DemoResult) -> str:
    return (
        f"{count_of(result.acquires, 'acquire')} in {result.seconds:.1f} s "
        f"({format_number(round(result.acquires_per_second))}/s) on {result.engine}: "
        f"{format_number(result.admitted)} admitted, {format_number(result.limited)} limited"
    )


def _notes(result: DemoResult) -> list[tuple[str, str]]:
    notes = []
    uses = [use for entity in result.entities for use in entity.limits]
    if result.holds and any(use.used > use.allowed for use in uses):
        notes.append("over 100%: in debt, which is repaid before the next call is admitted")
    if result.lost_settlements:
        lost = count_of(result.lost_settlements, "settlement")
        were = "was" if result.lost_settlements == 1 else "were"
        notes.append(f"{lost} {were} lost in an outage, so debts are not checked")
    return [(note, "dim") for note in notes]


def _verdict(glyphs: Glyphs, result: DemoResult) -> list[tuple[str, str]]:
    allowed = "capacity + refill + given back"
    if result.holds:
        windows = count_of(sum(window.windows for window in result.windows), "window")
        fullest = max((_share(window) for window in result.windows), default=0.0)
        where = f"in all {windows} of {count_of(len(result.windows), 'limit')}"
        return [
            (f"invariant holds: admitted {glyphs.at_most} {allowed}", "bold green"),
            (f"  {where}; the fullest is at {100 * fullest:.1f}%", "green"),
        ]
    worst = sorted(result.violations, key=_share, reverse=True)
    limits = f"{len(worst)} of {count_of(len(result.windows), 'limit')}"
    return [
        (f"invariant VIOLATED in {limits}: admitted > {allowed}", "bold red"),
        *((f"  {_describe_window(window)}", "red") for window in worst),
    ]


def _share(window: Window) -> float:
    return (window.granted + window.debts) / window.allowed


def _describe_window(window: Window) -> str:
    debts = f" on top of debts of {format_number(window.debts)}" if window.debts else ""
    return (
        f"{window.key.entity_id} {window.key.limit_name}: {format_number(window.granted)} admitted"
        f"{debts} within {(window.to_ms - window.from_ms) / 1000:.3f} s, "
        f"{window.allowed:,.1f} allowed (capacity {format_number(window.limit.capacity)} + refill "
        f"{window.refill:,.1f} + given back {format_number(window.given_back)})"
    )


# --- for programs ------------------------------------------------------------------------------


def result_json(result: DemoResult, options: DemoOptions) -> dict[str, Any]:
    """Return the JSON; fields may be added, none changes its meaning.

    Tokens are whole, times are milliseconds since 1970.
    """
    return {
        "engine": result.engine,
        "options": {
            "seconds": options.seconds,
            "tenants": options.tenants,
            "seed": options.seed,
        },
        "seconds": result.seconds,
        "acquires": result.acquires,
        "acquires_per_second": round(result.acquires_per_second, 3),
        "admitted": result.admitted,
        "limited": result.limited,
        "adjusted": result.adjusted,
        "failed": result.failed,
        "entities": [_entity_json(entity) for entity in result.entities],
        "invariant": {
            "holds": result.holds,
            "limits": len(result.windows),
            "windows": sum(window.windows for window in result.windows),
            "debts_checked": result.lost_settlements == 0,
            "violations": [_window_json(window) for window in result.violations],
        },
    }


def _entity_json(entity: EntityResult) -> dict[str, Any]:
    return {
        "entity_id": entity.entity_id,
        "parent_id": entity.parent_id,
        "admitted": entity.admitted,
        "limited": entity.limited,
        "adjusted": entity.adjusted,
        "failed": entity.failed,
        "limits": [
            {
                **use.limit.to_dict(),
                "used": use.used,
                "allowed": use.allowed,
                "given_back": use.given_back,
                "refused": use.refused,
            }
            for use in entity.limits
        ],
    }


def _window_json(window: Window) -> dict[str, Any]:
    return {
        "entity_id": window.key.entity_id,
        "resource": window.key.resource,
        "limit": window.limit.to_dict(),
        "from_ms": window.from_ms,
        "to_ms": window.to_ms,
        "admitted": window.granted,
        "debts": window.debts,
        "given_back": window.given_back,
        "allowed": round(window.allowed, 3),
    }

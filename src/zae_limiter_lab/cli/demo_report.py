"""The result of a demo: a document for programs, and its table and verdict for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from zae_limiter_lab.demo.log import BucketLimit
from zae_limiter_lab.demo.scenario import RESOURCE
from zae_limiter_ops.cli.shared.console import Glyphs
from zae_limiter_ops.views.formatting import count_of, format_number, format_short_number

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit
    from zae_limiter_lab.demo.invariant import Window
    from zae_limiter_lab.demo.traffic import CallCounts, DemoRun

ALLOWED = "capacity + refill + given back"
COUNTS = ("admitted", "limited", "adjusted")
WIDE = 80  # columns that show all digits of large numbers


def result_json(run: DemoRun) -> dict[str, Any]:
    """Return the document; fields may be added, none changes its meaning.

    Tokens are whole, times are milliseconds since 1970.
    """
    acquires = run.total.admitted + run.total.limited
    return {
        "engine": run.engine,
        "options": {
            "seconds": run.options.seconds,
            "tenants": run.options.tenants,
            "seed": run.options.seed,
        },
        "seconds": run.seconds,
        "acquires": acquires,
        "acquires_per_second": round(acquires / run.seconds, 3),
        **_counts_json(run.total),
        "entities": [
            {
                "entity_id": entity.entity_id,
                "parent_id": entity.parent_id,
                **_counts_json(run.counts[entity.entity_id]),
                "limits": [_limit_json(run, entity.entity_id, limit) for limit in entity.limits],
            }
            for entity in run.entities
        ],
        "invariant": {
            "holds": not run.violations,
            "limits": len(run.windows),
            "windows": sum(window.windows for window in run.windows),
            "debts_checked": run.lost_settlements == 0,
            "violations": [_window_json(window) for window in run.violations],
        },
    }


def _counts_json(counts: CallCounts) -> dict[str, int]:
    return {
        "admitted": counts.admitted,
        "limited": counts.limited,
        "adjusted": counts.adjusted,
        "failed": counts.failed,
    }


def _limit_json(run: DemoRun, entity_id: str, limit: Limit) -> dict[str, Any]:
    entries = run.log.entries(BucketLimit(entity_id, RESOURCE, limit.name))
    refill = limit.refill_amount * run.seconds / limit.refill_period_seconds
    return {
        **limit.to_dict(),
        "used": entries.used,  # net; with a debt at the end, more than was allowed
        "allowed": limit.capacity + int(refill),
        "given_back": entries.given_back,
        "refused": run.counts[entity_id].refused_by[limit.name],
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


# --- for people --------------------------------------------------------------------------------


def print_report(console: Console, run: DemoRun) -> None:
    """Print the counts of each entity, and whether the invariant holds."""
    document, glyphs = result_json(run), Glyphs.of(console)
    names = glyphs.tree((each.name, each.parent_id is not None) for each in run.entities)
    console.print()
    console.print(_table(names, document, is_wide=console.width >= WIDE))
    console.print()
    for text, style in (*_summary(run, document), *_verdict(run, glyphs)):
        console.print(text, style=style, soft_wrap=not console.is_terminal)


def _table(names: list[str], document: dict[str, Any], *, is_wide: bool) -> Table:
    """Return the table of counts, with the used tokens of each limit and their share."""
    figure = format_number if is_wide else format_short_number
    table = Table(
        box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), show_footer=True
    )
    table.add_column("entity", "total", no_wrap=True)
    for count in COUNTS:
        table.add_column(count, figure(document[count]), justify="right", no_wrap=True)
    for limit in document["entities"][0]["limits"]:
        table.add_column(limit["name"], justify="right", no_wrap=True)
        table.add_column("used", justify="right", no_wrap=True)
    for name, entity in zip(names, document["entities"], strict=True):
        cells = [Text(name, style="bold" if entity["parent_id"] is None else "")]
        cells += [Text(figure(entity[count])) for count in COUNTS]
        for limit in entity["limits"]:
            share = limit["used"] / limit["allowed"]
            cells.append(Text(figure(limit["used"])))
            cells.append(Text(f"{share:.0%}", style="yellow" if share > 1 else "green"))
        table.add_row(*cells)
    return table


def _summary(run: DemoRun, document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return lines about the whole run, each with its style."""
    text = (
        f"{count_of(document['acquires'], 'acquire')} in {run.seconds:.1f} s "
        f"({format_number(round(document['acquires_per_second']))}/s) on {run.engine}: "
        f"{format_number(document['admitted'])} admitted, "
        f"{format_number(document['limited'])} limited"
    )
    lines = [(text, "")]
    limits = [limit for entity in document["entities"] for limit in entity["limits"]]
    if not run.violations and any(limit["used"] > limit["allowed"] for limit in limits):
        text = "over 100%: in debt, which is repaid before the next call is admitted"
        lines.append((text, "dim"))
    if run.lost_settlements:
        lost = count_of(run.lost_settlements, "settlement")
        were = "was" if run.lost_settlements == 1 else "were"
        lines.append((f"{lost} {were} lost in an outage, so debts are not checked", "dim"))
    return lines


def _verdict(run: DemoRun, glyphs: Glyphs) -> list[tuple[str, str]]:
    limits = count_of(len(run.windows), "limit")
    if not run.violations:
        windows = count_of(sum(window.windows for window in run.windows), "window")
        fullest = max((window.share for window in run.windows), default=0.0)
        return [
            (f"invariant holds: admitted {glyphs.at_most} {ALLOWED}", "bold green"),
            (f"  in all {windows} of {limits}; the fullest is at {100 * fullest:.1f}%", "green"),
        ]
    worst = sorted(run.violations, key=lambda window: window.share, reverse=True)
    return [
        (f"invariant VIOLATED in {len(worst)} of {limits}: admitted > {ALLOWED}", "bold red"),
        *((f"  {_describe_window(window)}", "red") for window in worst),
    ]


def _describe_window(window: Window) -> str:
    debts = f" on top of debts of {format_number(window.debts)}" if window.debts else ""
    return (
        f"{window.key.entity_id} {window.key.limit_name}: {format_number(window.granted)} admitted"
        f"{debts} within {(window.to_ms - window.from_ms) / 1000:.3f} s, "
        f"{window.allowed:,.1f} allowed (capacity {format_number(window.limit.capacity)} + refill "
        f"{window.refill:,.1f} + given back {format_number(window.given_back)})"
    )

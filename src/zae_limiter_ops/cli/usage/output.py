"""Usage printed as tables, as JSON and as CSV."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter_ops.cli.shared.console import print_json
from zae_limiter_ops.cli.shared.namespace_pages import InNamespace
from zae_limiter_ops.cli.shared.records import print_columns, print_csv
from zae_limiter_ops.cli.shared.tables import print_line
from zae_limiter_ops.views.columns import Column, json_of, of_part, plain_values
from zae_limiter_ops.views.formatting import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zae_limiter.models.usage import EntityUsage, UsageSummary
    from zae_limiter_ops.cli.shared.namespace_pages import Namespaces
    from zae_limiter_ops.cli.usage.options import UsageOptions
    from zae_limiter_ops.cli.usage.reads import LocatedRanking, Summaries, Windows
    from zae_limiter_ops.reports.usage_columns import LimitTotal

NO_USAGE = "no usage is recorded for this selection"


# --- windows ---------------------------------------------------------------------------------


def print_windows(
    options: UsageOptions, windows: Windows, namespaces: Namespaces, next_key: str | None
) -> None:
    """Print a record for each window, in the format that the options name."""
    from zae_limiter_ops.reports.usage_columns import window_columns

    snapshots = [snapshot for _, snapshot in windows]
    columns = namespaces.columns(window_columns(snapshots, f"{options.window} window"))
    if options.output == "json":
        data = [json_of(columns, window) for window in windows]
        print_json({"snapshots": data, "next_key": next_key})
    elif options.output == "csv":
        print_csv(columns, windows)
    elif windows:
        print_columns(columns, windows)


# --- summaries -------------------------------------------------------------------------------


def print_summaries(options: UsageOptions, summaries: Summaries, namespaces: Namespaces) -> None:
    """Print the totals of each namespace, in the format that the options name."""
    if options.output == "json":
        print_json(_summaries_json(summaries, namespaces))
        return
    from zae_limiter.models.usage import WindowType
    from zae_limiter_ops.reports.usage_columns import limit_totals, total_columns

    unit = WindowType(options.window).unit
    totals: list[InNamespace[LimitTotal]] = [
        InNamespace(namespace, total)
        for namespace, summary in summaries
        for total in limit_totals(summary)
    ]
    window_count: Column[LimitTotal] = Column(
        title=f"{unit}s with usage>" if namespaces.are_all else None,
        value=lambda total: total.summary.window_count,
    )
    columns = namespaces.columns(
        [*total_columns([total for _, total in totals], unit), window_count]
    )
    if options.output == "csv":
        print_csv(columns, totals)
    elif any(summary.snapshot_count for _, summary in summaries):
        if options.plot:
            print_line("")
        if totals:  # rejected calls alone have no totals
            print_columns(columns, totals)
            print_line("")
        _print_notes(options, summaries, namespaces)


def _print_notes(options: UsageOptions, summaries: Summaries, namespaces: Namespaces) -> None:
    """Print the sums of all namespaces, or the span of time of one."""
    from zae_limiter_ops.cli.usage.reads import added_up
    from zae_limiter_ops.reports.usage_columns import with_unit

    sums = added_up(summaries)
    if namespaces.are_all:
        totals = (
            f"{name} {with_unit(total, sums.currencies.get(name))}"
            for name, total in sorted(sums.total.items())
        )
        print_line(f"together: {', '.join(totals) or 'no tokens'}")
    else:
        print_line(_span(options, summaries[0].item))
    if sums.calls:
        print_line(f"{count_of(sums.calls, 'call')} admitted")
    if sums.rejected:
        print_line(f"{count_of(sums.rejected, 'call')} rejected (approximate)")
    if sums.waited:
        print_line(f"{count_of(sums.waited, 'call')} waited (approximate)")
    if sums.shadowed:
        print_line(f"{count_of(sums.shadowed, 'call')} shadowed (approximate)")
    if not namespaces.are_all and any(sums.through_children.values()) and not options.entity_id:
        print_line(
            "the total counts each token once, without the tokens that parents used through "
            "children"
        )


def _span(options: UsageOptions, summary: UsageSummary) -> str:
    """Return the number of windows with usage, from the first to the end of the last."""
    from zae_limiter.models.timestamps import iso_from_ms
    from zae_limiter.models.usage import WindowType
    from zae_limiter_ops.reports.usage_series import next_start

    window = WindowType(options.window)
    assert summary.max_window_start is not None, "there is usage"
    end = next_start(datetime.fromisoformat(summary.max_window_start), window)
    return (
        f"{count_of(summary.window_count, window.unit)} with usage, "
        f"from {summary.min_window_start} to {iso_from_ms(int(end.timestamp()) * 1000)}"
    )


def _summaries_json(summaries: Summaries, namespaces: Namespaces) -> dict[str, Any]:
    data = [{"namespace": namespace, **_summary_json(summary)} for namespace, summary in summaries]
    return {"namespaces": data} if namespaces.are_all else data[0]


def _summary_json(summary: UsageSummary) -> dict[str, Any]:
    fields = asdict(summary)
    amounts = ("total", "average", "through_children")
    return fields | {name: plain_values(fields[name]) for name in amounts}


# --- the largest consumers -------------------------------------------------------------------


class RankedEntity(NamedTuple):
    """An entity in a ranking of consumers or of parents."""

    kind: str
    rank: int
    entity: InNamespace[EntityUsage]


def print_ranking(output: str, ranking: LocatedRanking, namespaces: Namespaces) -> None:
    """Print consumers and parents, in the format ``output``."""
    consumers = _ranked("consumer", ranking.consumers)
    parents = _ranked("parent", ranking.parents)
    everyone = [*consumers, *parents]
    if output == "json":
        columns = _ranking_columns(everyone, namespaces, "entity")
        data = {
            "by": ranking.by,
            "start_time": ranking.start_time,
            "end_time": ranking.end_time,
            "consumers": [json_of(columns, each) for each in consumers],
            "parents": [json_of(columns, each) for each in parents],
        }
        print_json(data)
    elif output == "csv":
        print_csv(_ranking_columns(everyone, namespaces, "entity"), everyone)
    else:
        if consumers:
            print_columns(_ranking_columns(consumers, namespaces, "entity"), consumers)
        if consumers and parents:
            print_line("")
        if parents:
            print_columns(_ranking_columns(parents, namespaces, "parent"), parents)


def _entity_of(ranked: RankedEntity) -> InNamespace[EntityUsage]:
    return ranked.entity


def _ranked(kind: str, entities: list[InNamespace[EntityUsage]]) -> list[RankedEntity]:
    return [RankedEntity(kind, rank, entity) for rank, entity in enumerate(entities, 1)]


def _ranking_columns(
    ranked: Sequence[RankedEntity], namespaces: Namespaces, title: str
) -> list[Column[RankedEntity]]:
    """Return the columns of a ranking; ``title`` is the head of the ids."""
    from zae_limiter_ops.reports.usage_columns import entity_columns

    usages = [each.entity.item for each in ranked]
    return [
        Column(csv="kind", value=lambda each: each.kind),
        Column(title="#>", csv="rank", value=lambda each: each.rank),
        *of_part(namespaces.columns(entity_columns(usages, title)), _entity_of),
    ]

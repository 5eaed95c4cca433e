"""Usage of one namespace or of all namespaces, read from the store."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter_ops.cli.shared.namespace_pages import Fetch, InNamespace, Namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.usage import EntityUsage, UsageRanking, UsageSnapshot, UsageSummary
    from zae_limiter_ops.cli.usage.options import UsageOptions

    Windows = list[InNamespace[UsageSnapshot]]
    Summaries = list[InNamespace[UsageSummary]]

MAX_LOOKED_AT = 100  # windows of a namespace, for a hint


class LocatedRanking(NamedTuple):
    """A ``UsageRanking`` with the namespaces of its entities."""

    by: str | None
    start_time: str
    end_time: str
    consumers: list[InNamespace[EntityUsage]]
    parents: list[InNamespace[EntityUsage]]
    limit_names: tuple[str, ...]


class UsageReader(NamedTuple):
    """Reads windows and summaries of the namespaces for the options of a command."""

    namespaces: Namespaces
    options: UsageOptions

    def page(self, limit: int, next_key: str | None = None) -> tuple[Windows, str | None]:
        """Return at most ``limit`` windows, and the key of the next page."""
        return self.namespaces.page(self.of_namespace, limit, next_key)

    def of_namespace(
        self, repository: SyncRepository, limit: int, next_key: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        options = self.options
        return repository.get_usage_snapshots(
            options.entity_id,
            options.resource,
            options.window,
            options.first_window,
            options.end,
            limit,
            next_key,
        )

    def summaries(self) -> Summaries:
        """Return the summary of each namespace that has usage."""
        options = self.options
        found: Summaries = []
        for repository in self.namespaces:
            summary = repository.get_usage_summary(
                options.entity_id,
                options.resource,
                options.window,
                options.first_window,
                options.end,
            )
            if summary.snapshot_count or not self.namespaces.are_all:
                found.append(InNamespace(repository.namespace_name, summary))
        return found


def rank_usage(
    namespaces: Namespaces, by: str | None, last: str, resource: str | None, limit: int
) -> LocatedRanking:
    """Return the largest consumers of all namespaces together.

    A consumer that is among the largest of all is among the largest of its own namespace, too.
    """
    from zae_limiter.usage.ranking import own_amount, used_amount

    rankings = [
        InNamespace(
            repository.namespace_name,
            repository.get_top_usage(by, last, resource=resource, limit=limit),
        )
        for repository in namespaces
    ]

    def largest(
        amount: Callable[[EntityUsage, str | None], Any],
        entities: Callable[[UsageRanking], list[EntityUsage]],
    ) -> list[InNamespace[EntityUsage]]:
        located = [
            InNamespace(namespace, usage)
            for namespace, ranking in rankings
            for usage in entities(ranking)
        ]
        return nsmallest(
            limit,
            located,
            key=lambda each: (-amount(each.item, by), each.namespace, each.item.entity_id),
        )

    return LocatedRanking(
        by,
        min(ranking.start_time for _, ranking in rankings),
        max(ranking.end_time for _, ranking in rankings),
        largest(own_amount, lambda ranking: ranking.consumers),
        largest(used_amount, lambda ranking: ranking.parents),
        tuple(sorted({name for _, ranking in rankings for name in ranking.limit_names})),
    )


def ranked_windows(ranking: LocatedRanking, resource: str | None) -> Fetch[UsageSnapshot]:
    """Return a function that finds windows which the ranking of a namespace would count.

    The function reads the first windows only: a hint must be cheaper than a ranking.
    """

    def fetch(
        repository: SyncRepository, size: int, next_key: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        windows, _ = repository.get_usage_snapshots(
            resource=resource,
            start_time=ranking.start_time,
            end_time=ranking.end_time,
            limit=MAX_LOOKED_AT,
        )
        return [window for window in windows if is_counted(window)][:size], None

    def is_counted(window: UsageSnapshot) -> bool:
        if ranking.by is None:
            return window.total_events > 0
        return bool(window.counters.get(ranking.by, 0) > 0)

    return fetch


def windows_in_full(windows: Windows, namespaces: Namespaces) -> list[UsageSnapshot]:
    """Return windows for a chart; with several namespaces, ids are ``namespace/entity``."""
    if not namespaces.are_all:
        return [window for _, window in windows]
    return [
        replace(window, entity_id=f"{namespace}/{window.entity_id}")
        for namespace, window in windows
    ]


def ranking_in_full(ranking: LocatedRanking, namespaces: Namespaces) -> UsageRanking:
    """Return a ranking for a page; with several namespaces, ids are ``namespace/entity``."""
    from zae_limiter.models.usage import UsageRanking

    def named(usages: list[InNamespace[EntityUsage]]) -> list[EntityUsage]:
        if not namespaces.are_all:
            return [usage for _, usage in usages]
        return [replace(each, entity_id=f"{name}/{each.entity_id}") for name, each in usages]

    return UsageRanking(
        ranking.by,
        ranking.start_time,
        ranking.end_time,
        named(ranking.consumers),
        named(ranking.parents),
        ranking.limit_names,
    )


class Sums(NamedTuple):
    """The sums of the summaries of several namespaces."""

    snapshot_count: int
    total: dict[str, Any]
    through_children: dict[str, Any]
    calls: int
    rejected: int
    rejected_calls: int
    waited: int
    shadowed: int
    currencies: dict[str, str]


def added_up(summaries: Summaries) -> Sums:
    """Return the sums of the summaries of several namespaces."""
    total: Counter[str] = Counter()
    through: Counter[str] = Counter()
    currencies: dict[str, str] = {}
    for _, summary in summaries:
        names = _names_beside(summary, currencies, total)
        currencies |= {names[name]: each for name, each in summary.currencies.items()}
        total.update({names[name]: amount for name, amount in summary.total.items()})
        through.update(
            {names.get(name, name): each for name, each in summary.through_children.items()}
        )
    return Sums(
        snapshot_count=sum(summary.snapshot_count for _, summary in summaries),
        total=dict(total),
        through_children=dict(through),
        currencies=currencies,
        calls=sum(summary.calls for _, summary in summaries),
        rejected=sum(summary.rejected for _, summary in summaries),
        rejected_calls=sum(summary.rejected_calls for _, summary in summaries),
        waited=sum(summary.waited for _, summary in summaries),
        shadowed=sum(summary.shadowed for _, summary in summaries),
    )


def _names_beside(
    summary: UsageSummary, currencies: dict[str, str], known: Iterable[str]
) -> dict[str, str]:
    """Return a name for each limit under which its amounts are added to those of other summaries.

    Amounts of another unit have the unit in their name.
    """
    from zae_limiter.models.usage import money_label

    seen = set(known)
    names = {}
    for name in summary.total:
        currency = summary.currencies.get(name)
        is_alike = name not in seen or currencies.get(name) == currency
        names[name] = name if is_alike else money_label(name, currency or "tokens")
    return names


def summed(summaries: Summaries, windows: Windows) -> UsageSummary:
    """Return one summary of several namespaces, for a page that shows all ``windows``."""
    from zae_limiter.models.usage import UsageSummary
    from zae_limiter.usage.report import average

    sums = added_up(summaries)
    used = {
        window.window_start
        for _, window in windows
        if window.total_events or any(window.counters.values())
    }
    return UsageSummary(
        snapshot_count=sums.snapshot_count,
        total=sums.total,
        average={name: average(amount, len(used)) for name, amount in sums.total.items()},
        min_window_start=min(window.window_start for _, window in windows) if windows else None,
        max_window_start=max(window.window_start for _, window in windows) if windows else None,
        through_children=sums.through_children,
        window_count=len(used),
        calls=sums.calls,
        rejected=sums.rejected,
        rejected_calls=sums.rejected_calls,
        waited=sums.waited,
        shadowed=sums.shadowed,
        currencies=sums.currencies,
    )

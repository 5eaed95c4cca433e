"""Buckets of a namespace for ``bucket list``: read in pages, selected, as rows and as JSON."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.cli.console import ASCII, UNICODE
from zae_limiter.cli.formatting import format_duration, format_tokens
from zae_limiter.cli.listing import PAGE
from zae_limiter.cli.lookups import BucketView
from zae_limiter.models.timestamps import MILLI

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.namespace_pages import Namespaces
    from zae_limiter.models.bucket import BucketState

BAR_WIDTH = 10  # characters: half of one is five per cent
HEADS = (
    "entity",
    "resource",
    "limit",
    "level>",
    "of>",
    "filled=",
    "used>",
    "1 token=",
    "debt>",
    "rejected>",
)
STYLES = {"in ": "red"}  # by the beginning of a cell: a limit that has to be waited for


@dataclass(frozen=True, slots=True)
class ListedBucket:
    """One bucket with those of its limits that are listed; at least one."""

    entity_id: str
    resource: str
    limits: tuple[BucketView, ...]
    namespace: str

    @property
    def rejected(self) -> int:
        """Calls that the bucket rejected in the running hour."""
        return self.limits[0].state.rejected

    @property
    def used_share(self) -> float:
        return max(view.used_share for view in self.limits)

    @property
    def retry_after_seconds(self) -> float:
        return max(view.retry_after_seconds for view in self.limits)


class BucketPages(NamedTuple):
    """The buckets of an entity, of a resource, of both, or of whole namespaces."""

    namespaces: Namespaces
    entity_id: str | None
    resource: str | None

    def fetch(self, size: int, cursor: str | None) -> tuple[list[ListedBucket], str | None]:
        found, next_cursor = self.namespaces.page(self.of_namespace, size, cursor)
        return [bucket for _, bucket in found], next_cursor

    def of_namespace(
        self, repository: SyncRepository, size: int, cursor: str | None
    ) -> tuple[list[ListedBucket], str | None]:
        states, next_cursor = repository.list_buckets(
            size, cursor, entity_id=self.entity_id, resource=self.resource
        )
        return list(_buckets(states, repository.namespace_name)), next_cursor

    @property
    def heads(self) -> tuple[str, ...]:
        return (*self.namespaces.head, *HEADS)

    def rows(self, bucket: ListedBucket) -> Iterator[tuple[object, ...]]:
        """Yield a row for each limit."""
        for row in bucket_rows(bucket):
            yield (*self.namespaces.cell(bucket.namespace), *row)

    def all(self, on_page: Callable[[int], object]) -> Iterator[ListedBucket]:
        """Yield every bucket; ``on_page`` is called with the number of buckets read so far."""
        count, cursor, is_first = 0, None, True
        while is_first or cursor is not None:
            page, cursor = self.fetch(PAGE, cursor)
            count, is_first = count + len(page), False
            on_page(count)
            yield from page


class BucketFilter(NamedTuple):
    """Which buckets are listed, and in which order; by default all, in that of the store."""

    limited: bool = False
    near: float | None = None  # the share of the capacity that is used
    sort: str | None = None

    @property
    def reads_all(self) -> bool:
        """Whether every bucket has to be read before the first one can be shown."""
        return self.limited or self.near is not None or self.sort is not None

    def narrow(self, bucket: ListedBucket) -> ListedBucket | None:
        """Return the bucket with the limits that are wanted; None if there are none."""
        limits = tuple(view for view in bucket.limits if self._wants(view))
        return replace(bucket, limits=limits) if limits else None

    def _wants(self, view: BucketView) -> bool:
        if self.limited and view.retry_after_seconds <= 0:
            return False
        return self.near is None or view.used_share >= self.near

    def top(self, buckets: Iterator[ListedBucket], limit: int) -> tuple[list[ListedBucket], int]:
        """Return the first ``limit`` buckets, and how many were wanted; the rest is not kept."""
        count = 0

        def wanted() -> Iterator[ListedBucket]:
            nonlocal count
            for bucket in buckets:
                narrowed = self.narrow(bucket)
                if narrowed is not None:
                    count += 1
                    yield narrowed

        return heapq.nlargest(limit, wanted(), key=self._rank), count

    def _rank(self, bucket: ListedBucket) -> tuple[float, float]:
        rank = (bucket.used_share, bucket.retry_after_seconds)
        return (rank[1], rank[0]) if self.sort == "wait" else rank


def _buckets(states: list[BucketState], namespace: str) -> Iterator[ListedBucket]:
    for (entity_id, resource), group in groupby(states, lambda s: (s.entity_id, s.resource)):
        names: set[str] = set()
        limits = []
        for state in group:
            # The stored limit comes first; a second one of that name was passed by calls.
            limits.append(BucketView(state, state.limit_name in names, False, None))
            names.add(state.limit_name)
        yield ListedBucket(entity_id, resource, tuple(limits), namespace)


def bucket_rows(bucket: ListedBucket) -> Iterator[tuple[object, ...]]:
    """Yield a row for each limit."""
    for view in bucket.limits:
        state = view.state
        wait = format_duration(view.retry_after_seconds)
        yield (
            bucket.entity_id,
            bucket.resource,
            state.limit_name + (" (of calls)" if view.from_call else ""),
            f"{state.tokens:,}",
            f"{state.capacity:,}",
            "".join(_glyphs().bar(1 - view.used_share, BAR_WIDTH)),
            f"{view.used_share:.0%}",
            wait if wait == "now" else f"in {wait}",
            format_tokens(view.debt_milli) if view.debt_milli else "",
            f"{state.rejected:,}" if state.rejected else "",
        )


def _glyphs() -> Any:
    try:
        "".join(UNICODE[:3]).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return UNICODE


def bucket_json(bucket: ListedBucket) -> dict[str, Any]:
    return {
        "namespace": bucket.namespace,
        "entity_id": bucket.entity_id,
        "resource": bucket.resource,
        "rejected": bucket.rejected,
        "limits": [_limit_json(view) for view in bucket.limits],
    }


def _limit_json(view: BucketView) -> dict[str, Any]:
    state = view.state
    return {
        "limit_name": state.limit_name,
        "level_milli": state.tokens_milli,
        "debt_milli": view.debt_milli,
        "capacity": state.capacity,
        "refill_amount": state.refill_amount_milli // MILLI,
        "refill_period_seconds": state.refill_period_ms // 1000,
        "used_pct": round(100 * view.used_share, 3),
        "retry_after_seconds": view.retry_after_seconds,
        "full_after_seconds": view.full_after_seconds,
        "consumed_milli": state.total_consumed_milli,
        "from_call": view.from_call,
        "paused_until": view.paused_until,
    }

"""Buckets of a namespace for ``bucket list``: read in pages, selected, as rows and as JSON."""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.models.bucket import BucketState
from zae_limiter.models.timestamps import MILLI
from zae_limiter_ops.cli.console import ASCII, UNICODE
from zae_limiter_ops.cli.formatting import format_duration, format_tokens
from zae_limiter_ops.cli.listing import PAGE
from zae_limiter_ops.cli.lookups import BucketView
from zae_limiter_ops.cli.recent_rejections import RecentRejections, recent_rejections

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_ops.cli.namespace_pages import Namespaces

BAR_WIDTH = 10  # characters: half of one is five per cent
LEVEL_HEADS = ("entity", "resource", "limit", "level>", "of>", "filled=", "used>")
HEADS = (*LEVEL_HEADS, "1 token=", "debt>", "rejected>")
# In place of the time until one token, for buckets that have rejected callers lately.
LIMITED_HEADS = (*LEVEL_HEADS, "asked>", "fits=", "rejected>", "refused by")
# By the beginning of a cell: a limit that has to be waited for, or can never be.
STYLES = {"in ": "red", "paused": "red", "never": "red"}


@dataclass(frozen=True, slots=True)
class ListedBucket:
    """One bucket with those of its limits that are listed.

    At least one is listed, unless the bucket is listed for rejections by limits that are
    ``not_held``: those of its parent, or limits of calls that never created the bucket.
    """

    entity_id: str
    resource: str
    limits: tuple[BucketView, ...]
    namespace: str
    recent: RecentRejections | None = None  # of a bucket that is listed for them
    refused_by: tuple[str, ...] = ()  # whose buckets have rejected its callers
    of_parent: tuple[BucketView, ...] = ()  # limits of the parent, if that has rejected callers
    not_held: tuple[str, ...] = ()  # limits that were asked for, and that the bucket does not have

    @property
    def rejected(self) -> int:
        """Calls that the bucket rejected in the running hour; of ``recent`` also in the last."""
        return self.limits[0].state.rejected if self.recent is None else self.recent.rejected

    @property
    def used_share(self) -> float:
        return max((view.used_share for view in self.limits), default=0.0)

    @property
    def retry_after_seconds(self) -> float:
        return max((view.retry_after_seconds for view in self.limits), default=0.0)

    @property
    def asked(self) -> dict[str, int]:
        """The largest amount of each limit that was rejected lately."""
        return {} if self.recent is None else self.recent.asked

    def fits_after_seconds(self, limit_name: str, view: BucketView | None) -> float:
        """Until the bucket and its parent hold the largest rejected amount of a limit.

        The view is that of the bucket; None if the bucket does not have the limit.
        """
        amount = self.asked.get(limit_name, 0)
        views = [each for each in self.of_parent if each.state.limit_name == limit_name]
        if view is not None:
            views.append(view)
        return max((each.fits_after_seconds(amount) for each in views), default=0.0)


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

    def heads(self, bucket_filter: BucketFilter) -> tuple[str, ...]:
        """Return the heads of the columns of ``rows``."""
        return (*self.namespaces.head, *bucket_filter.heads)

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

    def limited(self, on_page: Callable[[int], object]) -> Iterator[ListedBucket]:
        """Yield the buckets that have rejected callers in this hour or the last.

        Of an entity that its parent has stopped, the parent's bucket follows.
        """
        for repository in self.namespaces:
            yield from self._limited_of(repository, on_page)

    def _limited_of(
        self, repository: SyncRepository, on_page: Callable[[int], object]
    ) -> Iterator[ListedBucket]:
        found = recent_rejections(repository, self.entity_id, self.resource, on_page)
        for recent in list(found.values()):
            parent_id = _parent_of(repository, recent.entity_id)
            parent = None if parent_id is None else (parent_id, recent.resource)
            if parent is not None and parent not in found:
                found |= recent_rejections(repository, *parent)
            of_parent = None if parent is None else found.get(parent)
            yield _limited_bucket(repository, recent, of_parent)
            if self.entity_id is not None and of_parent is not None:
                yield _limited_bucket(repository, of_parent)


def _limited_bucket(
    repository: SyncRepository,
    recent: RecentRejections,
    of_parent: RecentRejections | None = None,
) -> ListedBucket:
    """Return the bucket with the limits that were asked for, and whose buckets have refused.

    The counts do not tell which bucket has refused: it is the one that holds too few tokens now.
    """
    entity_id, resource, asked = recent.entity_id, recent.resource, recent.asked
    views = _views(repository, entity_id, resource)
    parents: tuple[BucketView, ...] = ()
    if of_parent is not None and of_parent.through_children:
        parents = _views(repository, of_parent.entity_id, resource)
    refused_by: tuple[str, ...] = (entity_id,)
    if of_parent is not None and parents:
        if _hold(views, asked):
            refused_by = (of_parent.entity_id,)
        elif not _hold(parents, asked):
            refused_by = (entity_id, of_parent.entity_id)
    names = [view.state.limit_name for view in views]
    return ListedBucket(
        entity_id,
        resource,
        tuple(view for view in views if not asked or view.state.limit_name in asked),
        repository.namespace_name,
        recent,
        refused_by,
        parents,
        tuple(name for name in asked if name not in names),
    )


def _hold(views: tuple[BucketView, ...], asked: dict[str, int]) -> bool:
    """Whether the limits that were asked for hold the amounts; of none, whether all hold 0."""
    return all(
        view.holds(asked.get(view.state.limit_name, 0))
        for view in views
        if not asked or view.state.limit_name in asked
    )


def _views(repository: SyncRepository, entity_id: str, resource: str) -> tuple[BucketView, ...]:
    """Return the limits of a bucket; one that does not exist is full."""
    states = repository.get_buckets(entity_id, resource)
    if not states:
        limits, _, _ = repository.resolve_limits(entity_id, resource)
        now_ms = repository.charging.clock()
        states = [
            BucketState.from_limit(entity_id, resource, each, now_ms) for each in limits or ()
        ]
    return next(_buckets(states, repository.namespace_name)).limits if states else ()


def _parent_of(repository: SyncRepository, entity_id: str) -> str | None:
    entity = repository.get_entity(entity_id)
    return entity.parent_id if entity is not None and entity.cascade else None


class BucketFilter(NamedTuple):
    """Which buckets are listed, and in which order; by default all, in that of the store."""

    limited: bool = False
    near: float | None = None  # the share of the capacity that is used
    sort: str | None = None

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of the table's columns."""
        return LIMITED_HEADS if self.limited else HEADS

    @property
    def reads_all(self) -> bool:
        """Whether every bucket has to be read before the first one can be shown."""
        return self.limited or self.near is not None or self.sort is not None

    def narrow(self, bucket: ListedBucket) -> ListedBucket | None:
        """Return the bucket with the limits that are wanted; None if there are none."""
        limits = tuple(view for view in bucket.limits if self._wants(view))
        not_held = bucket.not_held if self.near is None else ()
        if not limits and not not_held:
            return None
        return replace(bucket, limits=limits, not_held=not_held)

    def _wants(self, view: BucketView) -> bool:
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
        if self.limited and self.sort is None:
            return (bucket.rejected, bucket.used_share)
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
    """Yield a row for each limit, under ``HEADS`` or ``LIMITED_HEADS``."""
    for view in bucket.limits:
        state = view.state
        level = (
            bucket.entity_id,
            bucket.resource,
            state.limit_name + (" (of calls)" if view.from_call else ""),
            f"{state.tokens:,}",
            f"{state.capacity:,}",
            "".join(_glyphs().bar(1 - view.used_share, BAR_WIDTH)),
            f"{view.used_share:.0%}",
        )
        if bucket.recent is None:
            yield (
                *level,
                _wait(view, view.retry_after_seconds),
                format_tokens(view.debt_milli) if view.debt_milli else "",
                f"{state.rejected:,}" if state.rejected else "",
            )
        else:
            fits_s = bucket.fits_after_seconds(state.limit_name, view)
            yield (*level, *_rejections(bucket, state.limit_name, _wait(view, fits_s)))
    for name in bucket.not_held:
        fits_s = bucket.fits_after_seconds(name, None)
        wait = _wait(None, fits_s) if fits_s else ""
        unknown = ("",) * (len(LEVEL_HEADS) - 3)
        yield (bucket.entity_id, bucket.resource, name, *unknown, *_rejections(bucket, name, wait))


def _rejections(bucket: ListedBucket, limit_name: str, wait: str) -> tuple[object, ...]:
    """Return the cells about rejected callers, which follow those of the level."""
    asked = bucket.asked.get(limit_name)
    shown = "" if asked is None else f"{asked:,}"
    return (shown, wait, f"{bucket.rejected:,}", ", ".join(bucket.refused_by))


def _wait(view: BucketView | None, seconds: float) -> str:
    if math.isinf(seconds):
        return "never"
    wait = format_duration(seconds)
    if view is not None and view.paused_seconds:
        return f"paused, {wait}"
    return wait if wait == "now" else f"in {wait}"


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
        "refused_by": list(bucket.refused_by),
        "asked": bucket.asked,
        "limits": [_limit_json(view, bucket) for view in bucket.limits],
    }


def _limit_json(view: BucketView, bucket: ListedBucket) -> dict[str, Any]:
    state = view.state
    asked = bucket.asked.get(state.limit_name)
    fits_s = None if asked is None else bucket.fits_after_seconds(state.limit_name, view)
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
        "asked": asked,
        "asked_after_seconds": None if fits_s is None or math.isinf(fits_s) else fits_s,
    }

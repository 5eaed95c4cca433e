"""The buckets of ``bucket list``: read in pages, selected and sorted."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter_ops.cli.shared.listing import PAGE
from zae_limiter_ops.views.in_force import LimitsInForce
from zae_limiter_ops.views.limit_view import LimitView, views_of_bucket
from zae_limiter_ops.views.recent_rejections import RecentRejections, recent_rejections

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.bucket import BucketState
    from zae_limiter.refusal import LimitedBy
    from zae_limiter_ops.cli.shared.namespace_pages import Namespaces


@dataclass(frozen=True, slots=True)
class ListedBucket:
    """A bucket with the limits that are listed.

    It has at least one, unless the bucket is listed for rejections by limits that are
    ``not_held``: limits of its parent, or of calls that never created the bucket.
    """

    entity_id: str
    resource: str
    limits: tuple[LimitView, ...]
    namespace: str
    recent: RecentRejections | None = None  # None unless the bucket is listed for its rejections
    of_parent: tuple[LimitView, ...] = ()  # the parent's limits, if the parent rejected callers
    refuser: Refuser | None = None  # None if nothing is known, or it is this bucket
    not_held: tuple[str, ...] = ()  # limits that callers asked for, and that the bucket lacks

    @property
    def rejected(self) -> int:
        """The rejected calls of the running hour; with ``recent``, also of the hour before."""
        return self.limits[0].state.rejected if self.recent is None else self.recent.rejected

    @property
    def limited_by(self) -> LimitedBy | None:
        """What has refused most of its rejected calls."""
        return None if self.recent is None else self.recent.limited_by

    @property
    def last_limited_by(self) -> LimitedBy | None:
        """What has refused the last one."""
        return None if self.recent is None else self.recent.last_limited_by

    @property
    def refused_by(self) -> tuple[str, ...]:
        """The entities whose buckets have refused its calls."""
        found = [each.entity_id for each in (self.last_limited_by, self.limited_by) if each]
        return tuple(dict.fromkeys(found))

    @property
    def rows(self) -> list[ListedLimit]:
        """The limits, each with its bucket; last come those that the bucket does not have."""
        held = [ListedLimit(self, view.limit_name, view) for view in self.limits]
        return held + [ListedLimit(self, name, None) for name in self.not_held]

    @property
    def fits_after_seconds(self) -> float:
        """The time until a call fits that asks for as much as those that were rejected lately."""
        return max((row.asked_after_seconds for row in self.rows), default=0.0)

    @property
    def used_share(self) -> float:
        """The largest used share of a limit."""
        return max((view.used_share for view in self.limits), default=0.0)

    @property
    def retry_after_seconds(self) -> float:
        """The longest waiting time of a limit."""
        return max((view.retry_after_seconds for view in self.limits), default=0.0)

    @property
    def asked(self) -> dict[str, Any]:
        """The largest amount of each limit that was rejected lately."""
        return {} if self.recent is None else self.recent.asked


class Refuser(NamedTuple):
    """A limit of another bucket that refused the last call, and the amount it was asked for."""

    view: LimitView
    asked: int | Decimal

    @property
    def seconds(self) -> float:
        """The time until it holds the amount."""
        return self.view.fits_after(self.asked)


class ListedLimit(NamedTuple):
    """One limit of a listed bucket; ``view`` is None if the bucket does not have the limit."""

    bucket: ListedBucket
    limit_name: str
    view: LimitView | None

    @property
    def used_share(self) -> float | None:
        """The used share of the limit; None if the bucket does not have the limit."""
        return None if self.view is None else self.view.used_share

    @property
    def asked(self) -> int | Decimal | None:
        """The largest amount that was rejected lately; None if there is none."""
        return self.bucket.asked.get(self.limit_name)

    @property
    def asked_after_seconds(self) -> float:
        """The time until a call fits that asks for as much; infinite if it never does.

        By then the bucket and its parent hold ``asked``, and what has refused the last call holds
        what was asked of it.
        """
        views = [each for each in self.bucket.of_parent if each.limit_name == self.limit_name]
        if self.view is not None:
            views.append(self.view)
        waits = [each.fits_after(self.asked or 0) for each in views]
        if self.bucket.refuser is not None:
            waits.append(self.bucket.refuser.seconds)
        return max(waits, default=0.0)

    @property
    def stopped(self) -> LimitView | None:
        """The view that a pause or mode deny stops: its own, or that of what refused."""
        refuser = self.bucket.refuser
        views = [self.view, None if refuser is None else refuser.view]
        return next((each for each in views if each is not None and each.stopped_seconds), None)


@dataclass(frozen=True, slots=True)
class BucketPages:
    """The buckets of an entity, of a resource, of both, or of whole namespaces."""

    namespaces: Namespaces
    entity_id: str | None
    resource: str | None
    in_force: LimitsInForce = field(default_factory=LimitsInForce)

    def anew(self) -> BucketPages:
        """Return the same pages for another reading, which looks up what is in force again."""
        return replace(self, in_force=LimitsInForce())

    def fetch(self, size: int, cursor: str | None) -> tuple[list[ListedBucket], str | None]:
        """Return a page of buckets and the next cursor, None at the end."""
        found, next_cursor = self.namespaces.page(self.of_namespace, size, cursor)
        return [bucket for _, bucket in found], next_cursor

    def of_namespace(
        self, repository: SyncRepository, size: int, cursor: str | None
    ) -> tuple[list[ListedBucket], str | None]:
        """Return a page of the buckets of one namespace, and the next cursor."""
        states, next_cursor = repository.list_buckets(
            size, cursor, entity_id=self.entity_id, resource=self.resource
        )
        states = self.in_force.applied(repository, states)
        return list(_buckets(repository, states, self.in_force)), next_cursor

    def all(self, on_page: Callable[[int], object]) -> Iterator[ListedBucket]:
        """Yield every bucket; ``on_page`` is called with the number of buckets read so far."""
        count, cursor = 0, None
        while True:
            page, cursor = self.fetch(PAGE, cursor)
            count += len(page)
            on_page(count)
            yield from page
            if cursor is None:
                return

    def limited(self, on_page: Callable[[int], object]) -> Iterator[ListedBucket]:
        """Yield the buckets that have rejected callers in this hour or the last.

        With one entity, the bucket of a parent that has rejected its calls follows.
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
            yield _limited_bucket(repository, recent, of_parent, found, self.in_force)
            if self.entity_id is not None and of_parent is not None:
                yield _limited_bucket(repository, of_parent, None, found, self.in_force)


def _limited_bucket(
    repository: SyncRepository,
    recent: RecentRejections,
    of_parent: RecentRejections | None,
    found: dict[tuple[str, str], RecentRejections],
    in_force: LimitsInForce,
) -> ListedBucket:
    """Return the bucket with the limits that rejected calls asked for.

    ``found`` are all buckets that have rejected callers lately, as far as they were read.
    """
    entity_id, resource, asked = recent.entity_id, recent.resource, recent.asked
    views = _views(repository, entity_id, resource, in_force)
    parents: tuple[LimitView, ...] = ()
    if of_parent is not None and of_parent.through_children:
        parents = _views(repository, of_parent.entity_id, resource, in_force)
    names = [view.limit_name for view in views]
    return ListedBucket(
        entity_id,
        resource,
        tuple(view for view in views if not asked or view.limit_name in asked),
        repository.namespace_name,
        recent,
        parents,
        _refuser(repository, recent, found, in_force),
        tuple(name for name in asked if name not in names),
    )


def _refuser(
    repository: SyncRepository,
    recent: RecentRejections,
    found: dict[tuple[str, str], RecentRejections],
    in_force: LimitsInForce,
) -> Refuser | None:
    """Return the limit of another bucket that refused the last call; any of a stopped bucket.

    The bucket that refused counts the rejection as well, with the amount.
    """
    last = recent.last_limited_by
    if last is None or last[:2] == (recent.entity_id, recent.resource):
        return None
    refuser = last.entity_id, last.resource
    if refuser not in found:
        found |= recent_rejections(repository, *refuser)
    asked = found[refuser].asked if refuser in found else {}
    for view in _views(repository, *refuser, in_force):
        if view.stopped_seconds or view.limit_name == last.limit:
            return Refuser(view, asked.get(last.limit, 0))
    return None


def _views(
    repository: SyncRepository, entity_id: str, resource: str, in_force: LimitsInForce
) -> tuple[LimitView, ...]:
    """Return the limits of a bucket; a bucket that does not exist is full."""
    states = repository.get_bucket_in_force(entity_id, resource)
    return next(_buckets(repository, states, in_force)).limits if states else ()


def _parent_of(repository: SyncRepository, entity_id: str) -> str | None:
    entity = repository.get_entity(entity_id)
    return entity.parent_id if entity is not None and entity.cascade else None


class BucketFilter(NamedTuple):
    """The selection and order of buckets; by default all, in the order of the store."""

    limited: bool = False
    near: float | None = None  # the least used share of the capacity
    sort: str | None = None

    @property
    def reads_all(self) -> bool:
        """Whether all buckets must be read before the first can be shown."""
        return self.limited or self.near is not None or self.sort is not None

    def narrow(self, bucket: ListedBucket) -> ListedBucket | None:
        """Return the bucket with the limits that match; None if no limit does."""
        limits = tuple(view for view in bucket.limits if self._wants(view))
        not_held = bucket.not_held if self.near is None else ()
        if not limits and not not_held:
            return None
        return replace(bucket, limits=limits, not_held=not_held)

    def _wants(self, view: LimitView) -> bool:
        return self.near is None or view.used_share >= self.near

    def first(
        self, source: BucketPages, limit: int, on_page: Callable[[int], object]
    ) -> tuple[list[ListedBucket], int]:
        """Read all buckets; return the first ``limit`` matches, and the number of all matches.

        ``on_page`` is called with the number of buckets read so far.
        """
        count = 0

        def wanted() -> Iterator[ListedBucket]:
            nonlocal count
            for bucket in source.limited(on_page) if self.limited else source.all(on_page):
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


def _buckets(
    repository: SyncRepository, states: list[BucketState], in_force: LimitsInForce
) -> Iterator[ListedBucket]:
    for (entity_id, resource), bucket in groupby(states, lambda s: (s.entity_id, s.resource)):
        limits = views_of_bucket(bucket, in_force.mode(repository, entity_id, resource))
        yield ListedBucket(entity_id, resource, limits, repository.namespace_name)

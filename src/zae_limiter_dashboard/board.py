"""All buckets of a namespace at one moment, kept from one listing to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.models.bucket import BucketEntry, BucketState
from zae_limiter_dashboard.rows import SORTS
from zae_limiter_dashboard.selection import Selection, select
from zae_limiter_ops.views.limit_view import LimitView


@dataclass(slots=True)
class Kept:
    """A bucket as it was last read, with the rows of its limits.

    Time alone changes nothing about a bucket that ``is_settled``: it is full, and nothing was
    rejected. Most of very many buckets are.
    """

    revision: int | None
    rows: tuple[LimitView, ...]
    seen: int  # the number of the listing that has seen the bucket last
    is_settled: bool

    @classmethod
    def of(cls, revision: int | None, rows: tuple[LimitView, ...], seen: int) -> Kept:
        return cls(revision, rows, seen, _are_settled(rows))

    def is_outdated(self, revision: int | None, now_ms: int) -> bool:
        """Tell whether the bucket must be decoded again.

        Time changes the level of an unchanged bucket by its refill, which ``advance`` computes, and
        by holds that expire, which only the bucket itself shows.
        """
        if revision is None or revision != self.revision:
            return True
        moments = [row.state.holds_expire_ms for row in self.rows]
        return any(moment is not None and moment <= now_ms for moment in moments)

    def advance(self, now_ms: int) -> None:
        """Compute the levels of an unchanged bucket at a later moment."""
        self.rows = tuple(_later(row, now_ms) for row in self.rows)
        self.is_settled = _are_settled(self.rows)


def _are_settled(rows: Iterable[LimitView]) -> bool:
    for row in rows:
        state = row.state
        if row.level_milli != state.capacity_milli or state.rejected:
            return False
        if state.paused_until_ms is not None:
            return False
    return True


@dataclass(slots=True)
class Board:
    """The rows of all buckets at one moment.

    ``started_ms`` is the moment at which the listing began, so no figure is older. A board that is
    not ``complete`` shows the buckets that were read so far.
    """

    rows: Sequence[LimitView]
    noteworthy: Sequence[LimitView]  # the rows that the overview is about, a small part of all
    selection: Selection  # the rows that the overview shows
    buckets: int
    started_ms: int
    complete: bool
    seconds: float  # the duration of the listing
    by_resource: dict[str, list[LimitView]] = field(default_factory=dict)
    bucket_counts: dict[str, int] = field(default_factory=dict)  # of each resource
    limited_counts: dict[str, int] = field(default_factory=dict)  # entities of each resource
    close_counts: dict[str, int] = field(default_factory=dict)  # entities of each resource
    unreadable: tuple[tuple[str, str], ...] = ()  # buckets in a form that nobody can read
    _orders: dict[tuple[str, str], list[LimitView]] = field(default_factory=dict)

    def in_order(self, resource: str, by: str) -> list[LimitView]:
        """Return the rows of a resource in an order, which is computed once."""
        order = self._orders.get((resource, by))
        if order is None:
            rows = self.by_resource.get(resource, ())
            order = self._orders[resource, by] = sorted(rows, key=SORTS[by])
        return order


def _is_noteworthy(row: LimitView) -> bool:
    state = row.state
    return (
        row.level_milli * 4 <= state.capacity_milli  # three quarters are used
        or state.rejected > 0
        or state.paused_until_ms is not None
        or (state.refill_amount_milli == 0 and row.level_milli < state.capacity_milli)
        or bool(state.held)
    )


def _entities_by_resource(rows: Iterable[LimitView]) -> dict[str, int]:
    """Count the entities of each resource that have such a row."""
    entities: dict[str, set[str]] = {}
    for row in rows:
        entities.setdefault(row.resource, set()).add(row.entity_id)
    return {resource: len(found) for resource, found in entities.items()}


class Shelf:
    """The buckets of all listings so far; only changed ones are decoded again.

    Only the keeper's thread uses it, so that no page waits for a listing of very many buckets.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Kept] = {}
        self._listing = 0
        self._unreadable: list[tuple[str, str]] = []

    def begin(self) -> None:
        """Begin a listing."""
        self._listing += 1
        self._unreadable.clear()

    def add(self, entries: Iterable[BucketEntry], now_ms: int) -> None:
        """Take over a page of the listing."""
        for entry in entries:
            key = (entry.entity_id, entry.resource)
            kept = self._kept.get(key)
            if kept is None or kept.is_outdated(entry.revision, now_ms):
                try:
                    rows = _rows(entry.states(now_ms), kept, now_ms)
                except IncompatibleSchemaError:
                    self._unreadable.append(key)
                    continue
                self._kept[key] = Kept.of(entry.revision, rows, self._listing)
                continue
            kept.seen = self._listing
            if not kept.is_settled:
                kept.advance(now_ms)

    def update(self, states: Iterable[BucketState], now_ms: int) -> None:
        """Take over buckets that were read by key."""
        by_bucket: dict[tuple[str, str], list[BucketState]] = {}
        for state in states:
            by_bucket.setdefault((state.entity_id, state.resource), []).append(state)
        for key, found in by_bucket.items():
            kept = self._kept.get(key)
            rows = _rows(found, kept, now_ms)
            seen = self._listing if kept is None else kept.seen
            self._kept[key] = Kept.of(None, rows, seen)

    def end(self) -> None:
        """End a listing: buckets that it has not seen are gone."""
        gone = [key for key, kept in self._kept.items() if kept.seen != self._listing]
        for key in gone:
            del self._kept[key]

    def board(self, started_ms: int, *, complete: bool, seconds: float) -> Board:
        """Return the rows of all buckets in the order of their names."""
        all_rows: list[LimitView] = []
        noteworthy: list[LimitView] = []
        by_resource: dict[str, list[LimitView]] = {}
        counts: dict[str, int] = {}
        for (_, resource), kept in sorted(self._kept.items(), key=lambda each: each[0]):
            all_rows += kept.rows
            by_resource.setdefault(resource, []).extend(kept.rows)
            counts[resource] = counts.get(resource, 0) + 1
            if not kept.is_settled:
                noteworthy += [row for row in kept.rows if _is_noteworthy(row)]
        return Board(
            all_rows,
            noteworthy,
            select(noteworthy),
            len(self._kept),
            started_ms,
            complete,
            seconds,
            by_resource,
            counts,
            _entities_by_resource(row for row in noteworthy if row.is_limited),
            _entities_by_resource(row for row in noteworthy if row.is_close),
            tuple(sorted(self._unreadable)),
        )


def _rows(states: Sequence[BucketState], before: Kept | None, now_ms: int) -> tuple[LimitView, ...]:
    earlier = {} if before is None else {row.limit_name: row for row in before.rows}
    return tuple(
        LimitView.at(state, now_ms, drain_milli=drain_of(state, earlier.get(state.limit_name)))
        for state in states
    )


def drain_of(state: BucketState, before: LimitView | None) -> float | None:
    """Return the net consumption per second since the read before."""
    if before is None or state.total_consumed_milli is None:
        return None
    elapsed_ms = state.last_refill_ms - before.state.last_refill_ms
    consumed = state.total_consumed_milli - (before.state.total_consumed_milli or 0)
    if elapsed_ms < 500:  # too short to tell a rate
        return before.drain_milli
    return max(0.0, consumed * 1000 / elapsed_ms)


def _later(row: LimitView, now_ms: int) -> LimitView:
    """Return the row of an unchanged bucket at a later moment."""
    elapsed_ms = now_ms - row.state.last_refill_ms
    none = None if row.drain_milli is None else 0.0
    drain_milli = row.drain_milli if elapsed_ms < 5000 else none
    return LimitView.at(row.state, now_ms, drain_milli=drain_milli)

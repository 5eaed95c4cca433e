"""Transactions: a change and its audit event are written together or not at all.

Each attempt reads the items that the change depends on, and writes on the condition that they are
unchanged. After a conflict with another writer the change is planned again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from zae_limiter._async.engines.items.backoff import BoundedBackoff
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.items.recent_changes import RecentChanges
from zae_limiter.items.stored import configs
from zae_limiter.items.stored.attributes import REVISION, s
from zae_limiter.items.stored.update import ItemWrite
from zae_limiter.store_errors import Conflict

if TYPE_CHECKING:  # functions call by a client of their own
    from zae_limiter._async.engines.items.port import ItemStore

T = TypeVar("T")

PATIENCE = 10  # a change is retried for this many request timeouts while other writers win


class TransactionPlan(NamedTuple, Generic[T]):
    """One attempt of a change: its writes, and the result once they are made.

    A plan without writes changes nothing. ``revision`` is an id that only this change writes: an
    item that carries it shows that an unanswered attempt was committed. A plan that took long gives
    the writes a ``deadline`` of their own.
    """

    result: T
    writes: Sequence[ItemWrite]
    revision: str = ""
    deadline: Deadline | None = None


class Transactions:
    """Commits changes; each is planned again after a conflict with another writer."""

    def __init__(self, store: ItemStore, recent_changes: RecentChanges) -> None:
        self._store = store
        self._recent_changes = recent_changes

    async def commit(
        self, namespace_id: str, plan: Callable[[Deadline], Awaitable[TransactionPlan[T]]]
    ) -> T:
        """Plan and write until there is no conflict. An outage is raised after one timeout."""
        backoff = BoundedBackoff(Deadline(PATIENCE * self._store.request_timeout))
        while True:
            deadline = self._store.deadline()
            planned = await plan(deadline)
            if not planned.writes:
                return planned.result
            conflict = await self._write(namespace_id, planned, planned.deadline or deadline)
            if conflict is None:
                return planned.result
            for item in conflict.items:  # one may be the mark of a purge
                configs.refuse_if_purging(namespace_id, item)
            if not await backoff.pause():
                raise RateLimiterUnavailable(
                    f"other writers keep changing the same items of table {self._store.name!r}; "
                    "retry later",
                    cause=conflict,
                ) from conflict

    async def _write(
        self, namespace_id: str, plan: TransactionPlan[T], deadline: Deadline
    ) -> Conflict | None:
        """Return the conflict with another writer, if there was one."""
        try:
            await self._store.write_group(plan.writes, deadline, repeatable=True)
        except Conflict as conflict:
            was_committed = any(
                item is not None and item.get(REVISION) == s(plan.revision)
                for item in conflict.items
            )
            return None if was_committed else conflict
        finally:  # also if the outcome is unknown
            self._recent_changes.note(namespace_id)
        return None

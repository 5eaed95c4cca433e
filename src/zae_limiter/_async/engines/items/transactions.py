"""Transactions: a change and its audit event are written together or not at all.

Each attempt reads the items that the change depends on, and writes on the condition that they are
unchanged. After a conflict with another writer the change is planned again.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from zae_limiter._async.engines.dynamodb.requests import BoundedBackoff
from zae_limiter.clock import Deadline
from zae_limiter.dynamodb import expressions
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable
from zae_limiter.items.recent_changes import RecentChanges
from zae_limiter.items.stored import configs
from zae_limiter.items.stored.attributes import REVISION, s
from zae_limiter.items.stored.update import ItemWrite
from zae_limiter.store_errors import Throttled
from zae_limiter.transport.errors import TransactionCanceled

if TYPE_CHECKING:  # functions call by a client of their own
    from zae_limiter._async.engines.dynamodb.client import DynamoClient

__all__ = ["MAX_ACTIONS", "Conflict", "TransactionPlan", "Transactions", "transact"]

T = TypeVar("T")

MAX_ACTIONS = 100  # DynamoDB's bound of one transaction
PATIENCE = 10  # a change is retried for this many request timeouts while other writers win

CONFLICT = "TransactionConflict"
# "None" is the code of an action that had no part in the cancellation.
CONFLICTS = frozenset({"ConditionalCheckFailed", CONFLICT, "None"})

Conflict = TransactionCanceled | Throttled


async def transact(
    client: DynamoClient,
    actions: Sequence[ItemWrite],
    deadline: Deadline,
    *,
    repeatable: bool = False,
    revision: str = "",
) -> Conflict | None:
    """Write all actions or none. Return None on success, else the conflict with another writer.

    Raises if the transaction failed for any other reason, or if its outcome is unknown.
    A ``repeatable`` transaction is sent again if no answer comes. ``revision`` is an id that only
    this change writes: an item that carries it shows that an unanswered attempt was committed.
    """
    assert len(actions) <= MAX_ACTIONS, "the caller splits larger changes"
    body = {
        "TransactItems": [expressions.action(each, client.table) for each in actions],
        "ClientRequestToken": os.urandom(16).hex(),
    }
    try:
        await client.call("TransactWriteItems", body, deadline=deadline, repeatable=repeatable)
    except TransactionCanceled as canceled:
        return None if _was_committed(canceled, revision) else _conflict(canceled, client.table)
    except Throttled as throttled:
        if CONFLICT not in throttled.code:
            raise
        return throttled
    return None


def _was_committed(canceled: TransactionCanceled, revision: str) -> bool:
    return any(
        reason.item is not None and reason.item.get(REVISION) == s(revision)
        for reason in canceled.reasons
    )


def _conflict(canceled: TransactionCanceled, table: str) -> TransactionCanceled:
    """Return the conflict; raise if the transaction failed for any other reason."""
    for reason in canceled.reasons:
        if reason.code not in CONFLICTS:
            raise InfrastructureError(
                f"DynamoDB refused a change of table {table!r} ({reason.code}): {reason.message}"
            ) from canceled
    return canceled


class TransactionPlan(NamedTuple, Generic[T]):
    """One attempt of a change: the actions to write, and the result once they are written.

    A plan without actions changes nothing. ``transact`` explains ``revision``. A plan that took
    long gives the write a ``deadline`` of its own.
    """

    result: T
    actions: Sequence[ItemWrite]
    revision: str = ""
    deadline: Deadline | None = None


class Transactions:
    """Commits changes; each is planned again after a conflict with another writer."""

    def __init__(self, client: DynamoClient, recent_changes: RecentChanges) -> None:
        self._client = client
        self._recent_changes = recent_changes

    async def commit(
        self, namespace_id: str, plan: Callable[[Deadline], Awaitable[TransactionPlan[T]]]
    ) -> T:
        """Plan and write until there is no conflict. An outage is raised after one timeout."""
        backoff = BoundedBackoff(Deadline(PATIENCE * self._client.request_timeout))
        while True:
            deadline = self._client.deadline()
            planned = await plan(deadline)
            if not planned.actions:
                return planned.result
            conflict = await self._write(namespace_id, planned, planned.deadline or deadline)
            if conflict is None:
                return planned.result
            if isinstance(conflict, TransactionCanceled):
                for reason in conflict.reasons:  # one reason may be the mark of a purge
                    configs.refuse_if_purging(namespace_id, reason.item)
            if not await backoff.pause():
                raise RateLimiterUnavailable(
                    f"other writers keep changing the same items of table {self._client.table!r}; "
                    "retry later",
                    cause=conflict,
                ) from conflict

    async def _write(
        self, namespace_id: str, plan: TransactionPlan[T], deadline: Deadline
    ) -> Conflict | None:
        try:
            return await transact(
                self._client, plan.actions, deadline, repeatable=True, revision=plan.revision
            )
        finally:  # also if the outcome is unknown
            self._recent_changes.note(namespace_id)

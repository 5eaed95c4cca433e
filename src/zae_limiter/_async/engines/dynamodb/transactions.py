"""Changes: all that belongs to one, its audit event included, is a single transaction.

Each try reads what the change depends on and writes under the condition that it is still so.
Whoever is overtaken reads again.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from zae_limiter._async.engines.dynamodb.backoff import Backoff
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.dynamodb.own_writes import OwnWrites
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable
from zae_limiter.records.dynamodb.actions import REVISION, Action
from zae_limiter.records.dynamodb.attributes import s
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import Throttled, TransactionCanceled

T = TypeVar("T")

MOST_ACTIONS = 100  # of one transaction
PATIENCE = 10  # request timeouts that others may keep coming first
CONFLICT = "TransactionConflict"
OVERTAKEN = frozenset({"ConditionalCheckFailed", CONFLICT})


class Plan(NamedTuple, Generic[T]):
    """What is to be written, if anything, and what the change then returns.

    ``revision`` is what this change alone leaves on an item that it conditions on: if such an
    item carries it, the change was made although nobody heard so. ``deadline`` is for the write
    if planning has taken its time.
    """

    result: T
    actions: list[Action]
    revision: str = ""
    deadline: Deadline | None = None


class Transactions:
    """Makes changes, one at a time or many at once."""

    def __init__(self, client: DynamoClient, own_writes: OwnWrites) -> None:
        self._client = client
        self._own_writes = own_writes

    async def commit(self, namespace_id: str, plan: Callable[[Deadline], Awaitable[Plan[T]]]) -> T:
        """Plan and write until nobody comes between; an outage ends it within its timeout."""
        backoff = Backoff(Deadline(PATIENCE * self._client.request_timeout))
        while True:
            deadline = self._client.deadline()
            planned = await plan(deadline)
            if not planned.actions:
                return planned.result
            overtaken = await self._write(namespace_id, planned, planned.deadline or deadline)
            if overtaken is None:
                return planned.result
            if not await backoff.pause():
                raise RateLimiterUnavailable(
                    "others keep changing the same items; try again later", cause=overtaken
                ) from overtaken

    async def _write(
        self, namespace_id: str, plan: Plan[T], deadline: Deadline
    ) -> Exception | None:
        """None if it stands, or who came first."""
        assert len(plan.actions) <= MOST_ACTIONS, "the caller splits what is larger"
        body = {
            "TransactItems": [self._named(action) for action in plan.actions],
            "ClientRequestToken": str(uuid.uuid4()),
        }
        try:
            await self._client.call("TransactWriteItems", body, deadline=deadline, repeatable=True)
        except TransactionCanceled as canceled:
            return None if _is_ours(canceled, plan.revision) else overtaken(canceled)
        except Throttled as throttled:
            if CONFLICT not in throttled.code:
                raise
            return throttled
        finally:
            self._own_writes.note(namespace_id)
        return None

    def _named(self, action: Action) -> Action:
        return {kind: {"TableName": self._client.table, **body} for kind, body in action.items()}


def _is_ours(canceled: TransactionCanceled, revision: str) -> bool:
    mark = s(revision)
    return any(
        each.item is not None and each.item.get(REVISION) == mark for each in canceled.reasons
    )


def overtaken(canceled: TransactionCanceled) -> TransactionCanceled:
    """Who came first; raises if it was refused for another reason."""
    for reason in canceled.reasons:
        if reason.code not in OVERTAKEN | {"None"}:
            raise InfrastructureError(
                f"DynamoDB refused a change ({reason.code}): {reason.message}"
            ) from canceled
    return canceled

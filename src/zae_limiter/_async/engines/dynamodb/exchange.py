"""One conditional write to a bucket, and what to do when nobody knows whether it was made."""

from __future__ import annotations

from collections.abc import Callable

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.dynamodb.attempt import Attempt
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable
from zae_limiter.records.dynamodb.attributes import Item
from zae_limiter.records.dynamodb.bucket_item import OPERATION
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import ConditionFailed, NoAnswer, ServerFault

FIRST_SHARE = 0.7  # of the time that is left; the rest is for finding out what became of it


class Exchange:
    """Never makes a write twice, as far as that can be known."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client

    async def write(
        self, attempt: Attempt, deadline: Deadline, throttled: Callable[[], None] | None = None
    ) -> Item:
        """The item after the write; raises ConditionFailed if it was refused.

        ``throttled`` is told each time the store has no throughput left for it.

        Any other error: NotSent and Throttled for a write that was not made, ServerFault and
        NoAnswer for one that may have been, and may yet be.
        """
        first, client = Deadline(deadline.left() * FIRST_SHARE), self._client
        try:
            answer = await client.update(attempt.write.text(client.table), first, throttled)
            item: Item = answer["Attributes"]
            return item
        except ServerFault as fault:
            return await self._after_fault(attempt, fault, deadline)
        except NoAnswer as silence:
            return await self._if_ours(attempt, silence, deadline)

    async def read(self, key: Item, deadline: Deadline) -> Item | None:
        """The item as it is."""
        body = {"Key": key, "ConsistentRead": True}
        answer = await self._client.call("GetItem", body, deadline=deadline)
        return answer.get("Item")

    async def _after_fault(self, attempt: Attempt, fault: ServerFault, deadline: Deadline) -> Item:
        """Once more, if that cannot make it twice: after an answer nothing is under way."""
        if attempt.again is None:
            return await self._if_ours(attempt, fault, deadline)
        repeated = attempt.again().text(self._client.table)
        try:
            answer = await self._client.update(repeated, deadline)
            item: Item = answer["Attributes"]
            return item
        except ConditionFailed as failed:
            mark = _mark(failed.item)
            if mark == attempt.operation:
                return failed.item or {}
            if mark == attempt.before:  # nobody has written: it was refused for what stands there
                raise
            raise fault from failed
        except InfrastructureError as error:
            raise fault from error

    async def _if_ours(
        self, attempt: Attempt, doubt: RateLimiterUnavailable, deadline: Deadline
    ) -> Item:
        """Look once: the write was made if its mark is there. If not, it may still arrive."""
        try:
            item = await self.read(attempt.write.key, deadline)
        except InfrastructureError:  # also where reading is not permitted
            raise doubt from None
        if item is None or _mark(item) != attempt.operation:
            raise doubt
        return item


def _mark(item: Item | None) -> str | None:
    return None if item is None else item[OPERATION]["S"]

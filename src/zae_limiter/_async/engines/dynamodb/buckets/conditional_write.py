"""One conditional write to a bucket, and finding out what became of it if no answer came."""

from __future__ import annotations

from collections.abc import Callable

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.dynamodb.buckets.writes import Attempt
from zae_limiter.dynamodb.items.attributes import Item
from zae_limiter.dynamodb.items.bucket import WRITE_ID
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable
from zae_limiter.transport.calls import Deadline
from zae_limiter.transport.errors import ConditionFailed, NoAnswer, ServerFault

FIRST_SHARE = 0.7  # of the time that is left; the rest is for finding out what became of it


class ConditionalWriter:
    """Send a write at most once, except where a repetition cannot apply it twice."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client

    async def write(
        self, attempt: Attempt, deadline: Deadline, on_throttled: Callable[[], None] | None = None
    ) -> Item:
        """Return the item after the write; raise ConditionFailed if it was refused.

        ``on_throttled`` is called each time DynamoDB throttles the write.

        Other errors: NotSent and Throttled if the write was not made, ServerFault and NoAnswer if
        it may have been made, or may still be.
        """
        first, client = Deadline(deadline.left() * FIRST_SHARE), self._client
        try:
            text = attempt.write.text(client.table)
            answer = await client.call("UpdateItem", text, deadline=first, throttled=on_throttled)
            item: Item = answer["Attributes"]
            return item
        except ServerFault as fault:
            return await self._retry_guarded(attempt, fault, deadline)
        except NoAnswer as silence:
            return await self._look_for(attempt, silence, deadline)

    async def read(self, key: Item, deadline: Deadline) -> Item | None:
        """Read an item consistently."""
        body = {"Key": key, "ConsistentRead": True}
        answer = await self._client.call("GetItem", body, deadline=deadline)
        return answer.get("Item")

    async def _retry_guarded(
        self, attempt: Attempt, fault: ServerFault, deadline: Deadline
    ) -> Item:
        """Repeat the write if that cannot apply it twice: after an answer nothing is in flight."""
        if attempt.guarded_retry is None:
            return await self._look_for(attempt, fault, deadline)
        repeated = attempt.guarded_retry().text(self._client.table)
        try:
            answer = await self._client.call("UpdateItem", repeated, deadline=deadline)
            item: Item = answer["Attributes"]
            return item
        except ConditionFailed as failed:
            last = _write_id(failed.item)
            if failed.item is not None and last == attempt.write_id:  # the first one was applied
                return failed.item
            if last == attempt.previous_write_id:  # no other write came: its own condition failed
                raise
            raise fault from failed
        except InfrastructureError as error:
            raise fault from error

    async def _look_for(
        self, attempt: Attempt, doubt: RateLimiterUnavailable, deadline: Deadline
    ) -> Item:
        """Read once: the write was made if its id is there. If not, it may still arrive."""
        try:
            item = await self.read(attempt.write.key, deadline)
        except InfrastructureError:  # also where reading is not permitted
            raise doubt from None
        if item is None or _write_id(item) != attempt.write_id:
            raise doubt
        return item


def _write_id(item: Item | None) -> str | None:
    return None if item is None else item[WRITE_ID]["S"]

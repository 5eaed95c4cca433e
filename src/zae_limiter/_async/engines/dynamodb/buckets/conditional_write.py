"""One conditional write to a bucket, and finding out what became of it if no answer came."""

from __future__ import annotations

from collections.abc import Callable

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.dynamodb.buckets.writes import Attempt
from zae_limiter.dynamodb.items.attributes import Item
from zae_limiter.dynamodb.items.bucket import WRITE_ID
from zae_limiter.dynamodb.items.update_expression import UpdateExpression
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable
from zae_limiter.transport.calls import Deadline
from zae_limiter.transport.errors import ConditionFailed, NoAnswer, ServerFault

# A repeated write may meet other connections that the server has closed, but hardly more of them.
MAX_CLOSED_CONNECTIONS = 4
NO_ITEM = "the answer to UpdateItem shows no item; check endpoint_url and any proxy before it"
FIRST_SHARE = 0.7  # of the time that is left; the rest is for finding out what became of it


class ConditionalWriter:
    """Send a write at most once, except where a repetition cannot apply it twice."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client
        self._counters = client.counters

    async def write(
        self, attempt: Attempt, deadline: Deadline, on_throttled: Callable[[], None] | None = None
    ) -> Item:
        """Return the item after the write; raise ConditionFailed if it was refused.

        ``on_throttled`` is called each time DynamoDB throttles the write.

        Other errors: NotSent and Throttled if the write was not made, ServerFault and NoAnswer if
        it may have been made, or may still be.
        """
        first, client = Deadline(deadline.left() * FIRST_SHARE), self._client
        text = attempt.write.text(client.table)
        try:
            answer = await client.call("UpdateItem", text, deadline=first, throttled=on_throttled)
            item: Item = answer["Attributes"]
            return item
        except KeyError:
            return await self._retry_guarded(attempt, ServerFault(NO_ITEM), deadline)
        except ServerFault as fault:
            return await self._retry_guarded(attempt, fault, deadline)
        except NoAnswer as silence:
            if silence.reused_connection:
                return await self._repeat_if_unread(attempt, silence, deadline)
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
        return await self._repeat(attempt, attempt.guarded_retry, fault, deadline)

    async def _repeat_if_unread(
        self, attempt: Attempt, silence: NoAnswer, deadline: Deadline
    ) -> Item:
        """Repeat a write that was sent just when the server closed the idle connection.

        Read once; only while the item's write id is still the known one, the write is repeated
        under that guard. If the original arrives after all, it is charged once more: never
        admitted once more.
        """
        if attempt.guarded_retry is None:
            return await self._look_for(attempt, silence, deadline)
        item = await self._read_in_doubt(attempt, silence, deadline)
        last = _write_id(item)
        if item is not None and last == attempt.write_id:
            return item
        if last != attempt.previous_write_id:
            raise silence
        self._counters.add(repeated_writes=1)
        return await self._repeat(attempt, attempt.guarded_retry, silence, deadline)

    async def _repeat(
        self,
        attempt: Attempt,
        guarded: Callable[[], UpdateExpression],
        doubt: ServerFault | NoAnswer,
        deadline: Deadline,
    ) -> Item:
        """Send the guarded write; again if its connection, too, was closed while idle.

        However often it is sent, it is applied once: that changes the write id.
        """
        for _ in range(MAX_CLOSED_CONNECTIONS):
            text = guarded().text(self._client.table)  # a bucket is created under another origin
            try:
                answer = await self._client.call("UpdateItem", text, deadline=deadline)
                item: Item = answer["Attributes"]
                return item
            except KeyError:
                raise doubt from None
            except ConditionFailed as failed:
                last = _write_id(failed.item)
                if failed.item is not None and last == attempt.write_id:  # an earlier one did it
                    return failed.item
                if last == attempt.previous_write_id:  # no write came: its own condition failed
                    raise
                raise doubt from failed
            except InfrastructureError as error:
                if not (isinstance(error, NoAnswer) and error.reused_connection):
                    raise doubt from error
        raise doubt

    async def _look_for(
        self, attempt: Attempt, doubt: RateLimiterUnavailable, deadline: Deadline
    ) -> Item:
        """Read once: the write was made if its id is there. If not, it may still arrive."""
        item = await self._read_in_doubt(attempt, doubt, deadline)
        if item is None or _write_id(item) != attempt.write_id:
            raise doubt
        return item

    async def _read_in_doubt(
        self, attempt: Attempt, doubt: RateLimiterUnavailable, deadline: Deadline
    ) -> Item | None:
        try:
            return await self.read(attempt.write.key, deadline)
        except InfrastructureError:  # also where reading is not permitted
            raise doubt from None


def _write_id(item: Item | None) -> str | None:
    """Return the id of an item's last write; None if it has none, or is no item of DynamoDB's."""
    write_id = None if item is None else item.get(WRITE_ID)
    return write_id.get("S") if isinstance(write_id, dict) else None

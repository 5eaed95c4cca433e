"""Requests that several ports make: reads, queries and batches, with backoff.

DynamoDB may process a part of a batch only: the rest is sent again until the deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zae_limiter.clock import Deadline
from zae_limiter.clock.backoff import Backoff
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.items.stored.attributes import Item, Value
from zae_limiter.items.stored.keys import Key
from zae_limiter.runtime.calls import asleep
from zae_limiter.runtime.parallel import Parallel, agather
from zae_limiter.store_errors import ServerFault

if TYPE_CHECKING:  # functions call by a client of their own
    from zae_limiter._async.engines.dynamodb.client import DynamoClient

MAX_KEYS = 100  # DynamoDB's bound of one BatchGetItem
MAX_WRITES = 25  # DynamoDB's bound of one BatchWriteItem
PARALLEL_BATCHES = 4  # a purge is done in a quarter of the time, and leaves throughput to acquires
FIRST_PAUSE_S = 0.01  # about one round trip
LONGEST_PAUSE_S = 0.5

ItemsByKey = dict[Key, Item]


class BoundedBackoff:
    """A backoff that ends when a deadline is near."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    async def pause(self) -> bool:
        """Wait; return False at once if no time is left for another attempt and its answer."""
        pause_s = self._backoff.next_s()
        if self._deadline.is_nearly_over(pause_s):
            return False
        await asleep(pause_s)
        return True


# --- reads


async def get_item(client: DynamoClient, key: Key, deadline: Deadline | None = None) -> Item | None:
    """Read one item consistently; None if there is none."""
    body = {"Key": key.attributes, "ConsistentRead": True}
    item: Item | None = (await client.call("GetItem", body, deadline=deadline)).get("Item")
    if item is not None:
        _check_keys([item], "GetItem")
    return item


async def batch_get(
    client: DynamoClient,
    keys: Iterable[Key],
    *,
    consistent: bool,
    deadline: Deadline | None = None,
) -> ItemsByKey:
    """Read the existing items. Without a deadline each batch has a full timeout."""
    items: ItemsByKey = {}
    wanted = list(dict.fromkeys(keys))
    for start in range(0, len(wanted), MAX_KEYS):
        batch = wanted[start : start + MAX_KEYS]
        items |= await _get_batch(client, batch, consistent, deadline or client.deadline())
    return items


async def batch_get_all(
    client: DynamoClient, keys: Sequence[Key], parallel: Parallel
) -> ItemsByKey:
    """Read the existing ones of very many items, consistently, several batches at once."""
    items: ItemsByKey = {}
    batches = [keys[at : at + MAX_KEYS] for at in range(0, len(keys), MAX_KEYS)]
    for start in range(0, len(batches), PARALLEL_BATCHES):
        some = batches[start : start + PARALLEL_BATCHES]
        for read in await agather(
            parallel,
            *(lambda batch=batch: batch_get(client, batch, consistent=True) for batch in some),
        ):
            items |= read
    return items


async def _get_batch(
    client: DynamoClient, keys: Sequence[Key], consistent: bool, deadline: Deadline
) -> ItemsByKey:
    items: ItemsByKey = {}
    wanted = frozenset(keys)
    backoff = BoundedBackoff(deadline)
    request: Mapping[str, Any] = {
        "Keys": [key.attributes for key in keys],
        "ConsistentRead": consistent,
    }
    while True:
        body = {"RequestItems": {client.table: request}}
        answer = await client.call("BatchGetItem", body, deadline=deadline)
        found: list[Item] = answer["Responses"].get(client.table, [])
        _check_keys(found, "BatchGetItem")
        read = {Key.of(item): item for item in found}
        if not read.keys() <= wanted:
            raise _not_asked_for("BatchGetItem")
        items |= read
        request = answer.get("UnprocessedKeys", {}).get(client.table)
        if not request:
            return items
        if not await backoff.pause():
            raise _unprocessed(client, f"read {len(request['Keys'])} of {len(keys)} items")


async def transact_get(
    client: DynamoClient, keys: Iterable[Key], deadline: Deadline | None = None
) -> ItemsByKey:
    """Read the existing ones of at most 100 items, all as of one moment."""
    wanted = list(dict.fromkeys(keys))
    gets = [{"Get": {"TableName": client.table, "Key": key.attributes}} for key in wanted]
    answer = await client.call("TransactGetItems", {"TransactItems": gets}, deadline=deadline)
    responses: list[dict[str, Item]] = answer["Responses"]
    if len(responses) != len(wanted):
        raise _not_asked_for("TransactGetItems")
    return {
        key: response["Item"]
        for key, response in zip(wanted, responses, strict=True)
        if response.get("Item")
    }


def _check_keys(items: Iterable[Item], operation: str, index_key: str = "PK") -> None:
    """Raise ServerFault unless every item has the keys of the table and of the queried index."""
    for item in items:
        if not all("S" in item.get(name, ()) for name in ("PK", "SK", index_key)):
            raise _not_asked_for(operation)


def _not_asked_for(operation: str) -> ServerFault:
    return ServerFault(
        f"the answer to {operation} has other items than it asked for; check endpoint_url and any "
        "proxy or gateway before it"
    )


class Query:
    """A query of one partition of the table or of an index, read page by page.

    ``only`` is a filter expression: DynamoDB reads and bills all items, but sends only those that
    match. ``after`` is the key of the item to continue after.
    """

    def __init__(
        self,
        client: DynamoClient,
        condition: str,
        values: Mapping[str, Value],
        *,
        index: str | None = None,
        consistent: bool = True,
        newest_first: bool = False,
        page_size: int | None = None,
        only: str | None = None,
        after: Item | None = None,
    ) -> None:
        self._client = client
        self._body: dict[str, Any] = {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": dict(values),
            "ScanIndexForward": not newest_first,
        }
        if index is not None:  # an index cannot be read consistently
            self._body["IndexName"] = index
        elif consistent:
            self._body["ConsistentRead"] = True
        if page_size is not None:
            self._body["Limit"] = page_size
        if only is not None:
            self._body["FilterExpression"] = only
        if after is not None:
            self._body["ExclusiveStartKey"] = after
        self._index_key = f"{index}PK" if index is not None else "PK"
        self.is_over = False

    async def page(self) -> list[Item]:
        """Read the next items; the list is empty only at the end."""
        items: list[Item] = []
        while not items and not self.is_over:
            answer = await self._client.call("Query", self._body)
            items = answer["Items"]
            _check_keys(items, "Query", self._index_key)
            last = answer.get("LastEvaluatedKey")
            self.is_over = not last
            self._body["ExclusiveStartKey"] = last
        return items

    async def all(self, limit: int | None = None) -> list[Item]:
        """Read all remaining items, or the first ``limit`` of them."""
        items: list[Item] = []
        while not self.is_over and (limit is None or len(items) < limit):
            items += await self.page()
        return items if limit is None else items[:limit]


# --- writes


async def batch_delete(client: DynamoClient, keys: Sequence[Key], parallel: Parallel) -> None:
    """Delete the items, several batches at once; an item that does not exist is no error."""
    wanted = list(dict.fromkeys(keys))
    batches = [wanted[at : at + MAX_WRITES] for at in range(0, len(wanted), MAX_WRITES)]
    for start in range(0, len(batches), PARALLEL_BATCHES):
        some = batches[start : start + PARALLEL_BATCHES]
        await agather(
            parallel, *(lambda batch=batch: _delete_batch(client, batch) for batch in some)
        )


async def _delete_batch(client: DynamoClient, keys: Sequence[Key]) -> None:
    deadline = client.deadline()
    backoff = BoundedBackoff(deadline)
    requests: list[dict[str, Any]] = [{"DeleteRequest": {"Key": key.attributes}} for key in keys]
    while True:
        body = {"RequestItems": {client.table: requests}}
        answer = await client.call("BatchWriteItem", body, deadline=deadline, repeatable=True)
        requests = answer.get("UnprocessedItems", {}).get(client.table, [])
        if not requests:
            return
        if not await backoff.pause():
            raise _unprocessed(client, f"delete {len(requests)} of {len(keys)} items")


def _unprocessed(client: DynamoClient, what: str) -> RateLimiterUnavailable:
    return RateLimiterUnavailable(
        f"DynamoDB did not {what} of table {client.table!r} in time: its throughput is used up; "
        "retry later or raise the table's capacity"
    )

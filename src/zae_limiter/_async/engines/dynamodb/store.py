"""DynamoDB as the store of items: the requests, and what its answers and refusals mean.

DynamoDB may process a part of a batch only: the rest is sent again until the deadline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.provisioning import remove_table
from zae_limiter._async.engines.items.backoff import BoundedBackoff
from zae_limiter._async.engines.items.port import (
    ITEM_AFTER,
    ITEM_BEFORE,
    MAX_GROUP,
    MAX_KEYS,
    NOTHING,
    ItemStore,
)
from zae_limiter.clock import Deadline
from zae_limiter.dynamodb import expressions
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable
from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.keys import ItemsByKey, Key
from zae_limiter.items.stored.query import ItemQuery
from zae_limiter.items.stored.update import ItemUpdate, ItemWrite
from zae_limiter.runtime.parallel import Parallel, agather
from zae_limiter.store_errors import Conflict, ServerFault, Throttled
from zae_limiter.transport.errors import TransactionCanceled

MAX_WRITES = 25  # DynamoDB's bound of one BatchWriteItem
PARALLEL_BATCHES = 4  # a purge is done in a quarter of the time, and leaves throughput to acquires

CONFLICT = "TransactionConflict"
# "None" is the code of an action that had no part in the cancellation.
CONFLICTS = frozenset({"ConditionalCheckFailed", CONFLICT, "None"})
NO_ITEM = "the answer to UpdateItem shows no item; check endpoint_url and any proxy before it"
RETURNS = {ITEM_AFTER: "ALL_NEW", ITEM_BEFORE: "UPDATED_OLD", NOTHING: ""}


class DynamoStore(ItemStore):
    """The items of one table."""

    def __init__(self, client: DynamoClient, parallel: Parallel) -> None:
        self.client = client
        self.name = client.table
        self.counters = client.counters
        self.request_timeout = client.request_timeout
        self._parallel = parallel

    @property
    def answered_s(self) -> float:
        return self.client.answered_s

    def deadline(self) -> Deadline:
        return self.client.deadline()

    # --- reads

    async def get(
        self, key: Key, deadline: Deadline | None = None, *, consistent: bool = True
    ) -> Item | None:
        return await get_item(self.client, key, deadline, consistent=consistent)

    async def get_several(
        self, keys: Iterable[Key], *, consistent: bool, deadline: Deadline | None = None
    ) -> ItemsByKey:
        items: ItemsByKey = {}
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), MAX_KEYS):
            batch = wanted[start : start + MAX_KEYS]
            items |= await self._get_batch(batch, consistent, deadline or self.deadline())
        return items

    async def get_many(self, keys: Sequence[Key]) -> ItemsByKey:
        items: ItemsByKey = {}
        batches = [keys[at : at + MAX_KEYS] for at in range(0, len(keys), MAX_KEYS)]
        for start in range(0, len(batches), PARALLEL_BATCHES):
            some = batches[start : start + PARALLEL_BATCHES]
            for read in await agather(
                self._parallel,
                *(lambda batch=batch: self.get_several(batch, consistent=True) for batch in some),
            ):
                items |= read
        return items

    async def _get_batch(
        self, keys: Sequence[Key], consistent: bool, deadline: Deadline
    ) -> ItemsByKey:
        items: ItemsByKey = {}
        client, wanted, backoff = self.client, frozenset(keys), BoundedBackoff(deadline)
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
                raise self._unprocessed(f"read {len(request['Keys'])} of {len(keys)} items")

    async def get_at_once(
        self, keys: Iterable[Key], deadline: Deadline | None = None
    ) -> ItemsByKey:
        wanted, table = list(dict.fromkeys(keys)), self.name
        gets = [{"Get": {"TableName": table, "Key": key.attributes}} for key in wanted]
        body = {"TransactItems": gets}
        answer = await self.client.call("TransactGetItems", body, deadline=deadline)
        responses: list[dict[str, Item]] = answer["Responses"]
        if len(responses) != len(wanted):
            raise _not_asked_for("TransactGetItems")
        return {
            key: response["Item"]
            for key, response in zip(wanted, responses, strict=True)
            if response.get("Item")
        }

    def query(self, query: ItemQuery) -> Query:
        return Query(self.client, query)

    # --- writes

    async def update(
        self,
        update: ItemUpdate,
        deadline: Deadline | None = None,
        *,
        returns: str = ITEM_AFTER,
        repeatable: bool = False,
        throttled: Callable[[], None] | None = None,
    ) -> Item:
        text = expressions.text(update, self.name, RETURNS[returns])
        answer = await self.client.call(
            "UpdateItem", text, deadline=deadline, repeatable=repeatable, throttled=throttled
        )
        item: Item | None = answer.get("Attributes")
        if item is None and returns == ITEM_AFTER:
            raise ServerFault(NO_ITEM)
        return item or {}

    async def put(self, item: Item) -> None:
        await self.client.call("PutItem", {"Item": item}, repeatable=True)

    async def write_group(
        self, writes: Sequence[ItemWrite], deadline: Deadline, *, repeatable: bool = False
    ) -> None:
        assert len(writes) <= MAX_GROUP, "the caller splits larger changes"
        body = {
            "TransactItems": [expressions.action(each, self.name) for each in writes],
            "ClientRequestToken": os.urandom(16).hex(),  # DynamoDB itself recognises a repetition
        }
        try:
            await self.client.call(
                "TransactWriteItems", body, deadline=deadline, repeatable=repeatable
            )
        except TransactionCanceled as canceled:
            raise self._conflict(canceled) from canceled
        except Throttled as throttled:
            if CONFLICT not in throttled.code:
                raise
            raise Conflict from throttled

    def _conflict(self, canceled: TransactionCanceled) -> Conflict | InfrastructureError:
        """Return the conflict, or the error if the transaction failed for any other reason."""
        for reason in canceled.reasons:
            if reason.code not in CONFLICTS:
                return InfrastructureError(
                    f"DynamoDB refused a change of table {self.name!r} ({reason.code}): "
                    f"{reason.message}"
                )
        return Conflict(tuple([reason.item for reason in canceled.reasons]))

    async def delete_many(self, keys: Sequence[Key]) -> None:
        wanted = list(dict.fromkeys(keys))
        batches = [wanted[at : at + MAX_WRITES] for at in range(0, len(wanted), MAX_WRITES)]
        for start in range(0, len(batches), PARALLEL_BATCHES):
            some = batches[start : start + PARALLEL_BATCHES]
            await agather(
                self._parallel, *(lambda batch=batch: self._delete_batch(batch) for batch in some)
            )

    async def _delete_batch(self, keys: Sequence[Key]) -> None:
        deadline = self.deadline()
        client, backoff = self.client, BoundedBackoff(deadline)
        requests: list[dict[str, Any]] = [
            {"DeleteRequest": {"Key": key.attributes}} for key in keys
        ]
        while True:
            body = {"RequestItems": {client.table: requests}}
            answer = await client.call("BatchWriteItem", body, deadline=deadline, repeatable=True)
            requests = answer.get("UnprocessedItems", {}).get(client.table, [])
            if not requests:
                return
            if not await backoff.pause():
                raise self._unprocessed(f"delete {len(requests)} of {len(keys)} items")

    def _unprocessed(self, what: str) -> RateLimiterUnavailable:
        return RateLimiterUnavailable(
            f"DynamoDB did not {what} of table {self.name!r} in time: its throughput is used up; "
            "retry later or raise the table's capacity"
        )

    # --- the store

    async def close(self) -> None:
        await self.client.close()

    async def remove(self) -> None:
        await remove_table(self.client)


async def get_item(
    client: DynamoClient, key: Key, deadline: Deadline | None = None, *, consistent: bool = True
) -> Item | None:
    """Read one item; None if there is none."""
    body = {"Key": key.attributes, "ConsistentRead": consistent}
    item: Item | None = (await client.call("GetItem", body, deadline=deadline)).get("Item")
    if item is not None:
        _check_keys([item], "GetItem")
    return item


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
    """A query, page by page. DynamoDB reads and bills all items, but sends only those wanted."""

    def __init__(self, client: DynamoClient, query: ItemQuery) -> None:
        self._client = client
        self._body = expressions.query(query)
        self._index_key = query.partition_key
        self.is_over = False

    async def page(self) -> list[Item]:
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
        items: list[Item] = []
        while not self.is_over and (limit is None or len(items) < limit):
            items += await self.page()
        return items if limit is None else items[:limit]

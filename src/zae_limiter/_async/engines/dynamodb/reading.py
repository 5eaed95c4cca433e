"""Reading items: one, many by key, at one moment, and by range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zae_limiter._async.engines.dynamodb.backoff import Backoff
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.records.dynamodb.attributes import Item, Value
from zae_limiter.records.dynamodb.keys import Key
from zae_limiter.transport.deadline import Deadline

MOST_KEYS = 100  # of one BatchGetItem

Found = dict[Key, Item]


async def get_item(client: DynamoClient, key: Key, deadline: Deadline | None = None) -> Item | None:
    """One item as it is now."""
    body = {"Key": key.item, "ConsistentRead": True}
    item: Item | None = (await client.call("GetItem", body, deadline=deadline)).get("Item")
    return item


async def batch_get(
    client: DynamoClient,
    keys: Iterable[Key],
    *,
    consistent: bool,
    deadline: Deadline | None = None,
) -> Found:
    """Those of the items that exist. Without a deadline each batch has the request's time."""
    found: Found = {}
    wanted = list(dict.fromkeys(keys))
    for start in range(0, len(wanted), MOST_KEYS):
        batch = wanted[start : start + MOST_KEYS]
        found |= await _one_batch(client, batch, consistent, deadline or client.deadline())
    return found


async def _one_batch(
    client: DynamoClient, keys: Sequence[Key], consistent: bool, deadline: Deadline
) -> Found:
    found: Found = {}
    backoff = Backoff(deadline)
    request: Mapping[str, Any] = {"Keys": [key.item for key in keys], "ConsistentRead": consistent}
    while True:
        body = {"RequestItems": {client.table: request}}
        answer = await client.call("BatchGetItem", body, deadline=deadline)
        items: list[Item] = answer.get("Responses", {}).get(client.table, [])
        found |= {Key.of(item): item for item in items}
        request = answer.get("UnprocessedKeys", {}).get(client.table)
        if not request:
            return found
        if not await backoff.pause():
            raise RateLimiterUnavailable(
                f"DynamoDB left {len(request['Keys'])} of {len(keys)} items unread; "
                "the table's throughput is used up"
            )


async def get_at_once(client: DynamoClient, keys: Iterable[Key]) -> Found:
    """Those of at most 100 items that exist, all as they were at one moment."""
    wanted = list(dict.fromkeys(keys))
    gets = [{"Get": {"TableName": client.table, "Key": key.item}} for key in wanted]
    answer = await client.call("TransactGetItems", {"TransactItems": gets})
    responses: list[dict[str, Item]] = answer["Responses"]
    return {
        key: response["Item"]
        for key, response in zip(wanted, responses, strict=True)
        if response.get("Item")
    }


class Query:
    """Items of one partition of the table or of an index, a page at a time."""

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
        """``only`` is a filter: it saves sending items, not reading them."""
        self._client = client
        self._body: dict[str, Any] = {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": dict(values),
            "ScanIndexForward": not newest_first,
        }
        if index is not None:  # indexes are always a moment behind
            self._body["IndexName"] = index
        elif consistent:
            self._body["ConsistentRead"] = True
        if page_size is not None:
            self._body["Limit"] = page_size
        if only is not None:
            self._body["FilterExpression"] = only
        if after is not None:
            self._body["ExclusiveStartKey"] = after
        self.is_over = False

    async def page(self) -> list[Item]:
        """The next items; none only when it is over."""
        items: list[Item] = []
        while not items and not self.is_over:
            answer = await self._client.call("Query", self._body)
            items = answer.get("Items", [])
            last = answer.get("LastEvaluatedKey")
            self.is_over = not last
            self._body["ExclusiveStartKey"] = last
        return items

    async def all(self, limit: int | None = None) -> list[Item]:
        """All that are left, or as many as are wanted."""
        items: list[Item] = []
        while not self.is_over and (limit is None or len(items) < limit):
            items += await self.page()
        return items if limit is None else items[:limit]

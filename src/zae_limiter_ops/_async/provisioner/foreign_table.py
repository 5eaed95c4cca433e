"""Read a table that another implementation has written. Nothing is written to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.store import Query, get_item
from zae_limiter.clock import Deadline
from zae_limiter.dynamodb.foreign import COMPOSITE, is_ours
from zae_limiter.exceptions import ValidationError
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import Item, text
from zae_limiter.items.stored.query import PREFIX, ItemQuery, Range
from zae_limiter.items.stored.system import NAME_PREFIX
from zae_limiter.naming import RESERVED_NAMESPACE
from zae_limiter.runtime.calls import asleep
from zae_limiter.shell_words import command_line
from zae_limiter_ops.manifest.foreign_forms import CompositeReader, Found, PerLimitReader, Reader

PAGE_ITEMS = 500  # a page of small items costs about 30 read units; DynamoDB ends it at 1 MB
CALL_S = 30.0  # a table that throttles may delay the reading, but must not end it
MAX_NAMES = 10  # namespaces that a message names


class TableRead(NamedTuple):
    """The progress of reading a table; ``units`` are read units as DynamoDB bills them."""

    items: int = 0
    pages: int = 0
    units: float = 0.0


OnPage = Callable[[TableRead], None]


async def read_foreign_table(
    client: DynamoClient,
    form: str,
    *,
    namespace: str,
    scale: int,
    units_per_second: float,
    on_page: OnPage | None = None,
) -> tuple[Found, TableRead]:
    """Read all items of a table once, and return its settings.

    The reads are Scans, eventually consistent: half a read unit for each 4 KB of the table. The
    pause after a page keeps the average rate.
    """
    reader: Reader
    if form == COMPOSITE:
        reader = CompositeReader(await _namespace_id(client, namespace), scale)
    else:
        reader = PerLimitReader(scale)
    read, body = TableRead(), _page()
    while True:
        answer = await client.call("Scan", body, deadline=Deadline(CALL_S))
        for item in answer["Items"]:
            reader.add(item)
        if not read.pages:
            _refuse_own_table(client.table, answer["Items"])
        used = float(answer["ConsumedCapacity"]["CapacityUnits"])
        read = TableRead(read.items + len(answer["Items"]), read.pages + 1, read.units + used)
        if on_page is not None:
            on_page(read)
        after = answer.get("LastEvaluatedKey")
        if not after:
            reader.found.drop_circles()
            return reader.found, read
        body = {**_page(), "ExclusiveStartKey": after}
        await asleep(used / units_per_second)


def _page() -> dict[str, Any]:
    return {"Limit": PAGE_ITEMS, "ReturnConsumedCapacity": "TOTAL"}


def _refuse_own_table(table: str, items: list[Item]) -> None:
    """Raise ValidationError for a table of this version, which has an export of its own."""
    if any(is_ours(item) for item in items[:1]):
        command = command_line("limits", "export", options=("--name", table))
        raise ValidationError("table", table, f"is a table of this version; export it: {command}")


async def _namespace_id(client: DynamoClient, name: str) -> str:
    """Return the id of a namespace of the table; raise ValidationError for an unknown name."""
    item = await get_item(client, keys.namespace_by_name(name))
    if item is not None:
        _refuse_own_table(client.table, [item])
        namespace_id = item.get("namespace_id", {}).get("S")
        if isinstance(namespace_id, str):
            return namespace_id
    sort = Range(PREFIX, NAME_PREFIX)
    query = ItemQuery(schema.pk_system(RESERVED_NAMESPACE), sort, page_size=MAX_NAMES)
    found = await Query(client, query).all(MAX_NAMES)
    names = [text(each["SK"]).removeprefix(NAME_PREFIX) for each in found]
    known = f"it has: {', '.join(names)}" if names else "it has none; is this its form?"
    raise ValidationError("namespace", name, f"is no namespace of table {client.table!r}; {known}")

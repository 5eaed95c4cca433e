"""Removing bucket items without losing the hours that they have counted.

The transaction that deletes an item stores its hours, on the condition that no write has come since
the item was read.
"""

from __future__ import annotations

from collections.abc import Iterable

from zae_limiter import schema
from zae_limiter.admission.usage import HourUsage
from zae_limiter.items.stored.attributes import Item, text
from zae_limiter.items.stored.bucket import GENERATION, SHARDS, WRITES, counted_hours
from zae_limiter.items.stored.keys import ShardId
from zae_limiter.items.stored.update import ItemWrite
from zae_limiter.items.stored.usage import day_row
from zae_limiter.items.stored.usage.day_row import day_of
from zae_limiter.items.stored.usage.hours import ORIGIN

MAX_ROWS = 2  # usage rows of one item: its running hour may be of another day than the finished


def guards(item: Item) -> tuple[str, ...]:
    """Return the attributes that must be as they were read.

    If the shard was split or merged meanwhile, its new sibling would be left behind. If it was
    written to or created again, its new counts would be lost.
    """
    return tuple(name for name in (SHARDS, GENERATION, WRITES, ORIGIN) if name in item)


def stored_hours(items: Iterable[Item], retention_days: int) -> list[ItemWrite]:
    """Return the actions that store the hours of the items, one for each usage row.

    The items count no more hours, so their origins are closed. Calls in flight count their costs
    at their ends.
    """
    if not retention_days:
        return []
    stored: list[ItemWrite] = []
    for item in items:
        shard_id = ShardId(*schema.parse_bucket_pk(text(item["PK"])))
        days: dict[int, list[HourUsage]] = {}
        for usage in counted_hours(item):
            if not usage.is_empty:  # otherwise it need not be stored
                days.setdefault(day_of(usage.hour), []).append(usage)
        for hours in days.values():
            origin = text(item[ORIGIN])
            row = day_row.store(shard_id, origin, hours, retention_days, closes=True)
            stored.append(row)
    return stored

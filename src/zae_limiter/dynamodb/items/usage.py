"""Usage of one bucket in one hour.

    {ns}/ENTITY#{entity}   #USAGE#{resource}#{hour}     hour: 2026-01-31T12, UTC
    GSI2                   {ns}/RESOURCE#{resource}     USAGE#{hour}#{entity}

Hours sort by time under either key, so a span of time is a range of keys. ``u_{limit}`` is the net
consumption in millitokens, ``total_events`` counts admitted acquires, ``ttl`` is when the item
expires. Writers may ADD to the counters: a missing attribute counts zero. Longer windows are not
stored: a day is the sum of its hours.
"""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.usage import BucketHour, WindowUsage
from zae_limiter.dynamodb.items import keys
from zae_limiter.dynamodb.items.attributes import (
    Item,
    damaged,
    integer,
    n,
    optional_integer,
    s,
    text,
)
from zae_limiter.models.limit import MILLI
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso

COUNTER = "u_"
EVENTS = "total_events"
DELIMITER = "#"
_HOUR_DIGITS = len("2026-01-31T12")
FIRST_HOUR = -(1969 * 365 * 24)  # within the years 1 to 9999, which have four digits in ISO text
LAST_HOUR = 8000 * 366 * 24


def window_key(hour: int) -> str:
    """Return an hour since 1970 as keys spell it."""
    within = min(max(hour, FIRST_HOUR), LAST_HOUR)
    return iso_from_ms(within * HOUR_MS)[:_HOUR_DIGITS]


def index_keys(namespace_id: str, entity_id: str, resource: str, hour: int) -> Item:
    """Return an hour's keys in the indexes, which never change."""
    return {
        "GSI2PK": s(schema.gsi2_pk_resource(namespace_id, resource)),
        "GSI2SK": s(schema.gsi2_sk_usage(window_key(hour), entity_id)),
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id)),
    }


def encode(namespace_id: str, row: BucketHour, expires_s: int) -> Item:
    entity_id, resource, usage = row
    item = {
        **keys.usage(namespace_id, entity_id, resource, window_key(usage.hour)).attributes,
        **index_keys(namespace_id, entity_id, resource, usage.hour),
        "entity_id": s(entity_id),
        "resource": s(resource),
        EVENTS: n(usage.events),
        "ttl": n(expires_s),
    }
    for name, amount in usage.counters.items():
        item[COUNTER + name] = n(amount * MILLI)
    return item


def decode(item: Item) -> BucketHour:
    try:
        _, _, resource, window = text(item["SK"]).split(DELIMITER)
        counters = {
            name.removeprefix(COUNTER): integer(value) // MILLI
            for name, value in item.items()
            if name.startswith(COUNTER)
        }
        hour = ms_from_iso(window) // HOUR_MS
        usage = WindowUsage(hour, counters, optional_integer(item, EVENTS) or 0)
        return BucketHour(text(item["entity_id"]), resource, usage)
    except (KeyError, ValueError) as error:
        raise damaged("usage window", item, error) from error


def resource_of(item: Item) -> str:
    """Return the resource in the key of an hour."""
    return text(item["SK"]).split(DELIMITER)[2]

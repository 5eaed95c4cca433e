"""Usage of one bucket in one hour.

    {ns}/ENTITY#{entity}   #USAGE#{resource}#{hour}     hour: 2026-01-31T12, UTC
    GSI2                   {ns}/RESOURCE#{resource}     USAGE#{hour}#{entity}

Hours sort by time under either key, so a span of time is a range of keys. ``u_{limit}`` is the net
consumption in millitokens, ``total_events`` counts admitted acquires, ``ttl`` is when it is
forgotten. Whoever writes may ADD to the counters: a missing attribute counts zero. Longer windows
are not stored: a day is the sum of its hours.
"""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.usage import WindowUsage
from zae_limiter.models.limit import MILLI
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso
from zae_limiter.records.dynamodb import keys
from zae_limiter.records.dynamodb.attributes import (
    Item,
    damaged,
    integer,
    n,
    optional_integer,
    s,
    text,
)

COUNTER = "u_"
EVENTS = "total_events"
DELIMITER = "#"
_HOUR_DIGITS = len("2026-01-31T12")
FIRST_HOUR = -(1969 * 365 * 24)  # years have four digits
LAST_HOUR = 8000 * 366 * 24


class UsageRow(NamedTuple):
    """An hour of one bucket."""

    entity_id: str
    resource: str
    usage: WindowUsage


def window_key(hour: int) -> str:
    """An hour since 1970 as it stands in keys."""
    within = min(max(hour, FIRST_HOUR), LAST_HOUR)
    return iso_from_ms(within * HOUR_MS)[:_HOUR_DIGITS]


def index_keys(namespace_id: str, entity_id: str, resource: str, hour: int) -> Item:
    """Where an hour is found besides its own key; they never change."""
    return {
        "GSI2PK": s(schema.gsi2_pk_resource(namespace_id, resource)),
        "GSI2SK": s(schema.gsi2_sk_usage(window_key(hour), entity_id)),
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id)),
    }


def encode(namespace_id: str, row: UsageRow, expires_s: int) -> Item:
    entity_id, resource, usage = row
    item = {
        **keys.usage(namespace_id, entity_id, resource, window_key(usage.hour)).item,
        **index_keys(namespace_id, entity_id, resource, usage.hour),
        "entity_id": s(entity_id),
        "resource": s(resource),
        EVENTS: n(usage.events),
        "ttl": n(expires_s),
    }
    for name, amount in usage.counters.items():
        item[COUNTER + name] = n(amount * MILLI)
    return item


def decode(item: Item) -> UsageRow:
    try:
        _, _, resource, window = text(item["SK"]).split(DELIMITER)
        counters = {
            name.removeprefix(COUNTER): integer(value) // MILLI
            for name, value in item.items()
            if name.startswith(COUNTER)
        }
        hour = ms_from_iso(window) // HOUR_MS
        usage = WindowUsage(hour, counters, optional_integer(item, EVENTS) or 0)
        return UsageRow(text(item["entity_id"]), resource, usage)
    except (KeyError, ValueError) as error:
        raise damaged("usage window", item, error) from error


def resource_of(item: Item) -> str:
    """The resource in the key of an hour."""
    return text(item["SK"]).split(DELIMITER)[2]

"""Stored hours of usage, as queries read them; ``items.usage`` says how they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.dynamodb.items import keys
from zae_limiter.dynamodb.items.attributes import Item, Value, damaged, parsed, text
from zae_limiter.dynamodb.items.usage import (
    DELIMITER,
    EVENTS,
    OPEN_VALUE,
    ORIGIN_PREFIX,
    OriginHour,
    by_plain_name,
)
from zae_limiter.models.timestamps import MILLI, ms_from_iso

if TYPE_CHECKING:
    from zae_limiter.admission.usage import WindowUsage


class OpenHour(Enum):
    """Marks an origin whose hour has been announced, but not stored."""

    OPEN = "open"


OPEN: Final = OpenHour.OPEN


class UsageRow(NamedTuple):
    """All origins of one bucket in one hour."""

    entity_id: str
    resource: str
    hour: int
    origins: Mapping[str, OriginHour | OpenHour]


def decode_row(item: Item) -> UsageRow:
    """Decode a stored hour with all its origins."""
    try:
        _, _, resource, window = text(item["SK"]).split(DELIMITER)
        hour = ms_from_iso(window) // HOUR_MS
        origins = {
            name.removeprefix(ORIGIN_PREFIX): _decode(name.removeprefix(ORIGIN_PREFIX), hour, value)
            for name, value in item.items()
            if name.startswith(ORIGIN_PREFIX)
        }
        return UsageRow(text(item["entity_id"]), resource, hour, origins)
    except (KeyError, ValueError, TypeError) as error:
        raise damaged("usage window", item, error) from error


def _decode(origin: str, hour: int, value: Value) -> OriginHour | OpenHour:
    if value == OPEN_VALUE:
        return OPEN
    stored = parsed(value)
    admitted, rejected, of_children, waited, asked = stored.pop(EVENTS)
    amounts = {name: (int(first), int(second)) for name, (first, second) in stored.items()}
    tally = Tally(int(rejected), int(of_children), int(waited), dict(asked))
    return OriginHour(origin, hour, by_plain_name(amounts), int(admitted), tally)


def window_usage(hour: int, origin_hours: Iterable[OriginHour]) -> WindowUsage:
    """Add up all origins of one hour, in whole tokens."""
    from zae_limiter.admission.usage import WindowUsage  # for queries alone

    net_milli: dict[str, int] = {}
    through_milli: dict[str, int] = {}
    admitted, tally = 0, NO_TALLY
    for origin_hour in origin_hours:
        for name, (net, through_children) in origin_hour.used_milli.items():
            net_milli[name] = net_milli.get(name, 0) + net
            if through_children:
                through_milli[name] = through_milli.get(name, 0) + through_children
        admitted += origin_hour.admitted
        tally = tally.plus(origin_hour.tally)
    return WindowUsage(
        hour,
        {name: amount // MILLI for name, amount in net_milli.items()},
        admitted,
        {name: amount // MILLI for name, amount in through_milli.items()},
        tally,
    )


def hour_of(key: keys.Key) -> tuple[str, str, int]:
    """Return entity, resource and hour from the key of a row."""
    try:
        _, _, resource, window = key.sk.split(DELIMITER)
        return key.pk.partition(DELIMITER)[2], resource, ms_from_iso(window) // HOUR_MS
    except ValueError as error:
        raise damaged("usage window", key.attributes, error) from error


def resource_of(item: Item) -> str:
    """Return the resource in the key of an hour."""
    return text(item["SK"]).split(DELIMITER)[2]

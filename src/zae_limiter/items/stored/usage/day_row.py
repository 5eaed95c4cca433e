"""Usage of one bucket item on one day (UTC): a row with the hours that the item has counted.

    {ns}/ENTITY#{entity}   #USAGE#{resource}#{day}#{shard}   day: 2026-01-31
    GSI2                   {ns}/RESOURCE#{resource}#{k}      USAGE#{day}#{entity}

Days sort by time under either key, so a span of time is a range of keys. An origin is one life of
one bucket item (``items.usage.hours``).

an origin           o_{origin}       ``open`` while the bucket item may hold hours of this day, then
                                     ``closed``: the row has all of them
a finished hour     {hh}_{origin}    JSON in millitokens, of budgets in billionths: [digest,
                                     admitted, [net of each limit], [part through children],
                                     rejected, part of it by children, waited, {limit: largest
                                     rejected tokens}, shadowed, part of the rejected that named
                                     the resource as a further one, part of the admitted that are
                                     calls of another bucket, what refused]; empty parts at the end
                                     are left out. What refused: [second of the last refusal, votes,
                                     [limit, resource, entity], the same of the most frequent one if
                                     it is another]; resource and entity are left out if they are
                                     those of the row
names of limits     n_{digest}       JSON: sorted names, in the order of the amounts; of a budget
                                     name@currency
expires             ttl              seconds: the end of the day plus the retention

All writes of an hour of an origin carry the same value, and the names of limits are found by their
digest, so a repeated, late or reordered write changes nothing. An origin is announced when its
first hour of the day begins; it is never opened again. Every write sets the keys of the indexes, to
the same values: only the first one makes index entries. A credit to a deleted bucket is an hour
under the id of its write. Longer windows are not stored: they are sums of hours.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2s
from typing import Any, NamedTuple

from zae_limiter import schema
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import HourUsage
from zae_limiter.items.stored.attributes import Item, damaged, s, text
from zae_limiter.items.stored.keys import BucketId, Key, ShardId
from zae_limiter.items.stored.update import ItemUpdate
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso

DAY = 24  # hours
DAY_S = 86_400
DAY_MS = DAY * HOUR_MS
ORIGIN_PREFIX, NAMES_PREFIX = "o_", "n_"
OPEN, CLOSED = "open", "closed"
DELIMITER = "#"
_HOUR_DIGITS = 2  # an hour's attribute begins with 00 to 23
_DAY_DIGITS = len("2026-01-31")
_DIGEST_BYTES = 6  # 48 bits, to tell apart the few sets of limits that a bucket has in one day
_FIRST_DAY, _LAST_DAY = -(1969 * 365), 8000 * 366  # the years 1 to 9999 have four digits
# The parts of a stored hour after the digest, if they are empty.
_EMPTY: tuple[Any, ...] = (0, [], [], 0, 0, 0, {}, 0, 0, 0, None)

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class RowId(NamedTuple):
    """The identity of a usage row in a namespace; row ids sort by time. Days count from 1970."""

    day: int
    entity_id: str
    resource: str
    shard: int

    def shard_id(self, namespace_id: str) -> ShardId:
        return ShardId(namespace_id, self.entity_id, self.resource, self.shard)

    def key(self, namespace_id: str) -> Key:
        return row_key(self.shard_id(namespace_id), self.day)

    @classmethod
    def of(cls, key: Key) -> RowId:
        """Return the identity that the key of a row spells."""
        try:
            _, _, resource, day, shard = key.sk.split(DELIMITER)
            entity_id = key.pk.partition(DELIMITER)[2]
            return cls(ms_from_iso(day) // DAY_MS, entity_id, resource, int(shard))
        except ValueError as error:
            raise damaged("usage row", key.attributes, error) from error


class UsageRow(NamedTuple):
    """The hours of one bucket item on one day, by hour and origin, and the open origins."""

    id: RowId
    hours: Mapping[tuple[int, str], HourUsage]
    open_origins: frozenset[str] = frozenset()


def day_of(hour: int) -> int:
    """Return the day of an hour; both count from 1970."""
    return hour // DAY


@lru_cache(maxsize=256)  # most writes are about the last days
def day_key(day: int) -> str:
    """Return a day as keys spell it."""
    return iso_from_ms(min(max(day, _FIRST_DAY), _LAST_DAY) * DAY_MS)[:_DAY_DIGITS]


def expires_s(day: int, retention_days: int) -> int:
    """Return the second at which usage of a day expires; the retention begins at its end."""
    return (day + 1 + retention_days) * DAY_S


def row_key(shard_id: ShardId, day: int) -> Key:
    """Return the key of the row of a bucket item and day."""
    namespace_id, entity_id, resource, shard = shard_id
    return Key(
        schema.pk_entity(namespace_id, entity_id), schema.sk_usage(resource, day_key(day), shard)
    )


def index_keys(bucket_id: BucketId, day: int) -> Item:
    """Return a row's keys in the indexes, which never change."""
    namespace_id, entity_id, resource = bucket_id
    return {
        "GSI2PK": s(schema.gsi2_pk_resource(namespace_id, resource, entity_id)),
        "GSI2SK": s(schema.gsi2_sk_usage(day_key(day), entity_id)),
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id, entity_id)),
    }


# --- writes


def announce(shard_id: ShardId, day: int, origin: str, retention_days: int) -> ItemUpdate:
    """Announce that a bucket item counts hours of a day, so that queries look into the item."""
    update = _row_update(shard_id, day, retention_days)
    update.set_if_absent(ORIGIN_PREFIX + origin, OPEN)
    return update


def store(
    shard_id: ShardId,
    origin: str,
    hours: Sequence[HourUsage],
    retention_days: int,
    *,
    closes: bool = False,
) -> ItemUpdate:
    """Store finished hours of one origin on one day. The write is idempotent.

    With the last hour of the day it ``closes`` the origin. Otherwise that is open: the write also
    announces a row whose announcement was lost.
    """
    update = _row_update(shard_id, day_of(hours[0].hour), retention_days)
    # A client stores one hour of every bucket in each hour, a stream processor thousands in a
    # second: they differ in the names of their attributes, too.
    update.is_usual = True
    for name, value in _hour_attributes(origin, hours):
        update.set(update.open_name(name), value)
    state = update.open_name(ORIGIN_PREFIX + origin)
    if closes:
        update.set(state, CLOSED)
    else:
        update.set_if_absent(state, OPEN)
    return update


def late_credit(
    bucket_id: BucketId, write_id: str, credit: HourUsage, retention_days: int
) -> ItemUpdate:
    """Count a credit to a deleted bucket, which is negative usage.

    The write id is the origin's name, so a repeated write does not count twice.
    """
    update = _row_update(bucket_id.shard(0), day_of(credit.hour), retention_days)
    for name, value in _hour_attributes(write_id, [credit]):
        update.set(name, value)
    return update


def is_stored(row: Item, origin: str, hour: int) -> bool:
    """Return whether a row has the counts of an hour."""
    return _hour_attribute(origin, hour) in row


def _row_update(shard_id: ShardId, day: int, retention_days: int) -> ItemUpdate:
    update = ItemUpdate(row_key(shard_id, day))
    update.set_all(index_keys(shard_id.bucket_id, day))
    update.set("ttl", expires_s(day, retention_days))
    return update


def _hour_attributes(origin: str, hours: Sequence[HourUsage]) -> list[tuple[str, str]]:
    """Return the attributes of hours, then those of the names of their limits."""
    attributes, names_of = [], {}
    for usage in hours:
        names = tuple(sorted(usage.used))
        digest, encoded = _encode_names(names)
        names_of[NAMES_PREFIX + digest] = encoded
        attributes.append((_hour_attribute(origin, usage.hour), _encode_hour(usage, names, digest)))
    return [*attributes, *names_of.items()]


def _hour_attribute(origin: str, hour: int) -> str:
    return f"{hour % DAY:02}_{origin}"


def _encode_hour(usage: HourUsage, names: Sequence[str], digest: str) -> str:
    through = [usage.through_children.get(name, 0) for name in names]
    net = [usage.used[name] for name in names]
    through = through if any(through) else []
    parts = [usage.admitted, net, through, *usage.tally.stored()]
    while parts and parts[-1] == _EMPTY[len(parts) - 1]:
        parts.pop()
    return _encode([digest, *parts])


@lru_cache(maxsize=1024)  # few sets of limits differ in their names
def _encode_names(names: tuple[str, ...]) -> tuple[str, str]:
    """Return the digest of the names of limits, and the names as stored text."""
    encoded = _encode(names)
    digest = blake2s(encoded.encode(), digest_size=_DIGEST_BYTES).digest()
    return urlsafe_b64encode(digest).decode(), encoded


# --- reads


def decode_row(item: Item) -> UsageRow:
    """Decode a stored row with all its hours."""
    row_id = RowId.of(Key.of(item))
    try:
        hours, open_origins = {}, set()
        for name, value in item.items():
            if name[:_HOUR_DIGITS].isdecimal():
                origin = name[_HOUR_DIGITS + 1 :]
                hour = row_id.day * DAY + int(name[:_HOUR_DIGITS])
                hours[hour, origin] = _decode_hour(hour, text(value), item)
            elif name.startswith(ORIGIN_PREFIX) and value == s(OPEN):
                open_origins.add(name.removeprefix(ORIGIN_PREFIX))
        return UsageRow(row_id, hours, frozenset(open_origins))
    except (KeyError, ValueError, TypeError) as error:
        raise damaged("usage row", item, error) from error


def _decode_hour(hour: int, stored: str, item: Item) -> HourUsage:
    parts: list[Any]
    digest, *parts = json.loads(stored)
    parts += _EMPTY[len(parts) :]
    admitted, net, through, *tally = parts
    names = json.loads(text(item[NAMES_PREFIX + digest]))
    of_children = zip(names, through or [0] * len(net), strict=True)
    return HourUsage(
        hour,
        dict(zip(names, net, strict=True)),
        admitted,
        {name: amount for name, amount in of_children if amount},
        Tally.from_stored(tally),
    )


def resource_of(item: Item) -> str:
    """Return the resource in the key of a row."""
    return text(item["SK"]).split(DELIMITER)[2]

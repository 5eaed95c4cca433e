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
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2s
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from zae_limiter import schema
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.in_force import InForce, plain_name, usage_key
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.admission.usage import WindowUsage, whole_amounts
from zae_limiter.items.stored.attributes import Item, damaged, n, s, text
from zae_limiter.items.stored.keys import BucketId, Key, ShardId
from zae_limiter.items.stored.update_expression import UpdateExpression
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso

DAY = 24  # hours
DAY_S = 86_400
DAY_MS = DAY * HOUR_MS
ORIGIN_PREFIX, NAMES_PREFIX = "o_", "n_"
OPEN, CLOSED = s("open"), s("closed")
DELIMITER = "#"
_HOUR_DIGITS = 2  # an hour's attribute begins with 00 to 23
_DAY_DIGITS = len("2026-01-31")
_DIGEST_BYTES = 6  # 48 bits, to tell apart the few sets of limits that a bucket has in one day
_FIRST_DAY, _LAST_DAY = -(1969 * 365), 8000 * 366  # the years 1 to 9999 have four digits
# The parts of a stored hour after the digest, if they are empty.
_EMPTY: tuple[Any, ...] = (0, [], [], 0, 0, 0, {}, 0, 0, 0, None)

UsedMilli = Mapping[str, tuple[int, int]]

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class OriginHour(NamedTuple):
    """The counts of one bucket item in one hour.

    ``used_milli`` has for each limit, by its plain name, the net consumption and the part of it
    that cascaded from children. ``is_last`` says that the item counts no later hour of that day.
    """

    origin: str
    hour: int
    used_milli: UsedMilli
    admitted: int
    tally: Tally = NO_TALLY
    is_last: bool = False


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
    hours: Mapping[tuple[int, str], OriginHour]
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


def announce(shard_id: ShardId, day: int, origin: str, retention_days: int) -> UpdateExpression:
    """Announce that a bucket item counts hours of a day, so that queries look into the item."""
    update = _row_update(shard_id, day, retention_days)
    update.set_if_missing(ORIGIN_PREFIX + origin, OPEN)
    return update


def store(
    shard_id: ShardId, origin_hours: Sequence[OriginHour], retention_days: int
) -> UpdateExpression:
    """Store finished hours of one origin on one day. The write is idempotent.

    With the last hour of the day the origin is closed. Otherwise it is open: the write also
    announces a row whose announcement was lost.
    """
    first = origin_hours[0]
    update = _row_update(shard_id, day_of(first.hour), retention_days)
    for name, value in _hour_attributes(origin_hours):
        update.set(name, s(value))
    if _closes(origin_hours):
        update.set(ORIGIN_PREFIX + first.origin, CLOSED)
    else:
        update.set_if_missing(ORIGIN_PREFIX + first.origin, OPEN)
    return update


def late_credit(
    bucket_id: BucketId, hour: int, write_id: str, used_milli: UsedMilli, retention_days: int
) -> UpdateExpression:
    """Count a credit to a deleted bucket; the amounts in ``used_milli`` are negative.

    The write id is the origin's name, so a repeated write does not count twice.
    """
    update = _row_update(bucket_id.shard(0), day_of(hour), retention_days)
    credit = OriginHour(write_id, hour, by_plain_name(used_milli), 0)
    for name, value in _hour_attributes([credit]):
        update.set(name, s(value))
    return update


def is_stored(row: Item, origin_hour: OriginHour) -> bool:
    """Return whether a row has the counts of an hour."""
    return _hour_attribute(origin_hour) in row


def store_text(
    table: str,
    shard_id: ShardId,
    origin_hours: Sequence[OriginHour],
    retention_days: int,
    *,
    returns_old: bool = False,
) -> str:
    """Return the request text of ``store``, rendered once per kind and then filled in.

    Rendering costs more than the rest of the request; a client stores one hour of every bucket
    in each hour, a stream processor thousands in a second.
    """
    day, attributes = day_of(origin_hours[0].hour), _hour_attributes(origin_hours)
    names = [name for name, _ in attributes]
    names.append(ORIGIN_PREFIX + origin_hours[0].origin)
    closes = _closes(origin_hours)
    values = [text(value) for value in index_keys(shard_id.bucket_id, day).values()]
    values.append(str(expires_s(day, retention_days)))
    values += [value for _, value in attributes]
    values.append(text(CLOSED if closes else OPEN))
    kind = (table, len(names), closes, returns_old)
    form = _store_forms.get(kind)
    if form is None:
        update = store(shard_id, origin_hours, retention_days)
        form = update.text_with_gaps(table, *names, returns_old=returns_old)
        _store_forms[kind] = form
    filled = [*row_key(shard_id, day), *names, *values]
    return form % tuple(map(encode_basestring_ascii, filled))


_store_forms: dict[tuple[str, int, bool, bool], str] = {}  # a process serves few tables


def _row_update(shard_id: ShardId, day: int, retention_days: int) -> UpdateExpression:
    update = UpdateExpression(row_key(shard_id, day).attributes)
    update.set_all(index_keys(shard_id.bucket_id, day))
    update.set("ttl", n(expires_s(day, retention_days)))
    return update


def _closes(origin_hours: Sequence[OriginHour]) -> bool:
    return any(each.is_last for each in origin_hours)


def _hour_attributes(origin_hours: Sequence[OriginHour]) -> list[tuple[str, str]]:
    """Return the attributes of hours, then those of the names of their limits."""
    hours, names_of = [], {}
    for each in origin_hours:
        names = tuple(sorted(each.used_milli))
        digest, encoded = _encode_names(names)
        names_of[NAMES_PREFIX + digest] = encoded
        hours.append((_hour_attribute(each), _encode_hour(each, names, digest)))
    return [*hours, *names_of.items()]


def _hour_attribute(origin_hour: OriginHour) -> str:
    return f"{origin_hour.hour % DAY:02}_{origin_hour.origin}"


def _encode_hour(origin_hour: OriginHour, names: Sequence[str], digest: str) -> str:
    amounts = [origin_hour.used_milli[name] for name in names]
    net, through = [used for used, _ in amounts], [children for _, children in amounts]
    through = through if any(through) else []
    parts = [origin_hour.admitted, net, through, *origin_hour.tally.stored()]
    while parts and parts[-1] == _EMPTY[len(parts) - 1]:
        parts.pop()
    return _encode([digest, *parts])


@lru_cache(maxsize=1024)  # few sets of limits differ in their names
def _encode_names(names: tuple[str, ...]) -> tuple[str, str]:
    """Return the digest of the names of limits, and the names as stored text."""
    encoded = _encode(names)
    digest = blake2s(encoded.encode(), digest_size=_DIGEST_BYTES).digest()
    return urlsafe_b64encode(digest).decode(), encoded


def by_plain_name(used_milli: UsedMilli) -> dict[str, tuple[int, int]]:
    """Add up the amounts of limits with the same plain name."""
    sums: dict[str, tuple[int, int]] = {}
    for key, (net, through_children) in used_milli.items():
        before = sums.get(name := plain_name(key), (0, 0))
        sums[name] = (before[0] + net, before[1] + through_children)
    return sums


def by_usage_name(used_milli: UsedMilli, in_force: InForce) -> dict[str, tuple[int, int]]:
    """Add up amounts by stored name under the names of their usage."""
    currencies = dict(zip(in_force.keys, [each.currency for each in in_force.limits], strict=True))
    return by_plain_name(
        {usage_key(key, currencies.get(key)): used for key, used in used_milli.items()}
    )


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
                hours[hour, origin] = _decode_hour(origin, hour, text(value), item)
            elif name.startswith(ORIGIN_PREFIX) and value == OPEN:
                open_origins.add(name.removeprefix(ORIGIN_PREFIX))
        return UsageRow(row_id, hours, frozenset(open_origins))
    except (KeyError, ValueError, TypeError) as error:
        raise damaged("usage row", item, error) from error


def _decode_hour(origin: str, hour: int, stored: str, item: Item) -> OriginHour:
    parts: list[Any]
    digest, *parts = json.loads(stored)
    parts += _EMPTY[len(parts) :]
    admitted, net, through, *tally = parts
    names = json.loads(text(item[NAMES_PREFIX + digest]))
    amounts = zip(net, through or [0] * len(net), strict=True)
    used = dict(zip(names, amounts, strict=True))
    return OriginHour(origin, hour, used, admitted, Tally.from_stored(tally))


def window_usage(hour: int, origin_hours: Iterable[OriginHour]) -> WindowUsage:
    """Add up all origins of one bucket and hour."""
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
        whole_amounts(net_milli),
        admitted,
        whole_amounts(through_milli),
        tally,
    )


def resource_of(item: Item) -> str:
    """Return the resource in the key of a row."""
    return text(item["SK"]).split(DELIMITER)[2]

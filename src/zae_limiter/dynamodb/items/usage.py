"""Usage of one bucket in one hour: an item with one attribute per origin.

    {ns}/ENTITY#{entity}   #USAGE#{resource}#{hour}     hour: 2026-01-31T12, UTC
    GSI2                   {ns}/RESOURCE#{resource}#{k} USAGE#{hour}#{entity}

Hours sort by time under either key, so a span of time is a range of keys. An origin is one life of
one bucket item (``items.hours``). Its attribute ``o_{origin}`` is ``open`` while the hour may still
run in the bucket item; then it has the item's counts of that hour, as JSON text in millitokens:

    {"rpm": [net consumption, part of it through children],
     "": [admitted, rejected, part of it by children, waited, {"rpm": largest rejected tokens}]}

All writes of an hour of an origin carry the same value, so a repeated, late or reordered write
changes nothing. A credit to a deleted bucket is an origin of its own. The item expires at ``ttl``.
Longer windows are not stored: a day is the sum of its hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.in_force import plain_name
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.dynamodb.items import keys
from zae_limiter.dynamodb.items.attributes import Item, Value, n, s
from zae_limiter.dynamodb.items.keys import BucketId
from zae_limiter.dynamodb.items.update_expression import UpdateExpression
from zae_limiter.models.timestamps import iso_from_ms

ORIGIN_PREFIX = "o_"
EVENTS = ""  # no limit has an empty name
DELIMITER = "#"
HOUR_S = 3600
DAY_S = 24 * HOUR_S
_HOUR_DIGITS = len("2026-01-31T12")
FIRST_HOUR = -(1969 * 365 * 24)  # the years 1 to 9999 have four digits in ISO text
LAST_HOUR = 8000 * 366 * 24

OPEN_VALUE = s("open")  # the hour is announced, but not stored

UsedMilli = Mapping[str, tuple[int, int]]


class OriginHour(NamedTuple):
    """The counts of one bucket item in one hour.

    ``used_milli`` has for each limit, by its plain name, the net consumption and the part of it
    that cascaded from children.
    """

    origin: str
    hour: int
    used_milli: UsedMilli
    admitted: int
    tally: Tally = NO_TALLY


@lru_cache(maxsize=1024)  # most writes are about the last hours
def window_key(hour: int) -> str:
    """Return an hour since 1970 as keys spell it."""
    within = min(max(hour, FIRST_HOUR), LAST_HOUR)
    return iso_from_ms(within * HOUR_MS)[:_HOUR_DIGITS]


def expires_s(hour: int, retention_days: int) -> int:
    """Return the second at which usage of an hour expires; the retention begins at its end."""
    return (hour + 1) * HOUR_S + retention_days * DAY_S


def index_keys(namespace_id: str, entity_id: str, resource: str, hour: int) -> Item:
    """Return an hour's keys in the indexes, which never change."""
    return {
        "GSI2PK": s(schema.gsi2_pk_resource(namespace_id, resource, entity_id)),
        "GSI2SK": s(schema.gsi2_sk_usage(window_key(hour), entity_id)),
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id, entity_id)),
    }


# --- writes


def store(
    bucket_id: BucketId,
    origin_hour: OriginHour,
    expires_s: int,
    others: Iterable[OriginHour] = (),
) -> UpdateExpression:
    """Store the finished hour of an origin. The write is idempotent.

    ``others`` are more origins of the same bucket and hour.
    """
    update = _row_update(bucket_id, origin_hour.hour, expires_s)
    for each in (origin_hour, *others):
        update.set(ORIGIN_PREFIX + each.origin, _encode(each))
    return update


def is_stored(row: Item, origin: str) -> bool:
    """Return whether a row has the counts of an origin, not only its announcement."""
    return row.get(ORIGIN_PREFIX + origin, OPEN_VALUE) != OPEN_VALUE


def announce(bucket_id: BucketId, hour: int, origin: str, expires_s: int) -> UpdateExpression:
    """Announce that an hour runs in a bucket item, so that queries by resource look there."""
    update = _row_update(bucket_id, hour, expires_s)
    update.set_if_missing(ORIGIN_PREFIX + origin, OPEN_VALUE)
    return update


def late_credit(
    bucket_id: BucketId, hour: int, write_id: str, used_milli: UsedMilli, expires_s: int
) -> UpdateExpression:
    """Count a credit to a deleted bucket; the amounts in ``used_milli`` are negative.

    The write id is the origin's name, so a repeated write does not count twice.
    """
    return store(
        bucket_id, OriginHour(write_id, hour, by_plain_name(used_milli), 0, NO_TALLY), expires_s
    )


def _row_update(bucket_id: BucketId, hour: int, expires_s: int) -> UpdateExpression:
    update = UpdateExpression(_row_key(bucket_id, hour).attributes)
    update.set_all(_row_attributes(bucket_id, hour, expires_s))
    return update


def _row_key(bucket_id: BucketId, hour: int) -> keys.Key:
    return keys.usage(*bucket_id, window_key(hour))


def _row_attributes(bucket_id: BucketId, hour: int, expires_s: int) -> Item:
    """Return the attributes that every write to a row sets besides an origin."""
    return {
        **index_keys(*bucket_id, hour),
        "entity_id": s(bucket_id.entity_id),
        "resource": s(bucket_id.resource),
        "ttl": n(expires_s),
    }


def store_text(table: str, bucket_id: BucketId, origin_hour: OriginHour, expires_s: int) -> str:
    """Return the request text of ``store``, for a stream processor that sends thousands a second.

    The text is rendered once per table, then filled in.
    """
    attributes = _row_attributes(bucket_id, origin_hour.hour, expires_s)
    values = [content for value in attributes.values() for content in value.values()]
    values.append(_encode(origin_hour)["S"])
    key = _row_key(bucket_id, origin_hour.hour)
    filled = (*key, ORIGIN_PREFIX + origin_hour.origin, *values)
    return _store_form(table, bucket_id) % tuple(map(encode_basestring_ascii, filled))


def _store_form(table: str, bucket_id: BucketId) -> str:
    form = _store_forms.get(table)
    if form is None:
        _store_forms.clear()  # a process serves one table
        sample = OriginHour("sample", 0, {}, 0, NO_TALLY)
        update = store(bucket_id, sample, 0)
        form = _store_forms[table] = update.text_with_gaps(table, ORIGIN_PREFIX + sample.origin)
    return form


_store_forms: dict[str, str] = {}


def _encode(origin_hour: OriginHour) -> Value:
    """Return the counts as JSON text; the stream processor needs a third of ``json``'s time."""
    used = [
        f"{encode_basestring_ascii(name)}:[{net},{through_children}]"
        for name, (net, through_children) in origin_hour.used_milli.items()
    ]
    rejected, of_children, waited, asked = origin_hour.tally
    amounts = [f"{encode_basestring_ascii(name)}:{amount}" for name, amount in asked.items()]
    counts = f"{origin_hour.admitted},{rejected},{of_children},{waited},{{{','.join(amounts)}}}"
    used.append(f'"{EVENTS}":[{counts}]')
    return s("{" + ",".join(used) + "}")


def by_plain_name(used_milli: UsedMilli) -> dict[str, tuple[int, int]]:
    """Add up the amounts of limits with the same plain name."""
    sums: dict[str, tuple[int, int]] = {}
    for key, (net, through_children) in used_milli.items():
        before = sums.get(name := plain_name(key), (0, 0))
        sums[name] = (before[0] + net, before[1] + through_children)
    return sums

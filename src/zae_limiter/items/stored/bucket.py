"""The item of a bucket. Words on the left, stored names (their length is billed) on the right.

balance of a limit          t_<name>    millitokens, relative to the epoch
consumed by a limit         c_<name>    millitokens, net
consumed before a merge     m_<name>    by shards that were merged into this one; absent if none
parameters of a limit       p_<name>    capacity:refill:period:index in tokens and seconds; the
                                        refill is empty if it is the capacity. Of a limit on calls
                                        in flight c:slots:lease_ttl:index, and :soft behind it.
                                        Of a quota or soft rate q:index:notation. Behind the index
                                        of slots or of a quota is the number of its life,
                                        index.number, unless that is 0: wc when it began
slots that are held         x{i}_{f}    of the limit with index i, by the second f of their expiry
amounts that are held       y{i}_{k}_{f} of the quota with index i, in its window k; f is 0 if they
                                        never expire. y{i}_{k}_{f}_1 are those that children hold
top-ups of a quota          z{i}        relative to the window, as the balance is
last raised threshold       e{i}        ten times the number of the window, and its position
last exhausted window       d{i}        its number; somebody was told of a rejection in it
this is one of n shards     n
digest of all parameters    lh          indexes included; every charge requires it: balances mean
                                        nothing without. During a pause ``!`` and its end follow, so
                                        that charges of clients that do not know of it are refused
paused until                nb          milliseconds; nothing is admitted before. The first charge
                                        or debt after it removes it, and the mark in ``lh``
configuration version       cv
structural generation       g
writes                      wc
id of the last write        op          begins with the time of the write; before it a ``~`` if the
                                        write created the item or turned its hour
ids of the writes before    w1 w2 w3    newest first. A write whose id the item shows is refused, so
                                        one that is delivered again has no effect, also if up to
                                        three other writes came between
expires                     ttl         seconds

The counts by the hour, admitted acquires among them, are described in ``items.usage.hours``.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Collection, Mapping, Sized
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.admission.image import (
    HOUR_MS,
    BucketImage,
    LimitState,
    Rate,
    is_quota,
    is_slots,
    is_soft,
)
from zae_limiter.admission.rate_text import rate_of, text_of
from zae_limiter.admission.shards.tree import WHOLE, Shard, of_shard
from zae_limiter.admission.usage import HourUsage, open_hour, without_holds
from zae_limiter.admission.windows import HoldName, QuotaState, Terms
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.items.stored.attributes import Item, flag, s
from zae_limiter.items.stored.usage import hours as item_hours
from zae_limiter.items.stored.usage.hours import (
    ADMITTED,
    CHILDREN,
    CONCURRENT,
    FINISHED,
    HOUR,
    LIFE,
    ORIGIN,
    QUOTA,
    TURN_MARK,
    ItemHours,
)
from zae_limiter.items.stored.values import is_item
from zae_limiter.models.timestamps import MILLI
from zae_limiter.store_errors import ServerFault

BALANCE, CONSUMED, PARAMETERS, MERGED = "t_", "c_", "p_", "m_"
SHARDS, DIGEST, VERSION, GENERATION = "n", "lh", "cv", "g"
WRITES, WRITE_ID, TTL = "wc", "op", "ttl"
EARLIER_WRITE_IDS = ("w1", "w2", "w3")
MAX_LIMITS_WITH_EARLIER_IDS = 4  # with more, the item would exceed the 1 KB of a write unit
CASCADE, PARENT = "cascade", "parent_id"
HELD_AMOUNT = "y"  # followed by the index of the limit, the window and the second of the expiry
OF_CHILD = "_1"  # ends the name of an amount that children hold
TOPPED, MARKED, EXHAUSTED = "z", "e", "d"  # each followed by the index of the quota
HELD = "x"  # followed by the index of the limit and the second of the expiry
SOFT_SLOTS = ":soft"  # ends the parameters of slots that never reject
NOT_BEFORE = "nb"
PAUSE_MARK = "!"  # in no digest
UNSHARDED = 1
MAX_NAMES = 4096  # bounds memory; few limits differ in their names


@dataclass(slots=True)
class StoredBucket:
    """A bucket, or one shard of it, as one item holds it.

    The image is at the shard's own rates; ``rates`` are those of the whole, where they differ.
    ``absent`` names attributes whose appearance means that children count in the bucket; it is for
    ``decode``. ``rejections`` is the text about those of the running hour.
    """

    image: BucketImage
    digest: str
    hours: ItemHours
    generation: int = 0
    write_id: str = ""
    shard: Shard = WHOLE
    rates: Mapping[str, Rate] | None = None
    absent: tuple[str, ...] = ()
    rejections: str = ""

    @property
    def whole_rates(self) -> Mapping[str, Rate]:
        """Parameters of the limits of the whole bucket, by stored name."""
        if self.rates is not None:
            return self.rates
        return {key: state.rate for key, state in self.image.limits.items()}


class EntityLink(NamedTuple):
    """Parent and cascade flag of an entity, copied into its bucket items."""

    parent_id: str | None = None
    cascade: bool = False


def index_keys(namespace_id: str, entity_id: str, resource: str, shard: int = 0) -> Item:
    """Return the attributes of the indexes by resource, entity and namespace; they never change."""
    return {
        "GSI2PK": s(schema.gsi2_pk_resource(namespace_id, resource, entity_id)),
        "GSI2SK": s(schema.gsi2_sk_bucket(entity_id, shard)),
        "GSI3PK": s(schema.gsi3_pk_entity(namespace_id, entity_id)),
        "GSI3SK": s(schema.gsi3_sk_bucket(resource, shard)),
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id, entity_id)),
    }


def link_attributes(entity_link: EntityLink) -> Item:
    attributes = {CASCADE: flag(entity_link.cascade)}
    if entity_link.parent_id is not None:
        attributes[PARENT] = s(entity_link.parent_id)
    return attributes


def decode(item: Item, known: StoredBucket | None = None) -> StoredBucket:
    """Decode an item; raises IncompatibleSchemaError for a form that this version cannot read.

    ServerFault if it is no item of DynamoDB at all, but the answer of another server.

    With ``known``, an earlier state of the same item, unchanged parameters are not parsed again.
    """
    try:
        if known is not None and item[DIGEST]["S"] == known.digest:
            return _decode_again(item, known)
        return _decode(item)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        if not is_item(item):
            raise ServerFault(
                "an item in the answer has not the form of DynamoDB's; "
                "check endpoint_url and any proxy or gateway before it"
            ) from error
        raise IncompatibleSchemaError(
            f"an unknown form of bucket, {item.get('PK', {}).get('S', 'without a key')!r}",
            "items with t_, c_ and p_ attributes",
            "bring every client to one version; if none of them writes that form, replace the "
            "bucket by a full one: zae-limiter bucket reset ENTITY RESOURCE",
        ) from error


def in_full(item: Item) -> StoredBucket:
    """Decode an item with the parts that only reports need.

    Those are the consumption of shards merged into it, the hour of its last use, and the rejections
    in that hour. After a merge the last use may be that of the other shard: the write id keeps it.
    """
    bucket = decode(item)
    limits = {
        name: replace(state, consumed_milli=state.consumed_milli + merged_milli(item, name))
        for name, state in bucket.image.limits.items()
    }
    hour = max(hour_of_write(bucket.write_id), bucket.hours.hour)
    image = bucket.image._replace(limits=limits, hour=hour)
    if hour == bucket.hours.hour:
        image = image._replace(tally=item_hours.running_tally(item, bucket.hours.indexes))
    return replace(bucket, image=image)


def counted_hours(item: Item, now_ms: int | None = None) -> list[HourUsage]:
    """Return the running hour of an item, and the finished one if the item still holds it.

    What calls hold of quotas is left out of the running hour. Given a moment, only what dead calls
    hold is left out, which is what has expired by then.

    An item that another program has written counts no hours, and can still be removed.
    """
    if HOUR not in item:
        return []
    indexes = item_hours.limit_indexes_of(item)
    finished = item_hours.finished_hour(item, indexes)
    running = _running_hour(item, indexes, now_ms)
    return [running] if finished is None else [running, finished]


def _running_hour(item: Item, indexes: Mapping[str, int], now_ms: int | None) -> HourUsage:
    limits = _limits(item, indexes)
    through = {
        name: amount
        for name, amount in item_hours.through_children(item, indexes).items()
        if name in limits and not is_slots(limits[name].rate)
    }
    image = BucketImage(
        limits,
        0,
        None,
        int(item[HOUR]["N"]),
        item_hours.amount_of(item, ADMITTED),
        through_children=through,
        tally=item_hours.running_tally(item, indexes),
    )
    usage = open_hour(without_holds(_with_quotas(item, image, indexes), now_ms))
    nonzero = {name: amount for name, amount in usage.through_children.items() if amount}
    return usage._replace(through_children=nonzero)


def is_held_amount(attribute: str) -> bool:
    """Tell whether an attribute counts amounts that calls hold of a quota."""
    return attribute[:1] == HELD_AMOUNT and attribute[1:2].isdigit()


def merged_milli(item: Item, name: str) -> int:
    """Return the consumption of a limit by shards that were merged into this one."""
    return int(item[MERGED + name]["N"]) if MERGED + name in item else 0


def _decode(item: Item) -> StoredBucket:
    hours = item_hours.decode(item)
    limits = _limits(item, hours.indexes)
    bucket = StoredBucket(
        _image(item, limits),
        item[DIGEST]["S"],
        hours,
        int(item[GENERATION]["N"]),
        item[WRITE_ID]["S"],
        absent=_absent(hours),
        rejections=item_hours.rejections_text(item),
    )
    if any(is_slots(state.rate) for state in limits.values()):
        bucket = replace(bucket, image=_with_holds(item, bucket.image))
    if any(is_quota(state.rate) for state in limits.values()):
        bucket = replace(bucket, image=_with_quotas(item, bucket.image, hours.indexes))
    if NOT_BEFORE in item:
        paused = bucket.image._replace(paused_until_ms=int(item[NOT_BEFORE]["N"]))
        bucket = replace(bucket, image=paused)
    shards = int(item[SHARDS]["N"])
    return bucket if shards == UNSHARDED else _one_of(shards, bucket, item)


def _limits(item: Item, indexes: Mapping[str, int]) -> dict[str, LimitState]:
    limits = {}
    for name, value in item.items():
        if name.startswith(BALANCE):
            limit = name[2:]
            limits[limit] = LimitState(
                int(value["N"]),
                unpack(item[PARAMETERS + limit]["S"]),
                int(item[CONSUMED + limit]["N"]),
                item_hours.consumed_before(item, indexes[limit]),
                number=item_hours.life_number_of(item[PARAMETERS + limit]["S"]),
            )
    return limits


def _absent(hours: ItemHours) -> tuple[str, ...]:
    """Return the attributes whose appearance means that children have begun to count."""
    if hours.has_children:
        return ()
    return tuple([f"{CHILDREN}{index}" for index in hours.indexes.values()])


def _decode_again(item: Item, known: StoredBucket) -> StoredBucket:
    """Decode an item whose digest is the known one, so its limits are the known ones.

    Its hours are decoded only if it was turned or cleared. A full decoding takes four times as long
    as this function, and twice as long after a write that turns the hour.
    """
    hours = known.hours
    if (
        item[ORIGIN]["S"] != hours.origin
        or int(item[SHARDS]["N"]) != known.shard.n
        or int(item[GENERATION]["N"]) != known.generation
    ):
        return _decode(item)
    for name in known.absent:
        if name in item:
            return _decode(item)
    had_finished, has_finished = hours.finished is not None, FINISHED in item
    has_other_hours = int(item[HOUR]["N"]) != hours.hour or has_finished != had_finished
    if has_other_hours:
        if hours.has_children:
            return _decode(item)
        hours = item_hours.decode_without_children(item, hours)
    before = known.image
    limits, has_quotas = {}, False
    for limit, state in before.limits.items():
        of_balance, of_consumed = _names[limit]
        balance, consumed = int(item[of_balance]["N"]), int(item[of_consumed]["N"])
        counted = state.counted_milli
        if has_other_hours:
            counted = item_hours.consumed_before(item, hours.indexes[limit])
        limits[limit] = LimitState(balance, state.rate, consumed, counted, None, state.number)
        has_quotas = has_quotas or state.quota is not None
    image = _image(item, limits)
    if has_quotas:
        image = _with_quotas(item, image, hours.indexes)
    if before.holds is not None:
        image = _with_holds(item, image)
    if before.paused_until_ms is not None:  # its end is a part of the digest
        image = image._replace(paused_until_ms=before.paused_until_ms)
    return StoredBucket(
        image,
        known.digest,
        hours,
        known.generation,
        item[WRITE_ID]["S"],
        known.shard,
        known.rates,
        known.absent,
        item_hours.rejections_text(item),
    )


class AttributeNames(dict[str, tuple[str, str]]):
    """The attributes of balance and consumption by limit: put together once, and hashed once."""

    def __missing__(self, limit: str) -> tuple[str, str]:
        if len(self) >= MAX_NAMES:
            self.clear()
        names = self[limit] = BALANCE + limit, CONSUMED + limit
        return names


_names = AttributeNames()


def _image(item: Item, limits: dict[str, LimitState]) -> BucketImage:
    ttl, admitted = item.get(TTL), item.get(ADMITTED)
    return BucketImage(
        limits,
        int(item[VERSION]["N"]),
        None if ttl is None else int(ttl["N"]) * 1000,
        0,
        0 if admitted is None else int(admitted["N"]),
        0,
        int(item[WRITES]["N"]),
    )


def slot_attribute(limit_index: int, expires_ms: int) -> str:
    """Return the attribute that counts the slots that expire at a moment, a whole second."""
    return f"{HELD}{limit_index}_{expires_ms // 1000}"


def _with_holds(item: Item, image: BucketImage) -> BucketImage:
    """Add the slots that are held; a bucket with such limits has at least an empty mapping."""
    names = {
        item_hours.limit_index_of(item[PARAMETERS + name]["S"]): name
        for name, state in image.limits.items()
        if is_slots(state.rate)
    }
    holds: dict[str, dict[int, int]] = {name: {} for name in names.values()}
    for attribute, value in item.items():
        if attribute[:1] == HELD and attribute[1:2].isdigit():
            limit_index, _, seconds = attribute[1:].partition("_")
            if int(limit_index) in names:
                holds[names[int(limit_index)]][int(seconds) * 1000] = int(value["N"])
    return image._replace(holds=holds, life=item[ORIGIN]["S"])


def hold_attribute(limit_index: int, name: HoldName) -> str:
    """Return the attribute of an amount that calls hold of a quota."""
    window, expires_s, through_child = name
    of_child = OF_CHILD if through_child else ""
    return f"{HELD_AMOUNT}{limit_index}_{window}_{expires_s}{of_child}"


def _with_quotas(item: Item, image: BucketImage, indexes: Mapping[str, int]) -> BucketImage:
    """Add the state of quotas: held amounts, top-ups, marks of thresholds."""
    names = {indexes[name]: name for name, state in image.limits.items() if is_quota(state.rate)}
    holds: dict[str, dict[HoldName, int]] = {name: {} for name in names.values()}
    for attribute, value in item.items():
        if attribute[0] == HELD_AMOUNT and is_held_amount(attribute):
            index, window, expires_s, *of_child = map(int, attribute[1:].split("_"))
            if index in names:
                hold = HoldName(window, expires_s, bool(of_child))
                holds[names[index]][hold] = int(value["N"])
    limits = dict(image.limits)
    for index, name in names.items():
        others = [item.get(f"{letter}{index}") for letter in (TOPPED, MARKED, EXHAUSTED)]
        numbers = [None if each is None else int(each["N"]) for each in others]
        quota = QuotaState(holds[name], *numbers)
        limits[name] = replace(limits[name], quota=quota)
    return image._replace(limits=limits, life=item[ORIGIN]["S"])


def _one_of(shards: int, bucket: StoredBucket, item: Item) -> StoredBucket:
    """Scale a shard: its item stores the parameters of the whole bucket."""
    number = schema.parse_bucket_pk(item["PK"]["S"]).shard_id
    shard, rates = Shard(number, shards), bucket.whole_rates
    return replace(bucket, shard=shard, rates=rates, image=of_shard(bucket.image, shard))


def pack(rate: Rate, limit_index: int, number: int = 0) -> str:
    """Pack parameters as whole tokens and seconds, in which limits are defined.

    The refill is left out where it is the capacity, as it usually is: every byte is billed.
    ``number`` is that of the limit's life, which only slots and quotas have.
    """
    capacity, refill, period = (str(part // MILLI) for part in rate[:3])
    place = f"{limit_index}{LIFE}{number}" if number else limit_index
    if is_slots(rate):
        soft = SOFT_SLOTS if is_soft(rate) else ""
        return f"{CONCURRENT}{capacity}:{period}:{place}{soft}"
    if rate.terms is not None:
        return f"{QUOTA}{place}:{text_of(rate)}"
    return f"{capacity}:{'' if refill == capacity else refill}:{period}:{limit_index}"


@lru_cache(maxsize=4096)
def unpack(packed: str) -> Rate:
    if packed.startswith(QUOTA):
        return rate_of(packed.split(":", 2)[2])
    item_hours.limit_index_of(packed)  # raises for a kind of limit that this version does not know
    if item_hours.is_concurrent(packed):
        _, slots, lease_ttl = packed.split(":")[:3]
        terms = Terms(None, soft=True) if packed.endswith(SOFT_SLOTS) else None
        return Rate(int(slots) * MILLI, 0, int(lease_ttl) * MILLI, terms)
    capacity, refill, period = packed.split(":")[:3]
    return Rate(int(capacity) * MILLI, int(refill or capacity) * MILLI, int(period) * MILLI)


def limit_indexes(
    names: Collection[str], before: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return the index of each limit: the index that it has, or the lowest free one."""
    kept = {name: before[name] for name in names if name in before} if before else {}
    taken = set(kept.values())
    free = (index for index in count() if index not in taken)
    return {name: kept[name] if name in kept else next(free) for name in names}


def digest_of(
    rates: Mapping[str, Rate],
    indexes: Mapping[str, int],
    paused_until_ms: int | None = None,
    numbers: Mapping[str, int] = {},
) -> str:
    """Return a digest that changes with every parameter of every limit in the item.

    ``numbers`` are those of the lives of limits, where they are not 0. The digest also changes
    with every pause: two pauses that end at different moments have different digests, so that a
    client which knows of the first one does not end the second.
    """
    digest = _digest(
        tuple(
            sorted(
                (name, rate, indexes[name], numbers.get(name, 0)) for name, rate in rates.items()
            )
        )
    )
    return paused_digest(digest, paused_until_ms)


def paused_digest(digest: str, paused_until_ms: int | None) -> str:
    """Return a digest with another end of the pause; None for no pause."""
    of_limits = digest.partition(PAUSE_MARK)[0]
    return of_limits if paused_until_ms is None else f"{of_limits}{PAUSE_MARK}{paused_until_ms:x}"


@lru_cache(maxsize=4096)
def _digest(limits: tuple[tuple[str, Rate, int, int], ...]) -> str:
    text = "\n".join(f"{name} {pack(rate, *place)}" for name, rate, *place in limits)
    return base64.urlsafe_b64encode(hashlib.blake2s(text.encode(), digest_size=6).digest()).decode()


def ttl_seconds(expires_ms: int) -> int:
    """Round up: the item must not expire a moment too early."""
    return -(-expires_ms // 1000)


_DELIMITER = "."


def new_write_id(now_ms: int) -> str:
    """Return a random write id (os.urandom, so that forked processes differ)."""
    return f"{now_ms // 1000:x}{_DELIMITER}{os.urandom(4).hex()}"


def shows_write(item: Item | None, write_id: str) -> bool:
    """Tell whether an item shows that it was written under this id, up to three writes ago."""
    shown = () if item is None else (item.get(name) for name in (WRITE_ID, *EARLIER_WRITE_IDS))
    return {"S": write_id} in shown


def keeps_earlier_ids(limits: Sized) -> bool:
    """Tell whether an item with these limits has room for the ids of earlier writes."""
    return len(limits) <= MAX_LIMITS_WITH_EARLIER_IDS


def renewed_write_id(write_id: str) -> str:
    """Return a new id that keeps the timestamp of the last use."""
    seconds = write_id.removeprefix(TURN_MARK).partition(_DELIMITER)[0]
    return f"{seconds}{_DELIMITER}{os.urandom(4).hex()}"


def hour_of_write(write_id: str) -> int:
    """Return the hour of a write; 0 if its id has no timestamp."""
    seconds, delimiter, _ = write_id.removeprefix(TURN_MARK).partition(_DELIMITER)
    try:
        return int(seconds, 16) * 1000 // HOUR_MS if delimiter else 0
    except ValueError:
        return 0

"""A bucket's item. Words on the left, stored names (they count in the price) on the right.

balance of a limit          t_<name>    millitokens, relative to the epoch
consumed by a limit         c_<name>    millitokens, net
consumed before a merge     m_<name>    by shards that are no more; not there if none
parameters of a limit       p_<name>    capacity:refill:period in tokens and seconds
this is one of n shards     n
digest of all parameters    lh          every charge requires it: balances mean nothing without
configuration version       cv
structural generation       g
writes, admitted acquires   wc, ac
id of the last write        op          begins with its time
forgotten from then on      ttl         seconds
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.admission.image import BucketImage, LimitState, Rate
from zae_limiter.admission.shards.tree import WHOLE, Shard, of_shard
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.models.limit import MILLI
from zae_limiter.records.dynamodb.attributes import Item, flag, n, s
from zae_limiter.records.dynamodb.bucket_marks import hour_of

BALANCE, CONSUMED, PARAMETERS, MERGED = "t_", "c_", "p_", "m_"
SHARDS, DIGEST, VERSION, GENERATION = "n", "lh", "cv", "g"
WRITES, ADMITTED, OPERATION, TTL = "wc", "ac", "op", "ttl"
CASCADE, PARENT = "cascade", "parent_id"
UNSHARDED = 1


class StoredBucket(NamedTuple):
    """A bucket, or one shard of it, as one item holds it.

    The image is at the shard's own rates; ``rates`` are those of the whole, where they differ.
    """

    image: BucketImage
    digest: str
    generation: int = 0
    operation: str = ""
    shard: Shard = WHOLE
    rates: Mapping[str, Rate] | None = None

    @property
    def whole_rates(self) -> Mapping[str, Rate]:
        """The parameters of the bucket's limits, by stored name."""
        if self.rates is not None:
            return self.rates
        return {key: state.rate for key, state in self.image.limits.items()}


class Family(NamedTuple):
    """What an item repeats of its entity."""

    parent_id: str | None = None
    cascade: bool = False


def key(namespace_id: str, entity_id: str, resource: str, shard: int = 0) -> Item:
    """Where a bucket is stored."""
    return {
        "PK": s(schema.pk_bucket(namespace_id, entity_id, resource, shard)),
        "SK": s(schema.sk_state()),
    }


def index_keys(namespace_id: str, entity_id: str, resource: str, shard: int = 0) -> Item:
    """Where it is found: by resource, by entity, by namespace. They never change."""
    return {
        "GSI2PK": s(schema.gsi2_pk_resource(namespace_id, resource)),
        "GSI2SK": s(schema.gsi2_sk_bucket(entity_id, shard)),
        "GSI3PK": s(schema.gsi3_pk_entity(namespace_id, entity_id)),
        "GSI3SK": s(schema.gsi3_sk_bucket(resource, shard)),
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id)),
    }


def family_attributes(family: Family) -> Item:
    attributes = {CASCADE: flag(family.cascade)}
    if family.parent_id is not None:
        attributes[PARENT] = s(family.parent_id)
    return attributes


def decode(item: Item, known: StoredBucket | None = None) -> StoredBucket:
    """The bucket of an item; raises IncompatibleSchemaError for one this version cannot read.

    What is ``known`` of the same item saves reading the parameters again if they have not changed.
    """
    try:
        again = None if known is None else _decode_again(item, known)
        return _decode(item) if again is None else again
    except (KeyError, ValueError, TypeError) as error:
        raise IncompatibleSchemaError(
            "an unknown form of bucket",
            "t_, c_ and p_ attributes",
            "bring every client to one version",
        ) from error


def in_full(item: Item) -> StoredBucket:
    """The bucket of an item, with all that is shown of it and not needed to write to it.

    That is what was consumed by shards that were merged into it, and the hour of its last use.
    """
    bucket = decode(item)
    limits = {
        name: state._replace(consumed_milli=state.consumed_milli + merged_milli(item, name))
        for name, state in bucket.image.limits.items()
    }
    hour = hour_of(bucket.operation)
    return bucket._replace(image=bucket.image._replace(limits=limits, window_hour=hour))


def merged_milli(item: Item, name: str) -> int:
    """What shards had consumed of a limit that were merged into this one."""
    return int(item[MERGED + name]["N"]) if MERGED + name in item else 0


def _decode(item: Item) -> StoredBucket:
    limits = {}
    for name, value in item.items():
        if name.startswith(BALANCE):
            limit = name[2:]
            limits[limit] = LimitState(
                int(value["N"]),
                unpack(item[PARAMETERS + limit]["S"]),
                int(item[CONSUMED + limit]["N"]),
            )
    mark, generation = item[OPERATION]["S"], int(item[GENERATION]["N"])
    bucket = StoredBucket(_image(item, limits), item[DIGEST]["S"], generation, mark)
    shards = int(item[SHARDS]["N"])
    return bucket if shards == UNSHARDED else _one_of(shards, bucket, item)


def _decode_again(item: Item, known: StoredBucket) -> StoredBucket | None:
    """None unless size and limits are as known."""
    before, digest, _, _, shard, rates = known
    if item[DIGEST]["S"] != digest or int(item[SHARDS]["N"]) != shard.n:
        return None
    limits = {}
    for limit, (_, rate, _, _) in before.limits.items():
        balance, consumed = item[BALANCE + limit]["N"], item[CONSUMED + limit]["N"]
        limits[limit] = LimitState(int(balance), rate, int(consumed))
    mark, generation = item[OPERATION]["S"], int(item[GENERATION]["N"])
    return StoredBucket(_image(item, limits), digest, generation, mark, shard, rates)


def _image(item: Item, limits: dict[str, LimitState]) -> BucketImage:
    ttl = item.get(TTL)
    return BucketImage(
        limits,
        int(item[VERSION]["N"]),
        None if ttl is None else int(ttl["N"]) * 1000,
        0,
        int(item[ADMITTED]["N"]),
        0,
        int(item[WRITES]["N"]),
    )


def _one_of(shards: int, bucket: StoredBucket, item: Item) -> StoredBucket:
    """A shard: what is stored are the parameters of the whole."""
    number = schema.parse_bucket_pk(item["PK"]["S"]).shard_id
    shard, rates = Shard(number, shards), bucket.whole_rates
    return bucket._replace(shard=shard, rates=rates, image=of_shard(bucket.image, shard))


def pack(rate: Rate) -> str:
    """In whole tokens and seconds, as limits are made."""
    return ":".join([str(part // MILLI) for part in rate])


@lru_cache(maxsize=4096)
def unpack(packed: str) -> Rate:
    capacity, refill, period = packed.split(":")
    return Rate(int(capacity) * MILLI, int(refill) * MILLI, int(period) * MILLI)


def digest_of(rates: Mapping[str, Rate]) -> str:
    """Changes with every parameter of every limit in the item."""
    return _digest(tuple(sorted(rates.items())))


@lru_cache(maxsize=4096)
def _digest(rates: tuple[tuple[str, Rate], ...]) -> str:
    text = "\n".join(f"{name} {pack(rate)}" for name, rate in rates)
    return base64.urlsafe_b64encode(hashlib.blake2s(text.encode(), digest_size=6).digest()).decode()


def ttl_seconds(expires_ms: int) -> int:
    """Not a moment too early."""
    return -(-expires_ms // 1000)


def ttl_value(expires_ms: int) -> dict[str, str]:
    return n(ttl_seconds(expires_ms))

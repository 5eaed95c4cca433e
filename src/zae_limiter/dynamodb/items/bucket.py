"""The item of a bucket. Words on the left, stored names (their length is billed) on the right.

balance of a limit          t_<name>    millitokens, relative to the epoch
consumed by a limit         c_<name>    millitokens, net
consumed before a merge     m_<name>    by shards that were merged into this one; absent if none
parameters of a limit       p_<name>    capacity:refill:period in tokens and seconds
this is one of n shards     n
digest of all parameters    lh          every charge requires it: balances mean nothing without
configuration version       cv
structural generation       g
writes, admitted acquires   wc, ac
id of the last write        op          begins with the time of the write
expires                     ttl         seconds
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.admission.image import HOUR_MS, BucketImage, LimitState, Rate
from zae_limiter.admission.shards.tree import WHOLE, Shard, of_shard
from zae_limiter.dynamodb.items.attributes import Item, flag, n, s
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.models.limit import MILLI
from zae_limiter.transport.errors import ServerFault
from zae_limiter.transport.responses import is_item

BALANCE, CONSUMED, PARAMETERS, MERGED = "t_", "c_", "p_", "m_"
SHARDS, DIGEST, VERSION, GENERATION = "n", "lh", "cv", "g"
WRITES, ADMITTED, WRITE_ID, TTL = "wc", "ac", "op", "ttl"
CASCADE, PARENT = "cascade", "parent_id"
UNSHARDED = 1


class BucketId(NamedTuple):
    """Identify one bucket."""

    namespace_id: str
    entity_id: str
    resource: str

    def shard(self, number: int) -> ShardId:
        return ShardId(*self, number)


class ShardId(NamedTuple):
    """Identify one item of a bucket. Shard 0 always exists; it is all of an unsplit bucket."""

    namespace_id: str
    entity_id: str
    resource: str
    number: int

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(*self[:3])


class StoredBucket(NamedTuple):
    """A bucket, or one shard of it, as one item holds it.

    The image is at the shard's own rates; ``rates`` are those of the whole, where they differ.
    """

    image: BucketImage
    digest: str
    generation: int = 0
    write_id: str = ""
    shard: Shard = WHOLE
    rates: Mapping[str, Rate] | None = None

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


def key(namespace_id: str, entity_id: str, resource: str, shard: int = 0) -> Item:
    """Return the key attributes of a bucket item."""
    return {
        "PK": s(schema.pk_bucket(namespace_id, entity_id, resource, shard)),
        "SK": s(schema.sk_state()),
    }


def index_keys(namespace_id: str, entity_id: str, resource: str, shard: int = 0) -> Item:
    """Return the attributes of the indexes by resource, entity and namespace; they never change."""
    return {
        "GSI2PK": s(schema.gsi2_pk_resource(namespace_id, resource)),
        "GSI2SK": s(schema.gsi2_sk_bucket(entity_id, shard)),
        "GSI3PK": s(schema.gsi3_pk_entity(namespace_id, entity_id)),
        "GSI3SK": s(schema.gsi3_sk_bucket(resource, shard)),
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id)),
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
            "an unknown form of bucket",
            "t_, c_ and p_ attributes",
            "bring every client to one version",
        ) from error


def in_full(item: Item) -> StoredBucket:
    """Decode an item with what only reports need.

    That is the consumption of shards that were merged into it, and the hour of its last use.
    """
    bucket = decode(item)
    limits = {
        name: state._replace(consumed_milli=state.consumed_milli + merged_milli(item, name))
        for name, state in bucket.image.limits.items()
    }
    hour = hour_of_write(bucket.write_id)
    return bucket._replace(image=bucket.image._replace(limits=limits, window_hour=hour))


def merged_milli(item: Item, name: str) -> int:
    """Return what merged shards had consumed of a limit."""
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
    write_id, generation = item[WRITE_ID]["S"], int(item[GENERATION]["N"])
    bucket = StoredBucket(_image(item, limits), item[DIGEST]["S"], generation, write_id)
    shards = int(item[SHARDS]["N"])
    return bucket if shards == UNSHARDED else _one_of(shards, bucket, item)


def _decode_again(item: Item, known: StoredBucket) -> StoredBucket:
    """Decode an item whose digest is the known one."""
    before, digest, _, _, shard, rates = known
    if int(item[SHARDS]["N"]) != shard.n:
        return _decode(item)
    limits = {}
    for limit, (_, rate, _, _) in before.limits.items():
        balance, consumed = item[BALANCE + limit]["N"], item[CONSUMED + limit]["N"]
        limits[limit] = LimitState(int(balance), rate, int(consumed))
    write_id, generation = item[WRITE_ID]["S"], int(item[GENERATION]["N"])
    return StoredBucket(_image(item, limits), digest, generation, write_id, shard, rates)


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
    """Scale a shard: its item stores the parameters of the whole bucket."""
    number = schema.parse_bucket_pk(item["PK"]["S"]).shard_id
    shard, rates = Shard(number, shards), bucket.whole_rates
    return bucket._replace(shard=shard, rates=rates, image=of_shard(bucket.image, shard))


def pack(rate: Rate) -> str:
    """Pack parameters as whole tokens and seconds, in which limits are defined."""
    return ":".join([str(part // MILLI) for part in rate])


@lru_cache(maxsize=4096)
def unpack(packed: str) -> Rate:
    capacity, refill, period = packed.split(":")
    return Rate(int(capacity) * MILLI, int(refill) * MILLI, int(period) * MILLI)


def digest_of(rates: Mapping[str, Rate]) -> str:
    """Return a digest that changes with every parameter of every limit in the item."""
    return _digest(tuple(sorted(rates.items())))


@lru_cache(maxsize=4096)
def _digest(rates: tuple[tuple[str, Rate], ...]) -> str:
    text = "\n".join(f"{name} {pack(rate)}" for name, rate in rates)
    return base64.urlsafe_b64encode(hashlib.blake2s(text.encode(), digest_size=6).digest()).decode()


def ttl_seconds(expires_ms: int) -> int:
    """Round up: the item must not expire a moment too early."""
    return -(-expires_ms // 1000)


def ttl_value(expires_ms: int) -> dict[str, str]:
    return n(ttl_seconds(expires_ms))


_DELIMITER = "."


def new_write_id(now_ms: int) -> str:
    """Of one write alone; from the system's chance, so that forked processes differ."""
    return f"{now_ms // 1000:x}{_DELIMITER}{os.urandom(4).hex()}"


def renewed_write_id(write_id: str) -> str:
    """Of another write that is no use of the bucket: it keeps the time of the last one."""
    return f"{write_id.partition(_DELIMITER)[0]}{_DELIMITER}{os.urandom(4).hex()}"


def hour_of_write(write_id: str) -> int:
    """The hour of the write; 0 if the write_id does not tell."""
    seconds, delimiter, _ = write_id.partition(_DELIMITER)
    try:
        return int(seconds, 16) * 1000 // HOUR_MS if delimiter else 0
    except ValueError:
        return 0

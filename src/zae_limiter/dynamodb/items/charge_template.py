"""The request text of a charge, from a template that is rendered once per kind of charge.

Rendering an UpdateItem costs more than anything else that is done for it. Charges of one kind (the
same limits, each in the same branch, the hour in the same form) differ in their values alone:
``bucket_updates`` renders the first one, and the others only fill in their values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from zae_limiter.admission.moves import Move
from zae_limiter.admission.slots import SlotWrite
from zae_limiter.concurrency.bounded import BoundedDict
from zae_limiter.dynamodb.items import bucket as stored
from zae_limiter.dynamodb.items.attributes import Item, n
from zae_limiter.dynamodb.items.bucket import ShardId, StoredBucket
from zae_limiter.dynamodb.items.bucket_updates import (
    WriteTrailer,
    bucket_update,
    end_pause,
    require_last,
    require_life,
    require_same,
    write_slots,
)
from zae_limiter.dynamodb.items.hour_updates import HourCounts, count, kind_of, values_of
from zae_limiter.dynamodb.items.update_expression import UpdateExpression

MAX_TEMPLATES = 4096  # bounds memory; a kind is a set of limits and the branch of each
_encode = json.JSONEncoder(separators=(",", ":")).encode


# A request text with gaps, by its kind.
_templates: BoundedDict[tuple[object, ...], str] = BoundedDict(MAX_TEMPLATES)


class TemplatedCharge:
    """Moves under the condition that the bucket still has the shards and limits of ``bucket``.

    ``version`` becomes the bucket's configuration version; 0 leaves that alone. ``counts`` is
    None for a write that counts nothing by the hour but what is in its moves and trailer. A write
    with ``slot_writes`` is rendered anew each time: the attributes that it names change with time.
    So is one that removes a pause which is over (``ends_pause``): there is one after each.
    """

    __slots__ = (
        "_bucket",
        "_counts",
        "_moves",
        "_shard_id",
        "_trailer",
        "_version",
        "ends_pause",
        "slot_writes",
    )

    def __init__(
        self,
        shard_id: ShardId,
        moves: Sequence[Move],
        trailer: WriteTrailer,
        bucket: StoredBucket,
        version: int,
        counts: HourCounts | None = None,
    ) -> None:
        self._shard_id = shard_id
        self._moves = moves
        self._trailer = trailer
        self._bucket = bucket
        self._version = version
        self._counts = counts
        self.slot_writes: Sequence[SlotWrite] = ()
        self.ends_pause = False

    @property
    def key(self) -> Item:
        return stored.key(*self._shard_id)

    def update(self) -> UpdateExpression:
        """Render the write clause by clause."""
        update, bucket = bucket_update(self.key, self._moves, self._trailer), self._bucket
        require_same(update, bucket)
        if self._version:
            update.set(stored.VERSION, n(self._version))
        if self.ends_pause:
            bucket = end_pause(update, bucket)
        if self._counts is not None:
            count(update, bucket, self._counts)
        if self.slot_writes:
            write_slots(update, self.slot_writes, bucket.hours.indexes)
            if any(write.removed for write in self.slot_writes):
                require_life(update, bucket)
        return update

    def guarded(self) -> UpdateExpression:
        """Render the write under the condition that no other write came since ``bucket``."""
        update = self.update()
        require_last(update, self._bucket.write_id)
        return update

    def text(self, table: str) -> str:
        """Return the body of the request."""
        if self.slot_writes or self.ends_pause:
            return self.update().text(table)
        write_id, admitted, expires_ms, keeps = self._trailer
        bucket, version, counts = self._bucket, self._version, self._counts
        ttl = None if keeps or expires_ms is None else stored.ttl_seconds(expires_ms)
        kind: list[object] = [table, admitted == 0, ttl is None, keeps, version == 0]
        values: list[object] = [_partition(*self._shard_id)]
        for move in self._moves:
            key, low, high, add, put, consumed = move
            if put is None and add and consumed and low is not None and high is not None:
                kind.append(key)  # alone: the usual move
                values += (low, high, add, consumed)
            else:
                kind.append((key, low is None, high is None, put is None, add == 0, consumed == 0))
                values += _values_of(move)
        values += (write_id, 1)
        if admitted:
            values.append(admitted)
        if ttl is not None:
            values.append(ttl)
        values += (bucket.shard.n, bucket.digest)
        if version:
            values.append(version)
        if counts is not None:
            kind += kind_of(bucket, counts)
            values += values_of(bucket, counts)
        template = _templates.get(tuple(kind)) or self._new_template(tuple(kind), table)
        return template % tuple(values)

    def _new_template(self, kind: tuple[object, ...], table: str) -> str:
        template = _with_gaps(self.update(), table)
        _templates.put(kind, template)
        return template


def _values_of(move: Move) -> list[int]:
    """Return the values of a move, in the order of their placeholders."""
    changed = move.add or None if move.put is None else move.put
    values = (move.low, move.high, changed, move.consumed_milli or None)
    return [value for value in values if value is not None]


def _with_gaps(update: UpdateExpression, table: str) -> str:
    """Return the request text with a gap for the partition key and for each value."""
    body = {"TableName": table, **update.body()}
    values = body.pop("ExpressionAttributeValues")
    key = body.pop("Key")
    rest = _encode(body).replace("%", "%%")
    gaps = ",".join(f'"{name}":{{"{kind}":"%s"}}' for name, (kind,) in values.items())
    return (
        f'{{"Key":{{"PK":{{"S":%s}},"SK":{_encode(key["SK"])}}},'
        f'"ExpressionAttributeValues":{{{gaps}}},{rest[1:]}'
    )


@lru_cache(maxsize=8192)
def _partition(namespace_id: str, entity_id: str, resource: str, shard: int) -> str:
    """Return the partition key of the item as JSON."""
    return _encode(stored.key(namespace_id, entity_id, resource, shard)["PK"]["S"])

"""The request text of a charge, from a template that is rendered once per kind of charge.

Rendering an UpdateItem costs more than anything else that is done for it. Charges of one kind (the
same limits, each in the same branch, the hour in the same form) differ in their values alone:
``bucket_updates`` renders the first one, and the others only fill in their values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from zae_limiter.admission.moves import Move
from zae_limiter.admission.quotas import HoldWrite
from zae_limiter.admission.slots import SlotWrite
from zae_limiter.concurrency.bounded import BoundedDict
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored.attributes import Item, n
from zae_limiter.items.stored.bucket import ShardId, StoredBucket
from zae_limiter.items.stored.bucket_updates import (
    WriteTrailer,
    bucket_update,
    end_pause,
    require_last,
    require_life,
    require_same,
    write_holds,
    write_slots,
)
from zae_limiter.items.stored.update_expression import UpdateExpression
from zae_limiter.items.stored.usage.clauses import HourCounts, count, kind_of, values_of

MAX_TEMPLATES = 4096  # bounds memory; a kind is a set of limits and the branch of each
_encode = json.JSONEncoder(separators=(",", ":")).encode


# A request text with gaps, by its kind.
_templates: BoundedDict[tuple[object, ...], str] = BoundedDict(MAX_TEMPLATES)


@dataclass(slots=True)
class TemplatedCharge:
    """Moves under the condition that the bucket still has the shards and limits of ``bucket``.

    ``version`` becomes the bucket's configuration version; 0 leaves the version alone. ``counts``
    is None for a write that counts nothing by the hour except its moves and its trailer. A write
    with ``slot_writes`` or ``hold_writes`` is rendered anew each time, since the attributes that it
    names change with time. So is a write that removes a pause which is over (``ends_pause``): there
    is one per pause.
    """

    shard_id: ShardId
    moves: Sequence[Move]
    trailer: WriteTrailer
    bucket: StoredBucket
    version: int
    counts: HourCounts | None = None
    slot_writes: Sequence[SlotWrite] = ()
    ends_pause: bool = False
    hold_writes: Sequence[HoldWrite] = ()

    @property
    def key(self) -> Item:
        return stored.key(*self.shard_id)

    def update(self) -> UpdateExpression:
        """Render the write clause by clause."""
        update, bucket = bucket_update(self.key, self.moves, self.trailer), self.bucket
        require_same(update, bucket)
        if self.version:
            update.set(stored.VERSION, n(self.version))
        if self.ends_pause:
            bucket = end_pause(update, bucket)
        if self.counts is not None:
            count(update, bucket, self.counts)
        if self.slot_writes:
            write_slots(update, self.slot_writes, bucket.hours.indexes)
            if any(write.removed for write in self.slot_writes):
                require_life(update, bucket)
        if self.hold_writes:
            write_holds(update, self.hold_writes, bucket.hours.indexes)
            if any(write.removed for write in self.hold_writes):
                require_life(update, bucket)
        return update

    def guarded(self) -> UpdateExpression:
        """Render the write under the condition that no other write came since ``bucket``."""
        update = self.update()
        require_last(update, self.bucket.write_id)
        return update

    def text(self, table: str) -> str:
        """Return the body of the request.

        The values are in the order in which ``update`` names them; change both together.
        """
        if self.slot_writes or self.hold_writes or self.ends_pause:
            return self.update().text(table)
        bucket, trailer, version, counts = self.bucket, self.trailer, self.version, self.counts
        kind: list[object] = [
            table,
            trailer.admitted == 0,
            trailer.keeps,
            trailer.keeps_ids,
            version == 0,
        ]
        values: list[object] = [_partition(*self.shard_id)]
        for move in self.moves:
            low, high, put, consumed = move.low, move.high, move.put, move.consumed_milli
            change = move.add if put is None else put
            has_change = put is not None or change != 0
            kind += (move.key, low is None, high is None, put is None, has_change, consumed == 0)
            if low is not None:
                values.append(low)
            if high is not None:
                values.append(high)
            if has_change:
                values.append(change)
            if consumed:
                values.append(consumed)
        values += (trailer.write_id, 1)  # 1 is added to the count of writes
        if trailer.admitted:
            values.append(trailer.admitted)
        if not trailer.keeps:
            kind.append(trailer.expires_ms is None)
            if trailer.expires_ms is not None:
                values.append(stored.ttl_seconds(trailer.expires_ms))
        values += (bucket.shard.n, bucket.digest)
        if version:
            values.append(version)
        if counts is not None:
            kind += kind_of(bucket, counts)
            values += values_of(bucket, counts)
        template = _templates.get(tuple(kind))
        if template is None:
            template = _with_gaps(self.update(), table)
            _templates.put(tuple(kind), template)
        return template % tuple(values)


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

"""The text of the usual write to a bucket, from a form that is made once for all of its kind.

Spelling out a write takes longer than anything else that is done for it. Writes of one kind (the
same limits, each in the same branch) differ in their values alone, so the form is spelled by
``bucket_writes`` the first time, and after that only filled in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from zae_limiter.admission.moves import Move
from zae_limiter.records.dynamodb import bucket_item as stored
from zae_limiter.records.dynamodb.attributes import Item, n
from zae_limiter.records.dynamodb.bucket_item import StoredBucket
from zae_limiter.records.dynamodb.bucket_writes import (
    Stamp,
    bucket_update,
    require_last,
    require_same,
)
from zae_limiter.records.dynamodb.update import Update

MOST_FORMS = 4096
_encode = json.JSONEncoder(separators=(",", ":")).encode


class _Form(NamedTuple):
    """A text with gaps, and which values go into them."""

    text: str
    pick: Callable[[list[object]], tuple[object, ...]]


_forms: dict[tuple[object, ...], _Form] = {}


class UsualWrite:
    """Moves under the condition that size and limits of the bucket are as known.

    ``version`` is what the bucket is to remember as its configuration; 0 leaves that alone.
    """

    __slots__ = ("_bucket", "_moves", "_spot", "_stamp", "_version")

    def __init__(
        self,
        spot: tuple[str, str, str, int],
        moves: Sequence[Move],
        stamp: Stamp,
        bucket: StoredBucket,
        version: int,
    ) -> None:
        self._spot = spot
        self._moves = moves
        self._stamp = stamp
        self._bucket = bucket
        self._version = version

    @property
    def key(self) -> Item:
        """Where the item is."""
        return stored.key(*self._spot)

    def update(self) -> Update:
        """Spelled out, for whoever has something to add."""
        update = bucket_update(self.key, self._moves, self._stamp)
        require_same(update, self._bucket)
        if self._version:
            update.set(stored.VERSION, n(self._version))
        return update

    def guarded(self) -> Update:
        """As long as nobody has written since the bucket was seen: that may be repeated."""
        update = self.update()
        require_last(update, self._bucket.operation)
        return update

    def text(self, table: str) -> str:
        """The body of the request."""
        operation, admitted, expires_ms, keeps = self._stamp
        bucket, version = self._bucket, self._version
        ttl = None if keeps or expires_ms is None else stored.ttl_seconds(expires_ms)
        kind: list[object] = [table, admitted == 0, ttl is None, keeps, version == 0]
        values: list[object] = [_partition(*self._spot)]
        for move in self._moves:
            key, low, high, add, put, consumed = move
            kind += (key, low is None, high is None, put is None, add == 0, consumed == 0)
            values += move
        values += (operation, 1, admitted, ttl, bucket.shard.n, bucket.digest, version)
        form = _forms.get(tuple(kind)) or self._new_form(tuple(kind), table)
        text: str = form.text % form.pick(values)
        return text

    def _new_form(self, kind: tuple[object, ...], table: str) -> _Form:
        if len(_forms) >= MOST_FORMS:
            _forms.clear()
        form = _forms[kind] = _Form(_spelled(self.update(), table), itemgetter(*self._used()))
        return form

    def _used(self) -> list[int]:
        """Which of the values of ``text`` are needed, in the order in which ``update`` comes by."""
        used, start = [0], 1
        for _, low, high, add, put, consumed in self._moves:
            changed = 4 if put is not None else 3 if add else None
            found = (low is not None and 1, high is not None and 2, changed, consumed != 0 and 5)
            used += [start + place for place in found if place]
            start += len(Move._fields)
        stamp = self._stamp
        sets_ttl = not stamp.keeps and stamp.expires_ms is not None
        places = (True, True, stamp.admitted, sets_ttl, True, True, self._version)
        return used + [start + place for place, needed in enumerate(places) if needed]


def _spelled(update: Update, table: str) -> str:
    """The text with a gap for the key and for each value."""
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
    """The item's partition key, in quotes."""
    return _encode(stored.key(namespace_id, entity_id, resource, shard)["PK"]["S"])

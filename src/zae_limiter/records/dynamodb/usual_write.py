"""The text of the usual write to a bucket, from a form that is made once for all of its kind.

Spelling out a write takes longer than anything else that is done for it. Writes of one kind (the
same limits, each in the same branch) differ in their values alone, so the form is spelled by
``bucket_writes`` the first time, and after that only filled in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from zae_limiter.admission.moves import Move
from zae_limiter.records.dynamodb import bucket_item as stored
from zae_limiter.records.dynamodb.attributes import Item, n
from zae_limiter.records.dynamodb.bucket_item import StoredBucket
from zae_limiter.records.dynamodb.bucket_writes import Stamp, bucket_update, require_same
from zae_limiter.records.dynamodb.update import Update

MOST_FORMS = 4096
_encode = json.JSONEncoder(separators=(",", ":")).encode
_forms: dict[tuple[object, ...], str] = {}


class UsualWrite:
    """Moves under the condition that size and limits of the bucket are as known.

    ``version`` is what the bucket is to remember as its configuration; 0 leaves that alone.
    """

    __slots__ = ("_bucket", "_moves", "_stamp", "_version", "key")

    def __init__(
        self, key: Item, moves: Sequence[Move], stamp: Stamp, bucket: StoredBucket, version: int
    ) -> None:
        self.key = key
        self._moves = moves
        self._stamp = stamp
        self._bucket = bucket
        self._version = version

    def update(self) -> Update:
        """Spelled out, for whoever has something to add."""
        update = bucket_update(self.key, self._moves, self._stamp)
        require_same(update, self._bucket)
        if self._version:
            update.set(stored.VERSION, n(self._version))
        return update

    def text(self, table: str) -> str:
        """The body of the request."""
        kind = self._kind(table)
        form = _forms.get(kind)
        if form is None:
            if len(_forms) >= MOST_FORMS:
                _forms.clear()
            form = _forms[kind] = _form(self.update(), table)
        return form % (_quoted(self.key["PK"]["S"]), *self._values())

    def _kind(self, table: str) -> tuple[object, ...]:
        """All that the text depends on besides the values."""
        stamp = self._stamp
        kind: list[object] = [
            table,
            stamp.admitted == 0,
            stamp.keeps or stamp.expires_ms is None,
            stamp.keeps,
            self._version == 0,
        ]
        for key, low, high, add, put, consumed in self._moves:
            kind += (key, low is None, high is None, put is None, add == 0, consumed == 0)
        return tuple(kind)

    def _values(self) -> list[object]:
        """In the order in which ``update`` comes by them."""
        values: list[object] = []
        for _, low, high, add, put, consumed in self._moves:
            if low is not None:
                values.append(low)
            if high is not None:
                values.append(high)
            if put is not None:
                values.append(put)
            elif add:
                values.append(add)
            if consumed:
                values.append(consumed)
        stamp, bucket = self._stamp, self._bucket
        values += (stamp.operation, 1)
        if stamp.admitted:
            values.append(stamp.admitted)
        if not stamp.keeps and stamp.expires_ms is not None:
            values.append(stored.ttl_seconds(stamp.expires_ms))
        values += (bucket.shard.n, bucket.digest)
        if self._version:
            values.append(self._version)
        return values


def _form(update: Update, table: str) -> str:
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


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return _encode(text)

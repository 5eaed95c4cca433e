"""Nothing is admitted from a paused bucket, recomputed from the writes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.dynamodb.model.expressions import Item
from tests.support.dynamodb.model.ledger import Bucket, Wrong, bucket_of, stamp_s
from tests.support.dynamodb.model.table import Change


class PauseCheck:
    """Follows the pauses of whole buckets: a split, merge or change of limits must not end one."""

    def __init__(self) -> None:
        self.pauses = self.ended = 0
        self._until_ms: dict[Bucket, int] = {}
        self._shards: dict[Bucket, set[str]] = {}
        self._lifting: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def lifting(self, entity: str, resource: str) -> Iterator[None]:
        """Let the pauses of a bucket end before their time, those that come meanwhile, too."""
        for bucket in [each for each in self._until_ms if each[1:] == (entity, resource)]:
            del self._until_ms[bucket]
        self._lifting[entity, resource] += 1
        try:
            yield
        finally:
            self._lifting[entity, resource] -= 1

    def follow(self, changes: list[Change]) -> None:
        for change in changes:
            bucket = bucket_of(change.key)
            if bucket is None:
                continue
            live = self._shards.setdefault(bucket, set())
            if change.new is None:
                live.discard(change.key[0])
                self._removed(bucket, change, is_last=not live)
                continue
            live.add(change.key[0])
            self._follow(bucket, change.old, change.new)

    def _removed(self, bucket: Bucket, change: Change, *, is_last: bool) -> None:
        if not is_last:
            return
        until_ms = self._until_ms.pop(bucket, 0)
        if change.by_ttl and change.at_s * 1000 < until_ms:
            raise Wrong(f"{bucket} expires during its pause")

    def _follow(self, bucket: Bucket, old: Item | None, new: Item) -> None:
        before_ms, until_ms = paused_ms(old), paused_ms(new)
        if mark_of(new) != (f"{until_ms:x}" if until_ms else ""):
            raise Wrong(f"{bucket}: the digest {new['lh']} is not that of a pause until {until_ms}")
        if until_ms > max(before_ms, self._until_ms.get(bucket, 0)):
            self.pauses += 1
            if not self._lifting[bucket[1:]]:
                self._until_ms[bucket] = until_ms
        self.ended += before_ms > until_ms
        paused_until_ms = max(before_ms, self._until_ms.get(bucket, 0))
        latest_ms = (stamp_s(new["op"]["S"]) + 1) * 1000  # the id tells the stamp to the second
        if admitted(old, new) > 0 and latest_ms <= paused_until_ms:
            raise Wrong(f"{bucket} admits at {new['op']['S']}, paused until {paused_until_ms}")
        if before_ms > until_ms and latest_ms > paused_until_ms:
            self._until_ms.pop(
                bucket, None
            )  # over for all clients, also if their clocks are behind


def paused_ms(item: Item | None) -> int:
    return int(item["nb"]["N"]) if item is not None and "nb" in item else 0


def mark_of(item: Item) -> str:
    return item["lh"]["S"].partition("!")[2]  # type: ignore[no-any-return]


def admitted(old: Item | None, new: Item) -> int:
    """Return how many acquires a write has admitted, net of those that it has taken back."""
    count = _count(new)
    if old is None or (old.get("o"), old.get("h")) != (new.get("o"), new.get("h")):
        return count  # of the hour that it has begun
    return count - _count(old)


def _count(item: Item) -> int:
    return int(item["ac"]["N"]) if "ac" in item else 0

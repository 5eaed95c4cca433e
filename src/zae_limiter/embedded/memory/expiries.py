"""When buckets in memory expire."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from zae_limiter.embedded.memory.partitioned import Partitioned

if TYPE_CHECKING:
    from zae_limiter.embedded.memory.spaces import Journal

FAR_BITS = 22  # 2**22 ms: what expires after the next multiple of 70 minutes is noted for that
SLOT_BITS = 12  # 2**12 ms: what expires earlier is noted for the end of its 4 seconds
TICK_BITS = 4  # 2**4 ms; the 256 ticks of a slot are integers that Python does not copy
LAST_TICK = 2 ** (SLOT_BITS - TICK_BITS) - 1
SCANNED = 512  # notes of the slot that has begun, looked through every time: about 20 µs

BucketKey = tuple[str, str, str]  # namespace, entity, resource


class Expiries:
    """Notes of when to look at which bucket, in slots of seconds or, if that is far off, hours.

    Every bucket that expires has a note in a slot that ends by then. Earlier notes of it may
    remain: whether a bucket has expired is for its row to say. A heap would be exact, but the
    garbage collector visits each of its entries.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._now_ms = 0
        # by the time to look, then by namespace and resource: the tick of each entity
        self._slots: dict[int, dict[tuple[str, str], Partitioned[int]]] = {}

    def note(self, key: BucketKey, at_ms: int) -> None:
        """Look at a bucket at this time, or earlier and then again."""
        namespace_id, entity_id, resource = key
        look_ms = at_ms >> FAR_BITS << FAR_BITS
        if look_ms <= self._now_ms:
            look_ms = _slot_end(at_ms)
        slot = self._slots.get(look_ms)
        if slot is None:
            slot = self._slots[look_ms] = {}
        ticks = slot.get((namespace_id, resource))
        if ticks is None:
            ticks = slot[namespace_id, resource] = Partitioned()
        self._journal.put(ticks, entity_id, at_ms >> TICK_BITS & LAST_TICK)

    def due(self, now_ms: int) -> Iterator[BucketKey]:
        """Iterate over buckets that may have expired; their notes are removed."""
        self._now_ms = now_ms
        for look_ms in sorted(each for each in self._slots if each <= _slot_end(now_ms)):
            slot = self._slots[look_ms]
            last_tick = LAST_TICK if look_ms <= now_ms else now_ms >> TICK_BITS & LAST_TICK
            for (namespace_id, resource), ticks in list(slot.items()):
                while found := list(islice(_until(ticks, last_tick), SCANNED)):
                    for entity_id in found:
                        self._journal.delete(ticks, entity_id)
                        yield namespace_id, entity_id, resource
                    if last_tick < LAST_TICK:
                        break
                if not ticks:
                    self._journal.delete(slot, (namespace_id, resource))
            if not slot:
                self._journal.delete(self._slots, look_ms)

    def clear(self) -> None:
        for look_ms in list(self._slots):
            self._journal.delete(self._slots, look_ms)


def _slot_end(at_ms: int) -> int:
    return (at_ms >> SLOT_BITS) + 1 << SLOT_BITS


def _until(ticks: Partitioned[int], last_tick: int) -> Iterator[str]:
    """Iterate over the entities to look at; where there are many, once the slot is over."""
    if last_tick == LAST_TICK:
        return iter(ticks)
    if len(ticks) > SCANNED:
        return iter(())
    return (entity_id for entity_id in ticks if ticks[entity_id] <= last_tick)

"""The moments at which buckets in memory expire."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from zae_limiter.embedded.memory.partitioned import Partitioned

if TYPE_CHECKING:
    from zae_limiter.embedded.memory.spaces import Journal

# A bucket that expires after the next multiple of 2**22 ms, about 70 minutes, is noted for that
# multiple. One that expires earlier is noted for the end of its interval of 2**12 ms, about 4 s.
FAR_BITS = 22
INTERVAL_BITS = 12
TICK_BITS = 4  # 2**4 ms; the 256 ticks of an interval are integers that Python does not copy
LAST_TICK = 2 ** (INTERVAL_BITS - TICK_BITS) - 1
SCANNED = 512  # notes of the running interval that are searched every time: about 20 µs

BucketKey = tuple[str, str, str]  # namespace, entity, resource


class Expiries:
    """Notes when to look at which bucket, in intervals of seconds or, for later moments, of hours.

    Every bucket that expires has a note in an interval that ends by then. Earlier notes may
    remain, since only the row of a bucket says whether it has expired. A heap would be exact, but
    the garbage collector would visit each of its entries.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._now_ms = 0
        # The tick of each entity, by the moment to look, and by namespace and resource.
        self._intervals: dict[int, dict[tuple[str, str], Partitioned[int]]] = {}

    def note(self, key: BucketKey, at_ms: int) -> None:
        """Note that a bucket must be looked at by this moment."""
        namespace_id, entity_id, resource = key
        look_ms = at_ms >> FAR_BITS << FAR_BITS
        if look_ms <= self._now_ms:
            look_ms = _interval_end(at_ms)
        interval = self._intervals.get(look_ms)
        if interval is None:
            interval = self._intervals[look_ms] = {}
        ticks = interval.get((namespace_id, resource))
        if ticks is None:
            ticks = interval[namespace_id, resource] = Partitioned()
        self._journal.put(ticks, entity_id, at_ms >> TICK_BITS & LAST_TICK)

    def due(self, now_ms: int) -> Iterator[BucketKey]:
        """Iterate over buckets that may have expired; their notes are removed."""
        self._now_ms = now_ms
        for look_ms in sorted(each for each in self._intervals if each <= _interval_end(now_ms)):
            interval = self._intervals[look_ms]
            last_tick = LAST_TICK if look_ms <= now_ms else now_ms >> TICK_BITS & LAST_TICK
            for (namespace_id, resource), ticks in list(interval.items()):
                while found := list(islice(_until(ticks, last_tick), SCANNED)):
                    for entity_id in found:
                        self._journal.delete(ticks, entity_id)
                        yield namespace_id, entity_id, resource
                    if last_tick < LAST_TICK:
                        break
                if not ticks:
                    self._journal.delete(interval, (namespace_id, resource))
            if not interval:
                self._journal.delete(self._intervals, look_ms)

    def clear(self) -> None:
        for look_ms in list(self._intervals):
            self._journal.delete(self._intervals, look_ms)


def _interval_end(at_ms: int) -> int:
    return (at_ms >> INTERVAL_BITS) + 1 << INTERVAL_BITS


def _until(ticks: Partitioned[int], last_tick: int) -> Iterator[str]:
    """Iterate over the entities to look at; many entities wait for the end of the interval."""
    if last_tick == LAST_TICK:
        return iter(ticks)
    if len(ticks) > SCANNED:
        return iter(())
    return (entity_id for entity_id in ticks if ticks[entity_id] <= last_tick)

"""Tallies of buckets that this client has noted and not stored yet.

A rejected acquire writes nothing, and an acquire that has waited, or that shadow mode let through,
makes no write for that fact. This client notes all of them. It stores them with its next write to
the bucket, after ``STORE_AFTER_S`` without such a write, or when it is closed. So the counts are
approximate: the notes of a process that dies are lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.tally import NO_TALLY, Tally, total
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork

if TYPE_CHECKING:
    from zae_limiter.admission.in_force import InForce
    from zae_limiter.clock import Clock

STORE_AFTER_S = 30.0  # the documentation promises this time
MAX_BUCKETS = 10_000  # bounds the memory; the oldest notes are forgotten first

BucketKey = tuple[str, str, str]  # namespace, entity and resource


class NotedTally(NamedTuple):
    """The noted tallies of one bucket by hour, and the time of the first note.

    ``in_force`` and ``clock`` come from the acquire that was noted first.
    """

    by_hour: dict[int, Tally]
    in_force: InForce
    clock: Clock
    since_s: float  # on the monotonic clock

    def total(self) -> Tally:
        """Return the sum over all hours."""
        return total(self.by_hour.values())

    def is_due(self, after_s: float) -> bool:
        """Tell whether the first note is that old.

        The age is measured by the monotonic clock, so that a test which advances its fake clock
        starts no write in the background.
        """
        return time.monotonic() - self.since_s >= after_s


class NotedTallies:
    """The noted tallies by bucket, in the order of their first note.

    Callers may check without the lock whether ``by_bucket`` is empty. A tally is due to be stored
    ``after_s`` seconds after its first note.
    """

    def __init__(self, after_s: float = STORE_AFTER_S) -> None:
        self.by_bucket: BoundedDict[BucketKey, NotedTally] = BoundedDict(MAX_BUCKETS)
        self.after_s = after_s
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the notes of the parent process, which stores them itself."""
        self.by_bucket.clear()

    def note(self, bucket: BucketKey, tally: Tally, in_force: InForce, clock: Clock) -> None:
        """Add a tally to the notes of a bucket, in the present hour."""
        now_ms = clock()
        with self._lock:
            noted = self.by_bucket.get(bucket)
            if noted is None:
                noted = NotedTally({}, in_force, clock, time.monotonic())
                self.by_bucket.put(bucket, noted)
            _add(noted, {now_ms // HOUR_MS: tally})

    def take(self, bucket: BucketKey) -> NotedTally | None:
        """Remove and return the notes of a bucket. If they are not stored, ``put_back`` them."""
        with self._lock:
            return self.by_bucket.pop(bucket, None)

    def take_first(self, count: int) -> dict[BucketKey, NotedTally]:
        """Remove and return the notes of the buckets that were noted first."""
        with self._lock:
            first = dict(islice(self.by_bucket.items(), count))
            for bucket in first:
                del self.by_bucket[bucket]
            return first

    def put_back(self, bucket: BucketKey, noted: NotedTally) -> None:
        """Return notes that were taken and not stored. They stay due at the same time."""
        with self._lock:
            since = self.by_bucket.pop(bucket, None)
            if since is not None:
                _add(noted, since.by_hour)
            self.by_bucket.put(bucket, noted)
            self.by_bucket.move_to_end(bucket, last=False)

    def postpone(self, bucket: BucketKey) -> None:
        """Make the notes of a bucket due after the usual time from now."""
        with self._lock:
            noted = self.by_bucket.pop(bucket, None)
            if noted is not None:
                self.by_bucket.put(bucket, noted._replace(since_s=time.monotonic()))

    def due(self) -> list[BucketKey]:
        """Return the buckets whose notes are due to be stored."""
        due: list[BucketKey] = []
        with self._lock:
            for bucket, noted in self.by_bucket.items():
                if not noted.is_due(self.after_s):
                    break
                due.append(bucket)
        return due

    def next_due_s(self) -> float | None:
        """Return the seconds until the next bucket is due; None if nothing is noted."""
        with self._lock:
            first = next(iter(self.by_bucket.values()), None)
        if first is None:
            return None
        if first.is_due(self.after_s):
            return 0.0
        return first.since_s + self.after_s - time.monotonic()


class TakenTallies:
    """Counts that writes take along: ``give_back`` notes them again if no write was made.

    A transaction that several callers share may be rolled back because of one of them. Then the
    operations run again, one by one, and take the counts once more.
    """

    def __init__(self, noted: NotedTallies) -> None:
        self._noted = noted
        self._taken: dict[BucketKey, NotedTally] = {}

    def take(self, bucket: BucketKey) -> NotedTally | None:
        """Remove and return what was noted of a bucket."""
        noted = self._noted.take(bucket)
        if noted is not None:
            self._taken[bucket] = noted
        return noted

    def take_total(self, bucket: BucketKey) -> Tally:
        """Remove and return the sum of what was noted of a bucket."""
        noted = self.take(bucket) if self._noted.by_bucket else None
        return NO_TALLY if noted is None else noted.total()

    def give_back(self) -> None:
        """Note again what was taken."""
        taken, self._taken = self._taken, {}
        for bucket, noted in taken.items():
            self._noted.put_back(bucket, noted)


def _add(noted: NotedTally, by_hour: Mapping[int, Tally]) -> None:
    hours = noted.by_hour
    for hour, tally in by_hour.items():
        hours[hour] = hours.get(hour, NO_TALLY).plus(tally)  # the later one is the second

"""A change on its way into a write."""

from __future__ import annotations

from typing import Any

from zae_limiter.admission.request import BucketChange, Charge, ChargeRequest, Settlement
from zae_limiter.clock import Clock, Deadline
from zae_limiter.items.buckets.outcomes import Outcome
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.runtime.waiter import Wakeable


class PendingChange:
    """A change that waits for its write.

    ``stamp_ms`` is the stamp of the call; None if the clock has to be read before the write, as
    after any wait. ``reads_first`` asks for a read before the write. ``is_counted`` is False for
    writes that no caller has asked for. ``home`` is the number of the shard that a credit must go
    to, or to the one that it was merged into; None if any shard will do. The write that carries the
    change leaves its ``outcome`` here. A caller looks for it there if it has waited for another
    leader, or was cancelled. A waiter that is woken without an outcome is the next leader of its
    write queue. ``lost_write`` looks an unknown outcome up; None if that is not possible.
    """

    __slots__ = (
        "bucket_id",
        "change",
        "clock",
        "deadline",
        "home",
        "is_counted",
        "lost_write",
        "outcome",
        "reads_first",
        "shard_id",
        "stamp_ms",
        "waiter",
    )

    def __init__(
        self,
        bucket_id: BucketId,
        change: BucketChange,
        clock: Clock,
        deadline: Deadline,
        stamp_ms: int | None = None,
        reads_first: bool = False,
        *,
        is_counted: bool = True,
    ) -> None:
        self.bucket_id = bucket_id
        self.shard_id = bucket_id.shard(0)
        self.change = change
        self.clock = clock
        self.deadline = deadline
        self.waiter: Wakeable | None = None
        self.stamp_ms = stamp_ms
        self.reads_first = reads_first
        self.is_counted = is_counted
        self.home: int | None = None
        self.outcome: Outcome | None = None
        self.lost_write: Any = None

    @classmethod
    def of_charge(
        cls, namespace_id: str, charge: Charge, request: ChargeRequest, deadline: Deadline
    ) -> PendingChange:
        """Return the change of one bucket that a request asks for."""
        bucket_id = BucketId(namespace_id, charge.entity_id, charge.resource)
        change, reads_first = charge.of_request(request), not request.speculative
        return cls(bucket_id, change, request.clock, deadline, request.now_ms, reads_first)

    @classmethod
    def of_settlement(
        cls, namespace_id: str, settlement: Settlement, clock: Clock, deadline: Deadline
    ) -> PendingChange:
        """Return the change of one bucket that a settlement asks for."""
        bucket_id = BucketId(namespace_id, settlement.entity_id, settlement.resource)
        pending = cls(bucket_id, settlement, clock, deadline)
        pending.home = settlement.shard
        return pending

    def redirect(self, number: int) -> None:
        """Send the change to another shard."""
        self.shard_id = self.bucket_id.shard(number)
        self.outcome = None
        self.waiter = None
        self.stamp_ms = None

    def wake(self) -> bool:
        """Wake the waiter; False if its event loop is closed."""
        return self.waiter is not None and self.waiter.wake()

    def can_share_write(self, leader: PendingChange) -> bool:
        """Tell whether one write may carry both."""
        return (
            self.clock is leader.clock
            and self.reads_first == leader.reads_first
            and _can_share_write(self.change, leader.change)
        )


def _can_share_write(one: BucketChange, other: BucketChange) -> bool:
    """Tell whether one condition holds for both changes."""
    mine, theirs = one.in_force, other.in_force
    if mine is not theirs and (mine.keys, mine.rates, mine.keep_ms, mine.version) != (
        theirs.keys,
        theirs.rates,
        theirs.keep_ms,
        theirs.version,
    ):
        return False
    return one.refreshed == other.refreshed or not (one.is_charge and other.is_charge)

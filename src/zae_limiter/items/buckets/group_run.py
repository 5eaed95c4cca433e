"""The state of a group of changes while the write loop decides them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from zae_limiter.admission.tally import NO_TALLY
from zae_limiter.items.buckets.outcomes import Outcome
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.tallies import NotedTallies


class GroupRun:
    """The changes of one group, which share an item and a stamp. The first one leads.

    ``changes`` are those that have no outcome yet, in the order of arrival. ``lost_write`` is the
    write whose outcome is not known, if there is one.
    """

    __slots__ = (
        "_open",
        "_outcomes",
        "bucket_id",
        "changes",
        "deadline",
        "in_force",
        "lost_write",
        "now_ms",
        "reads_first",
        "shard_id",
    )

    def __init__(self, group: Sequence[PendingChange], now_ms: int) -> None:
        leader = group[0]
        self.now_ms = now_ms
        self.shard_id = leader.shard_id
        self.bucket_id = leader.bucket_id
        self.deadline = leader.deadline
        self.reads_first = leader.reads_first
        self.in_force = leader.change.in_force
        self.changes = [pending.change for pending in group]
        self.lost_write: Any = None
        self._open: Sequence[int] = range(len(group))  # positions in the group
        self._outcomes: list[Outcome | None] = [None] * len(group)

    def note(self, outcomes: Sequence[Outcome | None]) -> None:
        """Note the outcomes of ``changes``; None leaves a change open."""
        positions, changes = [], []
        for index, position in enumerate(self._open):
            outcome = self._outcomes[position] = outcomes[index]
            if outcome is None:
                positions.append(position)
                changes.append(self.changes[index])
        self._open, self.changes = positions, changes

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of every change of the group, once all of them are decided."""
        return cast("list[Outcome]", self._outcomes)


class CarriedTally:
    """The counts of this client that the next write to a bucket takes along.

    ``is_sent`` says that a write has taken them, or may have: if the outcome of that write stays
    unknown, they are lost, since they must never be counted twice.
    """

    __slots__ = ("_bucket_id", "_noted", "_taken", "is_sent", "tally")

    def __init__(self, noted: NotedTallies, bucket_id: BucketId) -> None:
        self._noted = noted
        self._bucket_id = bucket_id
        self._taken = noted.take(bucket_id) if noted.by_bucket else None
        self.tally = NO_TALLY if self._taken is None else self._taken.total()
        self.is_sent = False

    def put_back(self) -> None:
        """Keep counts that no write has taken along."""
        if self._taken is not None and not self.is_sent:
            self._noted.put_back(self._bucket_id, self._taken)

"""The state of a group of changes while the write loop decides them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.items.buckets.outcomes import Outcome
from zae_limiter.items.buckets.pending import PendingChange


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
        "tally",
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
        self.tally: Tally = NO_TALLY  # of this client, which the next write takes along
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

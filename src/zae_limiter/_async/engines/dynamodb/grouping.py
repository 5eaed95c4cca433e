"""Callers of one process who want the same bucket at the same time share a write."""

from __future__ import annotations

from zae_limiter._async.engines.dynamodb.writing import Writing
from zae_limiter.concurrency.shield import ashield
from zae_limiter.concurrency.waiter import AWaiter
from zae_limiter.dynamodb.lanes import Lanes
from zae_limiter.dynamodb.member import Member
from zae_limiter.transport.errors import NoAnswer, NotSent

GRACE_S = 0.25


class Grouping:
    """Whoever comes first writes for all who wait, then hands over to the oldest of the rest."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._lanes = Lanes()

    async def decide(self, member: Member) -> None:
        """Return when the member is decided, by its own write or by somebody else's.

        A caller who is stopped leaves the queue. If it is too late for that, it stays until it
        is decided: who looks at the outcome then knows what has to be given back.
        """
        if self._lanes.join(member, AWaiter):
            await ashield(lambda: self._lead([member]))
            return
        try:
            await _woken(member)
        except TimeoutError:
            self._give_up(member)
        except BaseException:
            if not self._lanes.withdraw(member):
                await ashield(lambda: self._see_through(member))
            raise
        if member.outcome is None:
            await ashield(lambda: self._lead(self._lanes.group(member)))

    async def _see_through(self, member: Member) -> None:
        try:
            await _woken(member)
        except TimeoutError:
            self._give_up(member)
        if member.outcome is None:
            await self._lead(self._lanes.group(member))

    def _give_up(self, member: Member) -> None:
        """Whoever was to write for it is gone: its event loop was closed under way."""
        if self._lanes.give_up(member):
            member.outcome = NotSent("nobody wrote to this bucket in time; try again")
        elif member.outcome is None:
            member.outcome = NoAnswer("the caller who wrote is gone; nobody knows the outcome")

    async def _lead(self, members: list[Member]) -> None:
        leader = members[0]
        try:
            await self._writing.write(members)
        finally:
            for member in members:
                if member.outcome is None:
                    member.outcome = NoAnswer("the caller who wrote was stopped")
                if member is not leader:
                    member.wake()
            self._lanes.leave(leader)


async def _woken(member: Member) -> None:
    """Those ahead of it have to be done by its own deadline."""
    assert isinstance(member.waiter, AWaiter)
    await member.waiter.wait(member.deadline.left() + GRACE_S)

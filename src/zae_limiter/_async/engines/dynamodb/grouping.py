"""Callers of one process who want the same bucket at the same time share a write."""

from __future__ import annotations

from zae_limiter._async.engines.dynamodb.writing import Writing
from zae_limiter.concurrency.shield import ashield
from zae_limiter.concurrency.waiter import AWaiter
from zae_limiter.dynamodb.lanes import Lanes
from zae_limiter.dynamodb.member import Member
from zae_limiter.transport.errors import NoAnswer


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
            await ashield(lambda: self._lead(member))
            return
        try:
            await _woken(member)
        except BaseException:
            if not self._lanes.withdraw(member):
                await ashield(lambda: self._see_through(member))
            raise
        if member.outcome is None:
            await ashield(lambda: self._lead(member))

    async def _see_through(self, member: Member) -> None:
        await _woken(member)
        if member.outcome is None:
            await self._lead(member)

    async def _lead(self, leader: Member) -> None:
        members = self._lanes.group(leader)
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
    assert isinstance(member.waiter, AWaiter)
    await member.waiter.wait()

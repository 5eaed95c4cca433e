"""What a lease holds of quotas stays held, whatever becomes of an operation in its block."""

import asyncio
import time

import pytest

from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, Repository
from zae_limiter._async.engines.memory import open_memory
from zae_limiter.settings import Settings
from zae_limiter.store_url import parse_url
from zae_limiter.testing import FakeClock

BUDGET = Limit.budget("usd", 10, per="month", hold_ttl=600)


class SlowRenewals:
    """The buckets of an engine; a renewal waits while ``is_open`` is not set."""

    def __init__(self, buckets):
        self._buckets = buckets
        self.is_open = asyncio.Event()
        self.begun = self.made = 0

    def __getattr__(self, name):
        return getattr(self._buckets, name)

    async def renew(self, *args):
        self.begun += 1
        await self.is_open.wait()
        outcomes = await self._buckets.renew(*args)
        self.made += 1
        return outcomes


async def eventually(holds):
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.01)


async def turns():
    """Let other tasks do what they can do at once."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_lease_whose_operation_was_cancelled_behind_a_renewal_is_renewed():
    clock = FakeClock()
    engine = open_memory(parse_url("memory://"), Settings())
    buckets = engine.buckets = SlowRenewals(engine.buckets)
    async with await Repository.builder().clock(clock).over(engine) as repo:
        await repo.set_system_defaults([BUDGET])
        limiter = RateLimiter(repo)
        async with (
            limiter.acquire("user", "api", {"usd": 4}) as lease,
            limiter.acquire("user", "api", {"usd": 1}) as other,
        ):
            clock.advance(seconds=300)
            await other.release(usd=0)  # its holds are looked at again
            await eventually(lambda: buckets.begun == 1)
            settling = asyncio.create_task(lease.settle(usd=3, now=True))
            await turns()
            settling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await settling
            buckets.is_open.set()
            await eventually(lambda: buckets.made == 1)
            for made in range(2, 6):  # 20 minutes: a hold that nobody renews has expired after 15
                clock.advance(seconds=300)
                await other.release(usd=0)
                await eventually(lambda made=made: buckets.made >= made)
                with pytest.raises(RateLimitExceeded):
                    await limiter.acquire("user", "api", {"usd": 6}).__aenter__()
        (status,) = (await limiter.check_availability("user", "api")).statuses
        assert (status.used, status.held) == (4, 0)


class FailingEnds(SlowRenewals):
    """Such buckets whose settlements fail at first, and what is settled after that."""

    def __init__(self, buckets):
        super().__init__(buckets)
        self.fails, self.settled = True, []

    async def settle(self, namespace_id, settlements, *args):
        if self.fails:
            raise RateLimiterUnavailable("a fault")
        self.settled += settlements
        await self._buckets.settle(namespace_id, settlements, *args)


async def test_an_end_that_is_given_up_behind_a_renewal_is_not_written(caplog):
    clock = FakeClock()
    engine = open_memory(parse_url("memory://"), Settings())
    buckets = engine.buckets = FailingEnds(engine.buckets)
    repo = await Repository.builder().clock(clock).over(engine)
    await repo.set_system_defaults([BUDGET])
    limiter, asked, probe = RateLimiter(repo), [], engine.probe

    async def counted_probe():
        asked.append(True)
        await probe()

    engine.probe = counted_probe
    other = await limiter.acquire("user", "api", {"usd": 1}).__aenter__()
    async with limiter.acquire("user", "api", {"usd": 5}) as lease:
        await lease.settle(usd=3)
    clock.advance(seconds=300)
    buckets.fails = False
    await other.release(usd=0)  # its holds are looked at again, and those of the other lease
    await eventually(lambda: buckets.begun == 1)
    buckets.settled.clear()
    await eventually(lambda: asked)  # before the end is repeated, which waits for the renewal
    await turns()
    await repo.close(timeout=0)
    assert "could not settle" in caplog.text
    buckets.is_open.set()
    await eventually(lambda: buckets.made == 1)
    await turns()
    assert buckets.settled == []

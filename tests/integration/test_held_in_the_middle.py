"""What a lease holds of quotas stays held, whatever becomes of an operation in its block."""

import asyncio
import time

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
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
            for _ in range(5):
                await asyncio.sleep(0)
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

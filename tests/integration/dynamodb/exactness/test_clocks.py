"""Clocks that jump, that differ, and that are minutes off: nothing is minted, nothing freezes."""

import asyncio
import time

import pytest

from tests.support.dynamodb.world import PARENT, USER, together
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.clock import ServerClock
from zae_limiter.testing import FakeClock

MINUTE_NS = 60 * 10**9
ONE_A_SECOND = Limit.per_second("rps", 1, burst=10)


class TickingClock:
    """Moves on with every reading, as a busy process sees it."""

    def __init__(self, start_ms=1_767_225_600_000, step_ms=1):
        self.now_ms, self.step_ms = start_ms, step_ms

    def __call__(self):
        self.now_ms += self.step_ms
        return self.now_ms


# --- an injected clock


async def test_a_clock_that_jumps_by_minutes_mints_nothing(world):
    """All that is given out is the capacity, and what accrues up to the latest stamp."""
    clients = await world.clients(2)
    await clients[0].repo.set_system_defaults([ONE_A_SECOND])
    start, latest, admitted = world.clock(), world.clock(), 0
    for jump_s in (0, 300, -300, 5, -7, 60, -600, 600, 1, -55, 55, 3, 300, -1200, 1200):
        world.clock.advance(seconds=jump_s)
        latest = max(latest, world.clock())
        outcomes = await together(*(clients[n % 2].granted(rps=1) for n in range(12)))
        admitted += outcomes.count(True)
        assert outcomes.count(True) <= 10
        assert admitted <= 10 + (latest - start) // 1000


async def test_a_clock_that_comes_back_finds_what_it_left(world):
    client = await world.client()
    await client.repo.set_system_defaults([ONE_A_SECOND])
    await client.take(rps=4)
    world.clock.advance(minutes=5)
    await client.take(rps=10)
    world.clock.advance(minutes=-5)
    assert (await client.refusal(rps=1)).retry_after_seconds == 301
    world.clock.advance(minutes=5, ms=999)
    await client.refusal(rps=1)
    world.clock.advance(ms=1)
    await client.take(rps=1)


async def test_two_clients_whose_clocks_differ_share_one_bucket(world):
    """The one ahead takes early what accrues; the one behind waits for it."""
    ahead = FakeClock(world.clock() + 120_000)
    one, two = await world.client(clock=ahead), await world.client()
    await one.repo.set_system_defaults([ONE_A_SECOND])
    start, admitted = world.clock(), 0
    for _ in range(30):
        admitted += await one.granted(rps=1)
        admitted += await two.granted(rps=1)
        world.clock.advance(seconds=1)
        ahead.advance(seconds=1)
    assert admitted <= 10 + (ahead() - start) // 1000
    assert await two.granted(rps=1) is False


@pytest.mark.parametrize("amount", [5, 6, 7])
async def test_a_refusal_has_a_reason_however_fast_the_clock_is(world, amount):
    """What accrues while the answer is on its way does not make the refusal groundless."""
    client = await world.client(clock=TickingClock())
    await client.repo.set_system_defaults([Limit.per_second("rps", 1000, burst=20)])
    for refusal in await refusals(client, amount):
        assert refusal.violations
        assert refusal.retry_after_seconds > 0


@pytest.mark.parametrize("amount", [8, 11])
async def test_a_refusal_in_a_cascade_has_a_reason_however_fast_the_clock_is(world, amount):
    client = await world.client(clock=TickingClock())
    await client.repo.create_entity(PARENT)
    await client.repo.create_entity(USER, parent_id=PARENT, cascade=True)
    await client.repo.set_limits(USER, [Limit.per_second("rps", 10_000)], "api")
    await client.repo.set_limits(PARENT, [Limit.per_second("rps", 1000, burst=20)], "api")
    for refusal in await refusals(client, amount):
        assert [each.entity_id for each in refusal.violations] == [PARENT]


async def refusals(client, amount):
    """Of a client that asks for more than accrues meanwhile."""
    found = []
    for _ in range(30):
        try:
            await client.take(rps=amount)
        except RateLimitExceeded as refusal:
            found.append(refusal)
    assert found
    return found


# --- the server's clock, without an injected one


@pytest.fixture
def burst(world):
    """Let a client take one token after the other; how many it gets."""

    async def taken(client, tries=14):
        return sum([await client.granted(rps=1) for _ in range(tries)])

    return taken


@pytest.mark.fast("-1", "10")
@pytest.mark.parametrize("off_min", [-10, -1, 1, 10])
async def test_a_host_whose_clock_is_minutes_off_neither_freezes_nor_floods(world, burst, off_min):
    """The server is right, and another client with a right clock uses the bucket, too."""
    wrong = ServerClock(wall_ns=lambda: time.time_ns() + off_min * MINUTE_NS)
    off, right = await world.client(clock=wrong), await world.client(clock=None)
    await off.repo.set_system_defaults([ONE_A_SECOND])
    assert abs(wrong() - time.time() * 1000) < 3500
    started = time.monotonic()
    admitted = await burst(off) + await burst(right)
    assert 10 <= admitted <= 10 + time.monotonic() - started + 3  # what the clocks may differ by
    retry_s = (await right.refusal(rps=10)).retry_after_seconds
    assert retry_s < 10 + 3.5


@pytest.mark.parametrize("off_s", [-600, 600])
async def test_a_server_whose_date_is_minutes_from_the_host_s_sets_the_time(
    world, burst, proxy, off_s
):
    """All clients of that server agree, whatever their host believes."""
    proxy.link.date_offset_s = off_s
    one, two = [await world.client(proxy, clock=None) for _ in range(2)]
    await one.repo.set_system_defaults([ONE_A_SECOND])
    started = time.monotonic()
    admitted = await burst(one) + await burst(two)
    assert 10 <= admitted <= 10 + time.monotonic() - started + 3
    wait_s = (await one.refusal(rps=1)).retry_after_seconds
    assert wait_s < 3.5
    await asyncio.sleep(wait_s / 0.9)  # the clock may run 10 % slower at first
    assert await one.granted(rps=1) or await two.granted(rps=1)


async def test_a_host_clock_that_is_set_while_the_process_runs_does_not_matter(world, burst):
    off_ns = [0]
    clock = ServerClock(wall_ns=lambda: time.time_ns() + off_ns[0])
    client = await world.client(clock=clock)
    await client.repo.set_system_defaults([ONE_A_SECOND])
    started = time.monotonic()
    admitted = await burst(client)
    for off_ns[0] in (30 * MINUTE_NS, -30 * MINUTE_NS, 0):
        admitted += await burst(client, 3)
    assert 10 <= admitted <= 11 + time.monotonic() - started


async def test_a_date_that_is_wrong_for_a_moment_is_not_believed(world, burst, proxy):
    client = await world.client(proxy, clock=None)
    await client.repo.set_system_defaults([ONE_A_SECOND])
    started = time.monotonic()
    admitted = await burst(client)
    for proxy.link.date_offset_s in (600, -600, 0):
        admitted += await burst(client, 3)
    assert 10 <= admitted <= 11 + time.monotonic() - started


async def test_an_injected_clock_is_not_corrected_by_the_server(world, proxy):
    proxy.link.date_offset_s = 600
    client = await world.client(proxy)
    await client.repo.set_system_defaults([ONE_A_SECOND])
    await client.take(rps=10)
    await client.refusal(rps=1)
    assert world.level("rps") == 0

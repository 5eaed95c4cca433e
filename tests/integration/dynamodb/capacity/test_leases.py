"""What happens inside a lease, and how it ends."""

import threading
import time

import pytest

from tests.integration.dynamodb.capacity.world import API, USER

SLOW_IN_SYNC_TREE = True  # the same calls


class Failure(Exception):
    """What goes wrong in a block."""


@pytest.fixture
async def client(configured):
    client = await configured.client()
    await client.take(rpm=1, tpm=100)
    return client


async def adjusted(client, entity_id=USER, **amounts):
    async with client.acquire(entity_id, rpm=1, tpm=100) as lease:
        await lease.adjust(**amounts)


@pytest.mark.parametrize("amount", [50, -50, 50_000])
async def test_an_acquire_with_adjust(client, cost_of, amount):
    with cost_of("acquire with `adjust`"):
        await adjusted(client, tpm=amount)


@pytest.mark.parametrize("amounts", [{"rpm": 1, "tpm": 50}, {"rpm": -1, "tpm": 50}])
async def test_an_acquire_with_adjust_of_two_limits(client, cost_of, amounts):
    with cost_of("acquire with `adjust`"):
        await adjusted(client, **amounts)


async def test_an_acquire_that_is_adjusted_several_times(client, cost_of):
    with cost_of("acquire with `adjust`"):
        async with client.acquire(rpm=1) as lease:
            await lease.adjust(tpm=50)
            await lease.adjust(tpm=70)


async def test_an_acquire_that_is_adjusted_by_nothing(client, cost_of):
    with cost_of("acquire, warm"):
        await adjusted(client, tpm=0)


async def test_an_acquire_whose_bucket_is_full_when_it_is_adjusted(client, clock, cost_of):
    with cost_of("acquire with `adjust`"):
        async with client.acquire(rpm=1) as lease:
            clock.advance(seconds=50)
            await lease.adjust(tpm=50)


async def test_an_acquire_with_adjust_that_cascades(family, cost_of):
    client = await family.client()
    await client.take(rpm=1)
    with cost_of("acquire with `adjust`, cascading"):
        await adjusted(client, tpm=50)


async def test_an_acquire_that_is_given_back(client, cost_of):
    with cost_of("acquire, block raises"), pytest.raises(Failure):
        async with client.acquire(rpm=1, tpm=100):
            raise Failure


async def test_a_cascading_acquire_that_is_given_back(family, cost_of):
    client = await family.client()
    await client.take(rpm=1)
    with cost_of("acquire, block raises, cascading"), pytest.raises(Failure):
        async with client.acquire(rpm=1, tpm=100):
            raise Failure


async def test_an_acquire_with_a_timeout_that_need_not_wait(client, cost_of):
    with cost_of("acquire with a `timeout`, warm"):
        async with client.limiter.acquire(USER, API, {"rpm": 1}, timeout=5):
            pass


async def test_an_acquire_with_a_timeout_that_waits(client, clock, cost_of):
    await client.take(rpm=59)
    pacer = threading.Thread(target=let_time_pass, args=(clock,))
    pacer.start()
    with cost_of("acquire with a `timeout`, warm"):
        async with client.limiter.acquire(USER, API, {"rpm": 1}, timeout=5):
            pass
    pacer.join()


def let_time_pass(clock):
    """Move the clock on by the second that a caller waits for, as soon as it waits."""
    ends_s = time.monotonic() + 20
    while not clock.waiting and time.monotonic() < ends_s:
        time.sleep(0.001)
    clock.advance(seconds=1)


async def test_more_within_a_lease(client, cost_of):
    async with client.acquire(rpm=1) as lease:
        with cost_of("`lease.consume`"):
            await lease.consume(rpm=1, tpm=100)


async def test_back_within_a_lease(client, cost_of):
    async with client.acquire(rpm=1, tpm=100) as lease:
        with cost_of("`lease.release`"):
            await lease.release(rpm=1, tpm=50)


async def test_the_end_of_a_lease_with_nothing_to_settle(client, cost_of):
    lease = client.acquire(rpm=1)
    await lease.__aenter__()
    with cost_of("end of a lease"):
        await lease.__aexit__(None, None, None)

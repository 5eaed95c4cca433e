"""What runs over is cut when something is taken: by charges and by debts, never by mistake."""

import pytest

from tests.support.dynamodb.world import together, under_way
from zae_limiter import Limit

TEN = Limit.per_minute("rpm", 10)
WHO = pytest.mark.parametrize("knows_it", [True, False], ids=["who knows it", "a newcomer"])


@pytest.mark.each_value_once
@WHO
@pytest.mark.parametrize("debt", [1, 10, 50])
async def test_a_debt_after_overflow_is_not_swallowed(world, knows_it, debt):
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    await user.take(rpm=3)
    world.clock.advance(days=2)
    await (user if knows_it else other).owe(rpm=debt)
    assert world.level() == 10_000 - 1000 * debt
    assert world.spent() == 3000 + 1000 * debt


@WHO
async def test_a_debt_before_a_bucket_is_full_takes_what_is_there(world, knows_it):
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    await user.take(rpm=8)
    world.clock.advance(seconds=30)
    await (user if knows_it else other).owe(rpm=20)
    assert world.level() == -13_000


async def test_debts_at_once_on_an_overfull_bucket_are_cut_once(world, proxy):
    """Each client believes that it is the one who cuts what ran over."""
    clients = [await world.client(proxy) for _ in range(4)]
    await clients[0].repo.set_system_defaults([TEN])
    for client in clients:
        await client.take(rpm=1)
    world.clock.advance(days=2)
    proxy.link.request_ms = 20
    outcomes = await together(*(client.owe(rpm=5) for client in clients))
    assert outcomes == [None] * 4
    assert world.level() == 10_000 - 20_000


async def test_a_credit_beyond_the_capacity_runs_over(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    async with client.giving_back(rpm=10):
        world.clock.advance(seconds=60)
    assert world.level() == 10_000
    await client.take(rpm=10)
    assert world.level() == 0
    await client.refusal(rpm=1)


async def test_a_credit_to_one_limit_beside_a_debt_in_another(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN, Limit.per_minute("tpm", 100)])
    async with client.acquire(rpm=5, tpm=50) as lease:
        await lease.adjust(rpm=-2, tpm=70)
    assert (world.level("rpm"), world.level("tpm")) == (7000, -20_000)
    assert (world.spent("rpm"), world.spent("tpm")) == (3000, 120_000)


async def test_a_charge_that_is_overtaken_by_another_is_not_cut_again(world, proxy):
    """The late one wanted to cut what ran over; somebody else has done so meanwhile."""
    slow, quick = await world.client(proxy), await world.client()
    await slow.repo.set_system_defaults([TEN])
    await slow.take(rpm=1)
    world.clock.advance(days=2)
    async with under_way(proxy, slow.take(rpm=4)) as late:
        await quick.take(rpm=3)
    assert late.exception() is None
    assert world.level() == 3000


async def test_a_charge_that_is_overtaken_by_all_that_is_there_is_refused(world, proxy):
    slow, quick = await world.client(proxy), await world.client()
    await slow.repo.set_system_defaults([TEN])
    await slow.take(rpm=1)
    world.clock.advance(days=2)
    async with under_way(proxy, slow.granted(rpm=4)) as late:
        await quick.take(rpm=7)
    assert late.result() is False
    assert world.level() == 3000


async def test_a_charge_of_an_earlier_stamp_does_not_cut_what_a_later_one_left(world, proxy):
    """The clock moves on while a charge is under way: it is judged at its own stamp."""
    slow, quick = await world.client(proxy), await world.client()
    await slow.repo.set_system_defaults([TEN])
    await slow.take(rpm=5)
    world.clock.advance(seconds=30)  # just full
    async with under_way(proxy, slow.granted(rpm=10)) as late:
        world.clock.advance(seconds=60)
        await quick.take(rpm=10)
    assert late.result() is False
    assert world.level() == 0


async def test_a_credit_between_two_tries_is_not_lost(world, proxy):
    slow, quick = await world.client(proxy), await world.client()
    await slow.repo.set_system_defaults([TEN])
    giving_back = quick.giving_back(rpm=3)
    await giving_back.__aenter__()
    await slow.take(rpm=6)
    async with under_way(proxy, slow.granted(rpm=4)) as late:
        await giving_back.__aexit__(None, None, None)
    assert late.result() is True
    assert world.level() == 0

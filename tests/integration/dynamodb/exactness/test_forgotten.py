"""Buckets that the store forgets: it may when they are full, and not a moment earlier."""

import pytest

from tests.support.dynamodb.world import (
    USER,
    Failure,
    failing,
    rate_of,
    together,
    under_way,
)
from zae_limiter import Limit

TEN = Limit.per_minute("rpm", 10)
SLOWER = Limit.custom("rpm", 10, 10, 120)
WHO = pytest.mark.parametrize("knows_it", [True, False], ids=["who knows it", "a newcomer"])


@pytest.fixture
def stack(stack_without_usage):
    """Buckets expire as soon as they may."""
    return stack_without_usage


def assert_remembered_until_full(world, entity_id=USER):
    ttl_ms = world.ttl_ms(entity_id)
    assert ttl_ms is None or ttl_ms >= world.full_at_ms(entity_id)


async def forgotten(world, client, **amounts):
    """A bucket that was used, is full again, and is gone."""
    await client.take(**amounts)
    world.clock.set(world.ttl_ms())
    world.expire()


@WHO
async def test_a_debt_on_a_forgotten_bucket_is_owed_by_a_full_one(world, knows_it):
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    async with (user if knows_it else other).acquire(rpm=2) as lease:
        world.clock.advance(hours=1)
        world.expire()
        await lease.adjust(rpm=15)
    assert world.level() == -5000
    assert_remembered_until_full(world)


@WHO
async def test_a_credit_to_a_forgotten_bucket_is_not_needed(world, knows_it):
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    with failing():
        async with (user if knows_it else other).acquire(rpm=2):
            world.clock.advance(hours=1)
            world.expire()
            raise Failure
    assert world.item() is None
    await user.take(rpm=10)
    await other.refusal(rpm=1)
    assert user.repo.lost_settlements == other.repo.lost_settlements == 0


async def test_a_debt_beside_a_credit_on_a_forgotten_bucket(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN, Limit.per_minute("tpm", 100)])
    async with client.acquire(rpm=2, tpm=2) as lease:
        world.clock.advance(hours=1)
        world.expire()
        await lease.adjust(rpm=-1, tpm=130)
    assert (world.level("rpm"), world.level("tpm")) == (10_000, -30_000)
    assert_remembered_until_full(world)


async def test_a_credit_after_another_client_has_made_the_bucket_anew(world):
    """Full, less what was taken since, plus the refund: as if it had never been forgotten."""
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    with failing():
        async with user.acquire(rpm=2):
            world.clock.advance(hours=1)
            world.expire()
            await other.take(rpm=5)
            raise Failure
    assert world.level() == 7000


@pytest.mark.each_value_once
@WHO
@pytest.mark.parametrize("debt", [3, 40])
async def test_a_debt_on_a_bucket_past_its_time_that_is_still_there(world, knows_it, debt):
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    async with (user if knows_it else other).acquire(rpm=2) as lease:
        world.clock.advance(hours=1)
        assert world.ttl_ms() < world.clock()
        await lease.adjust(rpm=debt)
    assert world.level() == 10_000 - 1000 * debt
    assert world.ttl_ms() > world.clock()
    assert_remembered_until_full(world)


async def test_a_credit_to_a_bucket_past_its_time_that_is_still_there(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    with failing():
        async with client.acquire(rpm=2):
            world.clock.advance(hours=1)
            raise Failure
    assert world.level() == 10_000
    await client.take(rpm=10)
    await client.refusal(rpm=1)


@WHO
async def test_a_charge_on_a_bucket_past_its_time_keeps_it(world, knows_it):
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    await user.take(rpm=2)
    world.clock.advance(hours=1)
    await (user if knows_it else other).take(rpm=9)
    assert world.level() == 1000
    assert world.ttl_ms() > world.clock()
    assert_remembered_until_full(world)


async def test_a_charge_that_finds_the_bucket_gone_makes_a_full_one(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    await forgotten(world, client, rpm=7)
    await client.take(rpm=10)
    await client.refusal(rpm=1)
    assert world.spent() == 10_000


async def test_more_than_the_capacity_does_not_make_a_forgotten_bucket(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    await forgotten(world, client, rpm=7)
    await client.refusal(rpm=11)
    assert world.item() is None


@pytest.mark.parametrize("clients", [2, 4])
async def test_debts_settled_at_once_are_remembered_until_the_last_is_repaid(world, proxy, clients):
    """Each knows only its own; together they take longer to repay."""
    clients = [await world.client(proxy) for _ in range(clients)]
    await clients[0].repo.set_system_defaults([TEN])
    leases = [client.acquire(rpm=1) for client in clients]
    for lease in leases:
        await (await lease.__aenter__()).adjust(rpm=500)
    proxy.link.request_ms = 20
    assert await together(*(each.__aexit__(None, None, None) for each in leases)) == [None] * len(
        clients
    )
    assert world.level() == 10_000 - 501_000 * len(clients)
    assert_remembered_until_full(world)


async def test_a_debt_and_a_charge_at_once_are_remembered_until_both_are_repaid(world, proxy):
    """The charge renews the time to live with an image from before the debt."""
    slow, quick = await world.client(proxy), await world.client()
    await slow.repo.set_system_defaults([TEN])
    await slow.take(rpm=1)
    world.clock.advance(seconds=300)  # less than half of the time to live is left
    async with under_way(proxy, slow.granted(rpm=1)) as late:
        await quick.owe(rpm=4)
    assert late.result() is True
    assert world.level() == 5000
    assert_remembered_until_full(world)


# --- limits that change before it is known that a debt has been settled meanwhile


async def test_a_debt_is_remembered_when_a_refused_call_changes_the_limits(world, proxy):
    user, other = await world.client(proxy), await world.client()
    await user.repo.set_system_defaults([TEN])
    await user.take(rpm=1)
    debt = other.acquire()
    await (await debt.__aenter__()).adjust(rpm=1000)
    await user.repo.set_system_defaults([SLOWER])
    async with under_way(proxy, user.granted(rpm=1)) as late:
        await debt.__aexit__(None, None, None)
    assert late.result() is False
    assert world.rate() == rate_of(SLOWER)
    assert_remembered_until_full(world)


async def test_a_debt_is_remembered_when_a_refused_call_brings_other_limits(world):
    """No configuration: the limits are those of the last call."""
    user, other = await world.clients(2)
    await user.take(rpm=1, limits=[TEN])
    async with other.acquire(limits=[TEN]) as lease:
        await lease.adjust(rpm=1000)
    await user.refusal(rpm=1, limits=[SLOWER])
    assert world.rate() == rate_of(SLOWER)
    assert_remembered_until_full(world)


async def test_a_debt_is_remembered_when_a_refused_call_brings_limits_of_its_own(world):
    """They live beside the configured ones."""
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    await user.take(rpm=1)
    await other.owe(rpm=1000)
    await user.refusal(rpm=11, limits=[SLOWER])
    assert_remembered_until_full(world)


async def test_a_debt_is_remembered_when_a_charge_brings_other_limits(world):
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    await user.take(rpm=1)
    await other.owe(rpm=5)
    await user.repo.set_system_defaults([SLOWER])
    await user.take(rpm=1)
    assert world.level() == 3000
    assert_remembered_until_full(world)


async def test_a_limit_that_is_owed_alone_is_remembered(world):
    """A lease covers limits that the call did not consume."""
    client = await world.client()
    await client.repo.set_system_defaults([TEN, Limit.per_day("tpd", 10)])
    await client.take(rpm=1)
    await client.owe(tpd=100)
    assert world.level("tpd") == -90_000
    assert_remembered_until_full(world)


async def test_buckets_with_limits_of_the_entity_are_never_forgotten(world):
    client = await world.client()
    await client.repo.set_limits(USER, [TEN], "api")
    await client.take(rpm=1)
    await client.owe(rpm=100)
    assert world.ttl_ms() is None


async def test_a_bucket_that_gets_limits_of_its_entity_is_kept_from_then_on(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    assert world.ttl_ms() is not None
    await client.repo.set_limits(USER, [TEN], "api")
    await client.take(rpm=1)
    assert world.ttl_ms() is None
    await client.repo.delete_limits(USER, "api")
    await client.take(rpm=1)
    assert world.level() == 7000
    assert_remembered_until_full(world)
    assert world.ttl_ms() is not None


async def test_a_refund_that_was_charged_under_limits_without_an_end_does_not_end_the_bucket(world):
    """A debt that is settled under limits that no longer apply."""
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    async with client.acquire(rpm=1) as lease:
        await client.repo.set_limits(USER, [SLOWER], "api")
        await client.take(rpm=1)
        await lease.adjust(rpm=300)
    assert world.level() == 8000 - 300_000
    assert_remembered_until_full(world)

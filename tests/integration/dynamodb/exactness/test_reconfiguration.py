"""Limits that change under way: levels are kept, nothing is charged under other limits."""

import pytest

from tests.support.dynamodb.stored import limits_of, parameters
from tests.support.dynamodb.world import Failure, failing, rate_of, together, under_way
from zae_limiter import Limit, RateLimiterUnavailable

TEN = Limit.per_minute("rpm", 10)
WIDE = Limit.per_minute("rpm", 100)
NARROW = Limit.per_hour("rpm", 4)
TPM = Limit.per_minute("tpm", 100)


# --- a write under way meets a change of the limits


@pytest.mark.each_value_once
@pytest.mark.parametrize("new", [WIDE, NARROW])
@pytest.mark.parametrize("idle_s", [0, 100_000], ids=["partly used", "overfull"])
async def test_a_charge_under_way_meets_other_limits(world, proxy, new, idle_s):
    """Its bounds are those of the old rate: written, they would be off by years of accrual."""
    slow, quick = await world.client(proxy), await world.client()
    await slow.repo.set_system_defaults([TEN])
    await slow.take(rpm=1)
    world.clock.advance(seconds=idle_s)
    level = world.level()
    async with under_way(proxy, slow.take(rpm=2)) as late:
        await quick.repo.set_system_defaults([new])
        await quick.take(rpm=1)
    assert late.exception() is None
    assert world.level() == min(level, new.capacity_milli) - 3000
    assert world.rate() == rate_of(new)


@pytest.mark.parametrize("idle_s", [0, 100_000], ids=["partly used", "overfull"])
async def test_limits_under_way_meet_a_charge(world, proxy, idle_s):
    """The level is the one at the moment of the change, not the one that was read before it."""
    slow, quick = await world.client(proxy), await world.client()
    await quick.repo.set_system_defaults([TEN])
    await quick.take(rpm=1)
    world.clock.advance(seconds=idle_s)
    level = world.level()
    old = quick.acquire(rpm=3)
    await slow.repo.set_system_defaults([WIDE])
    async with under_way(proxy, slow.take(rpm=2)) as late:
        await old.__aenter__()
        await old.__aexit__(None, None, None)
    assert late.exception() is None
    assert world.level() == level - 5000


@pytest.mark.parametrize("amount", [20, -4], ids=["debt", "credit"])
async def test_limits_under_way_meet_a_settlement(world, proxy, amount):
    slow, quick = await world.client(proxy), await world.client()
    await quick.repo.set_system_defaults([TEN])
    old = quick.acquire(rpm=5)
    await (await old.__aenter__()).adjust(rpm=amount)
    await slow.repo.set_system_defaults([WIDE])
    async with under_way(proxy, slow.take()) as late:
        await old.__aexit__(None, None, None)
    assert (late.exception() is None) is (amount < 0)
    assert world.level() == 5000 - 1000 * amount
    assert world.rate() == rate_of(WIDE)


async def test_a_settlement_under_way_meets_other_limits(world, proxy):
    slow, quick = await world.client(proxy), await world.client()
    await slow.repo.set_system_defaults([TEN])
    lease = slow.acquire(rpm=5)
    await (await lease.__aenter__()).adjust(rpm=2)
    async with under_way(proxy, lease.__aexit__(None, None, None)) as late:
        await quick.repo.set_system_defaults([NARROW])
        await quick.take(rpm=1)
    assert late.exception() is None
    assert world.level() == 4000 - 1000 - 2000
    assert world.spent() == 8000


# --- clients that do not agree


async def test_a_client_with_an_old_configuration_does_not_bring_it_back(world):
    old, new = await world.clients(2)
    await old.repo.set_system_defaults([TEN])
    await old.take(rpm=1)
    born = int(world.item()["g"]["N"])
    await new.repo.set_system_defaults([WIDE])
    await new.take(rpm=1)
    for _ in range(3):
        await old.take(rpm=1)
        await new.take(rpm=1)
    assert world.rate() == rate_of(WIDE)
    assert int(world.item()["g"]["N"]) == born + 1
    assert world.level() == 2000


async def test_charging_with_stale_parameters_is_judged_under_the_new_ones(world):
    """Ten at once would fit the limit that this client knows."""
    old, new = await world.clients(2)
    await old.repo.set_system_defaults([TEN])
    await old.take(rpm=1)
    world.clock.advance(minutes=1)
    await new.repo.set_system_defaults([NARROW])
    await new.take(rpm=1)
    assert (await old.refusal(rpm=10)).retry_after_seconds == float("inf")
    await old.take(rpm=3)
    await old.refusal(rpm=1)
    assert world.level() == 0


@pytest.mark.parametrize("latency_ms", [0, 15])
async def test_two_rebases_in_one_millisecond_keep_the_level(world, proxy, latency_ms):
    """Both clients bring limits of their own to a bucket that no configuration governs."""
    one, two = await world.client(proxy), await world.client(proxy)
    base = Limit.per_minute("rpm", 50)
    await one.take(rpm=10, limits=[base])
    await two.take(rpm=10, limits=[base])
    proxy.link.request_ms = latency_ms
    outcomes = await together(
        one.take(rpm=3, limits=[Limit.per_hour("rpm", 40)]),
        two.take(rpm=4, limits=[Limit.per_second("rpm", 60)]),
    )
    assert None in outcomes  # one may give up, since the other keeps changing the limits
    assert {type(each) for each in outcomes} <= {type(None), RateLimiterUnavailable}
    taken = 20 + sum(each for each, got in zip((3, 4), outcomes, strict=True) if got is None)
    assert world.level() == 50_000 - 1000 * taken
    assert world.spent() == 1000 * taken


async def test_two_clients_with_different_configurations_meet_in_one_millisecond(world, proxy):
    one, two = await world.client(proxy), await world.client(proxy)
    await one.repo.set_system_defaults([TEN])
    await together(one.take(rpm=1), two.take(rpm=1))
    await one.repo.set_system_defaults([WIDE])  # the other does not know yet
    proxy.link.request_ms = 10
    outcomes = await together(*(each.take(rpm=1) for each in (one, two, one, two)))
    assert outcomes == [None] * 4
    assert world.level() == 4000
    assert world.rate() == rate_of(WIDE)


async def test_changes_back_and_forth_mint_nothing(world):
    """Each at the same moment: the level never grows, whatever the limits are called."""
    clients = await world.clients(2)
    await clients[0].repo.set_system_defaults([TEN])
    await clients[0].take(rpm=4)
    for turn in range(12):
        await clients[turn % 2].repo.set_system_defaults([(WIDE, NARROW, TEN)[turn % 3]])
        await together(clients[0].granted(), clients[1].granted())
    assert world.level() == 4000  # what the narrow one could hold


async def test_a_change_to_a_faster_rate_accrues_from_then_on(world):
    client = await world.client()
    await client.repo.set_system_defaults([Limit.per_hour("rpm", 10)])
    await client.take(rpm=10)
    world.clock.advance(minutes=6)
    assert world.level() == 1000
    await client.repo.set_system_defaults([TEN])
    await client.take()
    assert world.level() == 1000
    world.clock.advance(seconds=6)
    assert world.level() == 2000


# --- limits that a call brings along


async def test_a_subset_of_the_limits_and_all_of_them_by_turns(world):
    clients = await world.clients(2)
    await clients[0].repo.set_system_defaults([TEN, TPM])
    for turn in range(4):
        await clients[turn % 2].take(rpm=1, limits=[TEN])
        await clients[turn % 2].take(rpm=1, tpm=10)
    assert (world.level("rpm"), world.level("tpm")) == (2000, 60_000)
    assert not [name for name in world.item() if "~" in name]
    await clients[0].refusal(rpm=3, limits=[TEN])


async def test_a_subset_comes_first_and_the_rest_is_added_full(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN, TPM])
    await client.take(rpm=4, limits=[TEN])
    await client.take(rpm=1, tpm=30)
    assert (world.level("rpm"), world.level("tpm")) == (5000, 70_000)


@pytest.mark.parametrize("how_many", [1, 2])
async def test_an_override_beside_stored_limits_by_turns_mints_nothing(world, how_many):
    """Each of the two gives out its capacity and what accrues, whoever calls."""
    clients = await world.clients(how_many)
    await clients[0].repo.set_system_defaults([TEN])
    other = Limit.per_minute("rpm", 6)
    stored = brought = 0
    for turn in range(60):
        client = clients[turn % how_many]
        stored += await client.granted(rpm=1)
        brought += await client.granted(rpm=1, limits=[other])
        world.clock.advance(seconds=1)
    assert stored == 10 + 9  # the last of the ten that a minute brings comes after the end
    assert brought == 6 + 5


async def test_two_overrides_by_turns_mint_nothing(world):
    """They live beside each other; each comes and goes without tokens of the other."""
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    two, three = Limit.per_hour("rpm", 2), Limit.per_hour("rpm", 3)
    admitted = {2: 0, 3: 0}
    for _ in range(8):
        admitted[2] += await client.granted(rpm=1, limits=[two])
        admitted[3] += await client.granted(rpm=1, limits=[three])
        await client.granted(rpm=0)
    assert admitted == {2: 2, 3: 3}
    assert world.level() == 10_000


async def test_overrides_by_turns_where_nothing_is_stored_keep_the_level(world):
    client = await world.client()
    admitted = 0
    for turn in range(30):
        limit = Limit.per_hour("rpm", 12) if turn % 2 else Limit.per_hour("rpm", 10)
        admitted += await client.granted(rpm=1, limits=[limit])
    assert admitted == 10
    assert world.level() == 0


async def test_a_refund_to_a_limit_of_a_call_that_is_gone_is_not_given_to_another(world):
    """Its own limit was full and is no longer stored."""
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=10)
    with failing():
        async with client.acquire(rpm=2, limits=[NARROW]):
            world.clock.advance(minutes=50)
            await client.repo.set_system_defaults([WIDE])
            await client.take(rpm=10)
            raise Failure
    assert not [name for name in world.item() if "~" in name]
    assert world.level() == 0


async def test_a_refund_to_a_limit_of_a_call_that_was_gone_meanwhile_is_made(world):
    """It was full, was dropped, and somebody has brought and used it again."""
    user, dropper, third = await world.clients(3)
    await user.repo.set_system_defaults([TEN])
    with failing():
        async with user.acquire(rpm=2, limits=[NARROW]):
            world.clock.advance(hours=1)
            await dropper.take(rpm=1, limits=[WIDE])
            await user.take(rpm=1)  # sees the bucket without it
            await third.take(rpm=3, limits=[NARROW])
            raise Failure
    item = world.item()
    (brought,) = (each for each in limits_of(item) if parameters(item, each) == rate_of(NARROW))
    assert world.level(brought) == 3000


@pytest.mark.parametrize("stored_first", [True, False])
async def test_what_a_limit_of_a_call_has_consumed_stays_counted(world, stored_first):
    """It was full and is dropped; the stored limit of its name goes on counting."""
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    if stored_first:
        await client.take(rpm=1)
    await client.take(rpm=3, limits=[NARROW])
    world.clock.advance(minutes=50)
    await client.take(rpm=2, limits=[WIDE])  # drops the other, which is full
    await client.take(rpm=5)
    world.clock.advance(minutes=5)
    await client.repo.set_system_defaults([TEN, TPM])
    await client.take(rpm=1)
    assert not [name for name in world.item() if "~" in name]
    assert world.spent() == 1000 * (stored_first + 3 + 2 + 5 + 1)


async def test_configuration_that_comes_after_an_override_takes_its_level_over(world):
    client = await world.client()
    await client.take(rpm=6, limits=[TEN])
    await client.repo.set_system_defaults([WIDE])
    await client.take(rpm=4)
    assert world.level() == 0
    await client.refusal(rpm=1)


async def test_a_crowd_with_two_overrides_never_gets_more_than_is_there(world):
    """They keep changing the limits under each other; some may give up, nobody gets too much."""
    clients = await world.clients(2)
    limits = [[Limit.per_hour("rpm", 20)], [Limit.per_hour("rpm", 20), TPM]]
    outcomes = await together(
        *(clients[n % 2].take(rpm=1, limits=limits[n % 2]) for n in range(60))
    )
    admitted = outcomes.count(None)
    assert admitted == world.admitted() <= 20
    assert world.level() == 20_000 - 1000 * admitted
    gave_up = sum(isinstance(each, RateLimiterUnavailable) for each in outcomes)
    assert admitted == 20 or gave_up

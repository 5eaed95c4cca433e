"""Hours are counted in the bucket's own write, by one client and by several."""

import asyncio
import time

import pytest

from tests.support.dynamodb.seen import USAGE
from tests.support.dynamodb.trees import SyncTree
from tests.support.dynamodb.world import (
    API,
    PARENT,
    USER,
    Failure,
    failing,
    together,
    written_later,
)
from tests.support.dynamodb.world import seen as until_seen
from zae_limiter import Limit, RateLimiterUnavailable

HUNDRED = Limit.per_minute("rpm", 100)


def is_background(exchange):
    return "#USAGE#" in str(exchange.body) or "#RESOURCES_IN_USE" in str(exchange.body)


@pytest.fixture
async def client(world):
    client = await world.client()
    await world.limits(HUNDRED)
    await client.take(rpm=1)
    return client


async def test_every_hour_has_what_was_used_in_it(either):
    client = await either.client()
    await either.limits(HUNDRED)
    start = either.hour
    for amount in (1, 2, 3, 4):
        await client.take(rpm=amount)
        await client.take(rpm=amount)
        either.next_hour()
    assert either.counted() == {start + i: 2000 * (i + 1) for i in range(4)}
    assert either.events() == {start + i: 2 for i in range(4)}


async def test_a_turn_is_one_write(world, proxy):
    client = await world.client(proxy, config_cache_ttl=10**6)
    await world.limits(HUNDRED)
    await client.take(rpm=1)
    world.next_hour()
    with proxy.measure() as seen:
        await client.take(rpm=2)
    assert seen.operations == {"UpdateItem": 1}
    assert (seen.wcu, seen.refused) == (1, 0)
    assert world.item()["op"]["S"].startswith("~")
    with proxy.measure() as seen:
        await client.take(rpm=2)
    assert seen.operations == {"UpdateItem": 1}
    assert not world.item()["op"]["S"].startswith("~")
    assert world.counted() == {world.hour - 1: 1000, world.hour: 4000}


async def test_the_first_hour_of_a_day_is_announced_beside_its_turn(world, proxy):
    client = await world.client(proxy, config_cache_ttl=10**6)
    await world.limits(HUNDRED)
    await client.take(rpm=1)
    origin = world.item()["o"]["S"]
    for day in range(3):
        assert world.marks()[world.day, 0] == {origin: "open"}
        world.next_hour(ms=23 * 3_600_000)
        with proxy.measure() as seen:
            await client.take(rpm=2)
        assert seen.operations == {"UpdateItem": 1, USAGE: 2 if day else 1}
    assert set(world.marks()) == {(world.day - back, 0) for back in range(4)}
    assert world.marks()[world.day - 2, 0] == {origin: "closed"}, "it has all of its hours"


async def test_a_day_that_was_not_announced_is_found_once_an_hour_is_stored(world, proxy):
    client = await world.client(proxy, config_cache_ttl=10**6)
    await world.limits(HUNDRED)
    with proxy.fault("deny", operation=USAGE):
        await client.take(rpm=1)
        world.next_hour()
        await client.take(rpm=2)
    assert world.marks() == {}
    world.next_hour()
    other = await world.client(proxy)
    with proxy.measure() as seen:
        await other.take(rpm=4)
    assert seen.operations[USAGE] == 1
    [mark] = world.marks().values()
    assert list(mark.values()) == ["open"]
    page, _ = await other.repo.get_usage_snapshots(resource="api", window_type="hourly")
    assert [each.counters for each in page] == [{"rpm": 1}, {"rpm": 2}, {"rpm": 4}]


async def test_an_acquire_does_not_wait_for_what_goes_on_in_the_background(either, proxy):
    """Announcing a day and registering a resource: once per day, and once per resource."""
    threads = {"parallel_mode": "threadpool"} if isinstance(either.tree, SyncTree) else {}
    client = await either.client(proxy, config_cache_ttl=10**6, request_timeout=60, **threads)
    await either.limits(HUNDRED)
    with proxy.fault("black_hole", when=is_background), proxy.measure() as seen:
        async with asyncio.timeout(30), client.acquire(rpm=1):
            pass
        either.next_hour(ms=24 * 3_600_000)
        async with asyncio.timeout(30), client.acquire(rpm=2):
            pass
        assert len(seen.of("UpdateItem")) == 2
    await written_later(client.repo)
    assert [list(row.values()) for row in either.marks().values()] == [["open"], ["open"]]
    assert await client.repo.list_resources() == ["api"]


async def test_a_client_finds_what_it_has_just_used_on_a_resource(either):
    client = await either.client()
    await either.limits(HUNDRED)
    for amount in (3, 4):
        async with client.acquire(rpm=amount):
            pass
        page, _ = await client.repo.get_usage_snapshots(resource="api", window_type="hourly")
        assert page[-1].counters == {"rpm": amount}
        either.next_hour()


async def test_what_goes_on_in_the_background_is_done_when_a_client_is_closed(either, proxy):
    client = await either.client(proxy)
    await either.limits(HUNDRED)
    with proxy.fault("deny", when=is_background):
        await client.take(rpm=1)
    assert either.marks() == {}
    await client.repo.close()
    assert list(either.marks()[either.day, 0].values()) == ["open"]


async def test_an_hour_that_is_not_stored_is_stored_before_the_next_turn(world, proxy):
    client = await world.client(proxy, config_cache_ttl=10**6)
    await world.limits(HUNDRED)
    await client.take(rpm=1)
    for _ in range(2):
        world.next_hour()
        with proxy.measure() as seen:
            await client.take(rpm=2)
    assert seen.requests[0].operation == USAGE
    assert seen.operations == {"UpdateItem": 1, USAGE: 1}
    assert seen.wcu == 2, "no index entry"
    [stored] = world.rows()[world.hour - 2].values()
    assert stored == {"rpm": (1000, 0), "": (1, 0, 0, 0, {})}


async def test_without_its_store_the_hour_is_not_turned(world, proxy):
    client = await world.client(proxy, request_timeout=2)
    await world.limits(HUNDRED)
    await client.take(rpm=1)
    world.next_hour()
    await client.take(rpm=2)
    world.next_hour()
    with (
        proxy.fault("error_before", operation=USAGE),
        pytest.raises(RateLimiterUnavailable),
    ):
        await client.take(rpm=4)
    assert int(world.item()["ph"]["N"]) == world.hour - 2
    await client.take(rpm=4)
    start = world.hour - 2
    assert world.counted() == {start: 1000, start + 1: 2000, start + 2: 4000}


async def test_killed_between_the_store_and_the_turn(world, proxy):
    client, other = await world.client(proxy, request_timeout=2), await world.client()
    await world.limits(HUNDRED)
    await client.take(rpm=1)
    world.next_hour()
    await client.take(rpm=2)
    world.next_hour()
    with proxy.fault("close", operation="UpdateItem"), pytest.raises(RateLimiterUnavailable):
        await client.take(rpm=4)  # stored, but not turned
    start = world.hour - 2
    await other.take(rpm=8)
    assert world.counted() == {start: 1000, start + 1: 2000, start + 2: 8000}


async def test_a_failed_announcement_is_no_failure(world, proxy):
    client = await world.client(proxy, config_cache_ttl=10**6)
    await world.limits(HUNDRED)
    with proxy.fault("deny", operation=USAGE):
        await client.take(rpm=1)
        world.next_hour()
        await client.take(rpm=2)
    assert world.counted() == {world.hour - 1: 1000, world.hour: 2000}


async def test_two_clients_at_the_border(world):
    first, second = await world.clients(2)
    await world.limits(HUNDRED)
    await first.take(rpm=1)
    await second.take(rpm=1)
    world.next_hour()
    await first.take(rpm=2)
    await second.take(rpm=4)  # sees the old hour
    assert world.counted() == {world.hour - 1: 2000, world.hour: 6000}
    assert world.events() == {world.hour - 1: 2, world.hour: 2}


async def test_many_clients_turn_at_once(world):
    clients = await world.clients(8)
    await world.limits(HUNDRED)
    for client in clients:
        await client.take(rpm=1)
    for _ in range(3):
        world.next_hour()
        assert not any(await together(*(client.take(rpm=2) for client in clients)))
    hour = world.hour
    assert world.counted() == {hour - 3: 8000, **{hour - i: 16_000 for i in range(3)}}


async def test_a_client_whose_clock_is_behind_counts_for_the_hour_that_runs(world):
    behind = await world.client(clock=lambda: world.clock() - 3_600_000)
    client = await world.client()
    await world.limits(Limit.per_day("rpm", 1000))
    await client.take(rpm=1)
    await behind.take(rpm=2)
    world.next_hour()
    await client.take(rpm=4)
    await behind.take(rpm=8)
    assert world.counted() == {world.hour - 1: 3000, world.hour: 12_000}


async def test_late_clients_do_not_fight_for_the_turn(world, proxy):
    clients = [await world.client(proxy, config_cache_ttl=10**6) for _ in range(16)]
    await world.limits(Limit.per_minute("rpm", 10_000))
    for _ in range(3):
        for client in clients:
            world.clock.advance(ms=1500)
            await client.take(rpm=1)
    for _ in range(2):
        world.next_hour()
        with proxy.measure() as seen:
            for client in clients:
                world.clock.advance(ms=1500)
                await client.take(rpm=1)
        extra = seen.wcu - 16 + seen.refused
        assert extra <= 3, (seen.wcu, seen.refused, seen.operations)
        assert seen.refused <= 1
    hour = world.hour
    assert world.counted() == {hour - 2: 48_000, hour - 1: 16_000, hour: 16_000}


async def test_one_client_costs_at_most_one_unit_more(world, proxy):
    """Within a day, without an aggregator: the store of the hour before."""
    client = await world.client(proxy, config_cache_ttl=10**6)
    await world.limits(HUNDRED)
    await client.take(rpm=1)
    for _ in range(3):
        world.next_hour()
        with proxy.measure() as seen:
            await client.take(rpm=1)
            await client.take(rpm=1)
        assert seen.wcu - 2 + seen.refused <= 1
        assert seen.refused == 0


async def test_a_group_and_a_debt_turn_too(world, client):
    world.next_hour()
    await client.owe(rpm=150)
    assert world.counted() == {world.hour - 1: 1000, world.hour: 150_000}
    world.next_hour()
    assert not any(await together(*(client.take(rpm=1) for _ in range(20))))
    assert world.counted()[world.hour] == 20_000


async def test_a_refund_after_the_border_is_of_the_new_hour(world, client):
    with failing():
        async with client.acquire(rpm=5):
            world.next_hour()
            raise Failure
    assert world.counted() == {world.hour - 1: 6000, world.hour: -5000}


async def test_a_refund_to_a_bucket_that_is_gone_is_counted(world):
    client = await world.client()
    await client.repo.set_system_defaults([HUNDRED])
    with failing():
        async with client.acquire(rpm=5):
            await client.repo.delete_entity(USER)
            raise Failure
    assert {"rpm": (-5000, 0), "": (0, 0, 0, 0, {})} in world.rows()[world.hour].values()
    assert world.counted() == {}


async def test_what_came_through_children_is_counted_apart(either):
    client = await either.family(child=[HUNDRED], parent=[HUNDRED])
    await client.take(rpm=1)
    await client.take(PARENT, rpm=2)
    either.next_hour()
    await client.take(PARENT, rpm=4)
    await client.take(rpm=8)
    either.next_hour()
    await client.take(rpm=16)
    hour = either.hour
    assert either.counted(entity_id=PARENT) == {hour - 2: 3000, hour - 1: 12_000, hour: 16_000}
    assert either.through(entity_id=PARENT) == {hour - 2: 1000, hour - 1: 8000, hour: 16_000}
    assert either.counted() == {hour - 2: 1000, hour - 1: 8000, hour: 16_000}
    assert either.through() == {}


async def test_rejections_are_counted_with_the_next_write_and_at_close(either):
    client = await either.client()
    await either.limits(Limit.per_minute("rpm", 10))
    await client.take(rpm=10)
    for _ in range(3):
        await client.refusal(rpm=5)
    either.clock.advance(minutes=1)
    await client.take(rpm=1)
    assert either.events(rejected=True) == {either.hour: 3}
    await client.refusal(rpm=50)
    await client.repo.close()
    assert either.events(rejected=True) == {either.hour: 4}


async def test_counts_that_no_write_takes_along_are_stored_in_the_background(either):
    """Also if the hour is over, and of a bucket that was never used."""
    client = await either.client()
    await client.repo.set_system_defaults([Limit.per_minute("rpm", 10)])
    await client.take(rpm=10)
    either.next_hour()
    buckets = client.repo._context.engine.buckets  # noqa: SLF001
    buckets._noted.after_s = 0.05  # noqa: SLF001 - instead of 30 s
    await client.refusal(rpm=50)
    await client.refusal("stranger", rpm=70)
    ends_s = time.monotonic() + 20
    while buckets._noted.by_bucket:  # noqa: SLF001
        assert time.monotonic() < ends_s
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.1)
    assert either.events(rejected=True) == {either.hour: 1}
    assert either.events("stranger", rejected=True) == {either.hour: 1}
    (hour,), _ = await client.repo.get_usage_snapshots("stranger", "api", "hourly")
    assert (hour.rejected, hour.rejected_amounts) == (1, {"rpm": 70})


async def test_another_configuration_at_the_border(world, client):
    world.next_hour()
    await world.limits(Limit.per_minute("rpm", 50), Limit.per_minute("tpm", 500))
    await client.repo.invalidate_config_cache()
    await client.take(rpm=2, tpm=3)
    world.next_hour()
    await client.take(rpm=4)
    hour = world.hour
    assert world.counted() == {hour - 2: 1000, hour - 1: 2000, hour: 4000}
    assert world.counted("tpm") == {hour - 1: 3000}


async def test_limits_of_calls_are_dropped_and_stay_counted(world, client):
    """With a finished hour in the item, which the drop has to store first."""
    world.next_hour()
    await client.take(rpm=1, limits=[Limit.per_minute("rpm", 7)])
    await client.take(rpm=2, limits=[Limit.per_minute("rpm", 8)])
    world.clock.advance(minutes=2)
    await client.take(rpm=4, limits=[Limit.per_minute("rpm", 9)])
    assert sum(name.startswith("t_") for name in world.item()) == 2
    assert world.counted() == {world.hour - 1: 1000, world.hour: 7000}
    world.next_hour()
    await client.take(rpm=8)
    assert world.counted() == {world.hour - 2: 1000, world.hour - 1: 7000, world.hour: 8000}


async def test_a_turn_whose_answer_is_lost_is_announced(world, proxy):
    client = await world.client(proxy, config_cache_ttl=10**6, request_timeout=2)
    await world.limits(HUNDRED)
    await client.take(rpm=1)
    world.next_hour(ms=24 * 3_600_000)
    with (
        proxy.fault("lose_answer", operation="UpdateItem"),
        proxy.fault("close", operation="GetItem"),
        pytest.raises(RateLimiterUnavailable),
    ):
        await client.take(rpm=2)
    await written_later(client.repo)
    assert int(world.item()["h"]["N"]) == world.hour
    assert list(world.marks()[world.day, 0].values()) == ["open"]


@pytest.mark.parametrize("kind", ["error_before", "error_after", "lose_answer"])
async def test_a_bucket_whose_first_write_fails_is_announced_as_it_was_made(world, proxy, kind):
    """A repeated write creates it under another origin."""
    client = await world.client(proxy)
    await world.limits(HUNDRED)
    await client.limiter.available(USER, API)  # reads the configuration
    with proxy.fault(kind, operation="UpdateItem", times=1) as fault:
        await client.take(rpm=1)
    assert fault.used == 1
    assert world.marks() == {(world.day, 0): {world.item()["o"]["S"]: "open"}}


async def test_a_first_write_that_is_found_after_midnight_is_announced_for_its_day(world, proxy):
    client, other = await world.client(proxy), await world.client()
    await world.limits(HUNDRED)
    await client.limiter.available(USER, API)  # reads the configuration
    world.clock.set((world.day + 1) * 24 * 3_600_000 - 1)
    with (
        proxy.measure() as measured,
        proxy.fault("lose_answer", operation="UpdateItem", times=1),
        proxy.fault("hold", operation="GetItem") as held,
    ):
        task = asyncio.ensure_future(client.take(rpm=1))
        await until_seen(measured, "GetItem")
        world.clock.advance(seconds=1)
        await other.take(rpm=2)
        held.remove()
        await task
    assert world.counted() == {world.hour - 1: 1000, world.hour: 2000}
    origin = world.item()["o"]["S"]
    assert world.marks() == {(world.day - back, 0): {origin: "open"} for back in range(2)}

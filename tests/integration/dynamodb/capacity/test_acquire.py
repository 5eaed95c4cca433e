"""What an acquire costs, counted at the socket."""

import pytest

from tests.integration.dynamodb.capacity.world import API, RPM, TPM, USER
from tests.support.dynamodb.seen import REGISTRY, USAGE
from zae_limiter import Limit

SLOW_IN_SYNC_TREE = True  # the same calls

WARM = "acquire, warm"
SECOND = Limit.per_second("rps", 10)


@pytest.fixture
async def client(configured):
    """Knows limits and bucket."""
    client = await configured.client()
    await client.take(rpm=1, tpm=100)
    return client


# --- warm


async def test_from_a_bucket_that_is_partly_used(client, cost_of):
    for _ in range(3):
        with cost_of(WARM):
            await client.take(rpm=1, tpm=100)


async def test_from_one_limit_of_two(client, cost_of):
    with cost_of(WARM):
        await client.take(rpm=1)


async def test_of_nothing_at_all(client, cost_of):
    with cost_of(WARM):
        await client.take()


async def test_from_a_bucket_that_is_full(client, clock, cost_of):
    clock.advance(seconds=1)
    assert await client.limiter.available(USER, API) == {"rpm": 60, "tpm": 6000}
    with cost_of(WARM):
        await client.take(rpm=1, tpm=100)


async def test_from_a_bucket_with_one_limit_full_and_one_used(client, clock, cost_of):
    await client.take(tpm=3000)
    clock.advance(seconds=2)
    with cost_of(WARM):
        await client.take(rpm=1, tpm=100)


async def test_all_that_a_full_bucket_holds(client, clock, cost_of):
    clock.advance(seconds=30)
    with cost_of(WARM):
        await client.take(rpm=60, tpm=6000)


async def test_the_last_that_a_bucket_holds(client, cost_of):
    with cost_of(WARM):
        await client.take(rpm=59)


async def test_at_the_limit_as_soon_as_it_fits_again(client, clock, cost_of):
    await client.take(rpm=59)
    for _ in range(3):
        refusal = await client.refusal(rpm=1)
        clock.advance(seconds=refusal.retry_after_seconds)
        with cost_of(WARM):
            await client.take(rpm=1)


async def test_after_idle_time_in_which_the_bucket_has_run_over(configured, clock, cost_of):
    await configured.admin.set_system_defaults([SECOND])
    client = await configured.client()
    await client.take(rps=10)
    clock.advance(seconds=47)
    with cost_of(WARM):
        await client.take(rps=10)


@pytest.mark.parametrize("days", [1, 30, 3650])
async def test_after_long_idle_time_when_the_configuration_is_still_cached(
    configured, clock, cost_of, days
):
    client = await configured.client(config_cache_ttl=30 * 366 * 86_400)
    await client.take(rpm=60)
    clock.advance(days=days)
    with cost_of("acquire, warm, first of a day"):
        await client.take(rpm=60)
    clock.advance(minutes=2)
    with cost_of(WARM):
        await client.take(rpm=60)
    clock.advance(days=days)
    with cost_of("acquire, warm, first of a day, the hour before last not stored"):
        await client.take(rpm=60)


async def test_later_hours_of_a_day(configured, clock, cost_of):
    client = await configured.client(config_cache_ttl=10**6)
    await client.take(rpm=60)
    clock.advance(hours=1)
    with cost_of("acquire, warm, first of an hour"):
        await client.take(rpm=60)
    for _ in range(3):
        clock.advance(hours=1)
        with cost_of("acquire, warm, first of an hour, the hour before last not stored"):
            await client.take(rpm=60)


async def test_from_a_bucket_that_is_never_forgotten(world, clock, cost_of):
    await world.admin.set_limits(USER, [RPM, TPM])
    client = await world.client()
    await client.take(rpm=1)
    for pause_s in (0, 1, 45):
        clock.advance(seconds=pause_s)
        with cost_of(WARM):
            await client.take(rpm=1)


async def test_with_limits_of_its_own_that_the_bucket_knows(client, cost_of):
    async def take():
        async with client.limiter.acquire(USER, API, {"rpm": 1}, [Limit.per_hour("rpm", 5)]):
            pass

    await take()
    with cost_of(WARM):
        await take()


async def test_after_a_rejection(client, cost_of):
    await client.refusal(rpm=60)
    with cost_of(WARM):
        await client.take(rpm=1)


# --- cold


async def test_the_first_of_a_process_when_the_bucket_is_new(configured, cost_of):
    client = await configured.client()
    with cost_of("acquire, first of a process, bucket is new") as seen:
        await client.take(rpm=1, tpm=100)
    of_resource = {"GetItem": 1, REGISTRY: 1}  # it is new, too
    assert seen.operations == {"BatchGetItem": 1, "UpdateItem": 1, USAGE: 1, **of_resource}


@pytest.mark.parametrize("used", [1, 59, 60])
async def test_the_first_of_a_process_when_the_bucket_exists(configured, clock, cost_of, used):
    await (await configured.client()).take(rpm=used)
    clock.advance(seconds=1)
    client = await configured.client()
    with cost_of("acquire, first of a process, bucket exists") as seen:
        await client.take(rpm=1)
    assert seen.operations == {"BatchGetItem": 1, "UpdateItem": 1}


async def test_the_first_of_a_process_when_the_bucket_is_full_again(configured, clock, cost_of):
    await (await configured.client()).take(rpm=1, tpm=100)
    clock.advance(seconds=30)
    client = await configured.client()
    with cost_of("acquire, first of a process, bucket exists"):
        await client.take(rpm=1, tpm=100)


async def test_when_the_cached_configuration_is_too_old(client, clock, cost_of):
    clock.advance(seconds=60)
    with cost_of("acquire, cached configuration too old"):
        await client.take(rpm=1)


# --- read first


async def test_with_a_read_first_when_warm(configured, cost_of):
    client = await configured.client(speculative_writes=False)
    await client.take(rpm=1)
    with cost_of("acquire, warm, `speculative_writes=False`") as seen:
        await client.take(rpm=1)
    assert seen.operations == {"GetItem": 1, "UpdateItem": 1}


async def test_with_a_read_first_when_the_bucket_is_full(configured, clock, cost_of):
    client = await configured.client(speculative_writes=False)
    await client.take(rpm=1)
    clock.advance(seconds=30)
    with cost_of("acquire, warm, `speculative_writes=False`"):
        await client.take(rpm=1)


async def test_a_rejection_with_a_read_first(configured, cost_of):
    client = await configured.client(speculative_writes=False)
    await client.take(rpm=1)
    with cost_of("rejection, `speculative_writes=False`"):
        await client.refusal(rpm=60)


# --- rejections


@pytest.fixture
async def asking(configured):
    """Asks the store also if it knows better."""
    client = await configured.client(rejection_cache_ttl=0)
    await client.take(rpm=1, tpm=100)
    return client


async def test_a_rejection(asking, cost_of):
    for _ in range(2):
        with cost_of("rejection") as seen:
            await asking.refusal(rpm=60)
        assert seen.refused == 1


async def test_a_rejection_of_more_than_the_capacity(asking, clock, cost_of):
    for _ in range(2):
        with cost_of("rejection"):
            await asking.refusal(rpm=61)
        clock.advance(seconds=10)


async def test_a_rejection_at_the_limit(asking, clock, cost_of):
    await asking.take(rpm=59)
    clock.advance(ms=999)
    with cost_of("rejection"):
        await asking.refusal(rpm=1)


async def test_a_rejection_by_what_others_have_left(configured, client, cost_of):
    await (await configured.client()).take(rpm=59)
    with cost_of("rejection"):
        await client.refusal(rpm=1)


async def test_a_rejection_that_was_to_be_expected(client, clock, cost_of):
    await client.take(rpm=59)
    for _ in range(3):
        with cost_of("rejection, known for less than `rejection_cache_ttl`"):
            await client.refusal(rpm=1)
        clock.advance(ms=300)

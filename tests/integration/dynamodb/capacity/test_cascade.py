"""A child and its parent: two buckets, side by side."""

import pytest

from tests.integration.dynamodb.capacity.world import API, PARENT, RPM, TPM, USER
from zae_limiter import Limit

SLOW_IN_SYNC_TREE = True  # the same calls

WARM = "acquire, warm, cascading"
SHORT = "rejection, cascading, one bucket is known to be short"
SURPRISE = "rejection, cascading, no bucket is known to be short"
OTHER = "user-2"


@pytest.fixture
async def client(family):
    client = await family.client()
    await client.take(rpm=1, tpm=100)
    return client


async def test_warm_and_both_at_the_same_time(client, clock, proxy, cost_of):
    proxy.link.request_ms = proxy.link.answer_ms = 50
    for pause_s in (0, 0.5, 45):
        clock.advance(seconds=pause_s)
        with cost_of(WARM) as seen:
            await client.take(rpm=1, tpm=100)
        assert seen.overlap == 2


async def test_the_first_of_a_process_when_the_buckets_are_new(family, cost_of):
    client = await family.client()
    with cost_of("acquire, first of a process, cascading, buckets are new"):
        await client.take(rpm=1, tpm=100)


async def test_the_first_of_a_process_when_the_buckets_exist(family, client, cost_of):
    other = await family.client()
    with cost_of("acquire, first of a process, cascading, buckets exist"):
        await other.take(rpm=1, tpm=100)


async def test_the_first_of_another_child(family, client, cost_of):
    await family.admin.create_entity(OTHER, parent_id=PARENT, cascade=True)
    with cost_of("acquire, first of another child of a known parent"):
        await client.take(OTHER, rpm=1, tpm=100)


async def test_with_a_read_first(family, cost_of):
    client = await family.client(speculative_writes=False)
    await client.take(rpm=1)
    with cost_of("acquire, warm, cascading, `speculative_writes=False`"):
        await client.take(rpm=1)


# --- rejections


@pytest.fixture
async def poor_child(family):
    await family.admin.set_limits(USER, [Limit.per_minute("rpm", 2), TPM], API)
    client = await family.client(rejection_cache_ttl=0)
    await client.take(rpm=2)
    return client


@pytest.fixture
async def poor_parent(family):
    await family.admin.set_limits(PARENT, [Limit.per_minute("rpm", 2), TPM], API)
    client = await family.client(rejection_cache_ttl=0)
    await client.take(rpm=2)
    return client


async def test_a_rejection_by_the_child(poor_child, cost_of):
    for _ in range(2):
        with cost_of(SHORT):
            await poor_child.refusal(rpm=1)


async def test_a_rejection_by_the_parent(poor_parent, cost_of):
    for _ in range(2):
        with cost_of(SHORT):
            await poor_parent.refusal(rpm=1)


async def test_a_rejection_by_both(family, cost_of):
    client = await family.client(rejection_cache_ttl=0)
    await client.take(rpm=60)
    with cost_of(SHORT):
        await client.refusal(rpm=1)


async def test_a_rejection_by_a_parent_that_others_have_emptied(family, cost_of):
    client = await family.client(rejection_cache_ttl=0)
    await client.take(rpm=1)
    await family.admin.create_entity(OTHER, parent_id=PARENT, cascade=True)
    await (await family.client()).take(OTHER, rpm=59)
    with cost_of(SURPRISE):
        await client.refusal(rpm=1)
    with cost_of(SHORT):
        await client.refusal(rpm=1)


async def test_a_rejection_by_a_child_that_others_have_emptied(family, cost_of):
    await family.admin.set_limits(PARENT, [Limit.per_minute("rpm", 600), TPM], API)
    client = await family.client(rejection_cache_ttl=0)
    await client.take(rpm=1)
    await (await family.client()).take(rpm=59)
    with cost_of(SURPRISE):
        await client.refusal(rpm=1)
    with cost_of(SHORT):
        await client.refusal(rpm=1)


@pytest.mark.parametrize("poor", [USER, PARENT])
async def test_a_rejection_that_was_to_be_expected(family, cost_of, poor):
    await family.admin.set_limits(poor, [Limit.per_minute("rpm", 2), TPM], API)
    client = await family.client()
    await client.take(rpm=2)
    with cost_of("rejection, known for less than `rejection_cache_ttl`"):
        await client.refusal(rpm=1)


async def test_an_acquire_when_only_the_parent_needs_another_try(family, client, clock, cost_of):
    """Others have filled up the surplus of the parent: the child's charge stays meanwhile."""
    await family.admin.create_entity(OTHER, parent_id=PARENT, cascade=True)
    clock.advance(seconds=10)
    await (await family.client()).take(OTHER, rpm=30)
    with cost_of("acquire, cascading, one bucket guessed wrong") as seen:
        await client.take(rpm=1)
    assert seen.refused == 1


async def test_a_parent_without_limits_is_not_asked(world, cost_of):
    await world.admin.create_entity(USER, parent_id=PARENT, cascade=True)
    await world.admin.set_limits(USER, [RPM, TPM])
    client = await world.client()
    await client.take(rpm=1)
    with cost_of("acquire, warm"):
        await client.take(rpm=1)

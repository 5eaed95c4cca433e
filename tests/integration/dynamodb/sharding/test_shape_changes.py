"""Clients that know another shape of a bucket than it has: everything they do is exact."""

import pytest

from tests.integration.dynamodb.sharding.world import EVEN, HUNDRED
from tests.support.dynamodb.world import API, USER, Failure
from zae_limiter import Limit

TPM = Limit.per_minute("tpm", 10_000)


async def nothing(world):
    """The shape is as the client knows it."""


async def merge_all(world):
    await world.merge_all()


async def to_halves(world):
    await world.merge(0, 1, 2, 3)
    await world.merge(0, 1)


async def elsewhere(world):
    await world.merge(0)
    await world.split(1)


async def forgotten(world):
    """Removed by the store itself."""
    for number in world.items():
        world.remove(number)


async def made_anew(world):
    await world.admin.delete_entity(USER)
    await world.limits(HUNDRED, TPM)
    await world.use(rpm=60)


def splitting(*numbers):
    async def split(world):
        await world.split(*numbers)

    return split


CHANGES = {
    "the same": (EVEN[4], nothing),
    "split": ((), splitting(*EVEN[4])),
    "split finely": ((), splitting(*EVEN[8])),
    "split further": (EVEN[2], splitting(0, 1, 0, 1)),
    "merged": (EVEN[4], merge_all),
    "merged in part": (EVEN[8], to_halves),
    "merged here, split there": ((0, 0), elsewhere),
    "forgotten": (EVEN[4], forgotten),
    "made anew": (EVEN[4], made_anew),
    "made anew, was split finely": (EVEN[8], made_anew),
}
# Finer than a change that is tried as well, or a part of it.
FINER = {"split finely", "split further", "merged in part", "made anew, was split finely"}
CHANGE = pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=name, marks=[pytest.mark.slow] if name in FINER else [])
        for name, change in CHANGES.items()
    ],
)


class Stale:
    """A client that held a lease of 30 while 60 of 100 were taken, when the bucket changed."""

    def __init__(self, world, client, lease, held, left):
        self.world, self.client, self.left = world, client, left
        self.lease, self.held = lease, held


@pytest.fixture
async def stale(world, change):
    known, changed = change
    await world.limits(HUNDRED, TPM)
    await world.use(rpm=0)
    await world.split(*known)
    client = await world.client()
    await client.take(rpm=30)
    await client.refusal(rpm=101)  # sees all that there is
    acquire = client.acquire(rpm=30)
    lease = await acquire.__aenter__()
    await changed(world)
    world.clock.advance(ms=600)  # one token; what was seen is no longer of this moment
    left = 100 if changed is forgotten else 41
    stale = Stale(world, client, lease, acquire, left)
    yield stale
    if stale.held is not None:
        await acquire.__aexit__(None, None, None)


def levels(world):
    """Whole tokens; a bucket that is not there is full."""
    if not world.items():
        return 100
    assert world.level() % 1000 == 0
    world.shards()
    return world.level() // 1000


async def end(stale, error=None):
    acquire, stale.held = stale.held, None
    await acquire.__aexit__(type(error) if error else None, error, None)


@pytest.mark.fast("the same", "merged here, split there")
@CHANGE
async def test_small_charges(stale, world):
    for _ in range(5):
        await stale.client.take(rpm=1)
    assert levels(world) == stale.left - 5


@pytest.mark.fast("merged", "made anew")
@CHANGE
async def test_all_that_there_is_and_no_more(stale, world):
    await stale.client.take(rpm=stale.left)
    assert levels(world) == 0
    await stale.client.refusal(rpm=1)


@pytest.mark.fast("split", "forgotten")
@CHANGE
async def test_all_that_there_is_token_by_token(stale, world):
    for _ in range(stale.left):
        await stale.client.take(rpm=1)
    await stale.client.refusal(rpm=1)
    assert levels(world) == 0


@pytest.mark.fast("merged", "made anew")
@CHANGE
async def test_a_refusal(stale, world):
    refusal = await stale.client.refusal(rpm=stale.left + 1)
    wait_ms = round(refusal.retry_after_seconds * 1000) if stale.left < 100 else 0
    assert {each.limit_name: each.available for each in refusal.statuses} == {
        "rpm": stale.left,
        "tpm": 10_000,
    }
    if wait_ms:
        world.clock.advance(ms=wait_ms - 1)
        assert not await stale.client.granted(rpm=stale.left + 1)
        world.clock.advance(ms=1)
        assert await stale.client.granted(rpm=stale.left + 1)


@pytest.mark.fast("merged", "made anew")
@CHANGE
async def test_a_lease_that_is_given_back(stale, world):
    await end(stale, Failure())
    assert levels(world) == min(100, stale.left + 30)


@pytest.mark.fast("3-split", "3-forgotten")
@CHANGE
@pytest.mark.parametrize("parts", [pytest.param(1, marks=pytest.mark.slow), 3])
async def test_releases(stale, world, parts):
    for _ in range(parts):
        await stale.lease.release(rpm=30 // parts)
    assert levels(world) == min(100, stale.left + 30)
    await end(stale)
    assert levels(world) == min(100, stale.left + 30)


@pytest.mark.fast("95-merged", "95-made anew")
@CHANGE
@pytest.mark.parametrize(
    "amount", [*(pytest.param(few, marks=pytest.mark.slow) for few in (10, 41)), 95]
)
async def test_debts(stale, world, amount):
    """Nobody owes anything as long as others have something."""
    await stale.lease.adjust(rpm=amount)
    await end(stale)
    assert levels(world) == stale.left - amount
    found = world.levels().values()
    assert min(found) >= 0 or max(found) <= 0
    if stale.left < amount:
        await stale.client.refusal(rpm=0)


@pytest.mark.fast("split", "forgotten")
@CHANGE
async def test_more_of_the_lease(stale, world):
    await stale.lease.consume(rpm=stale.left)
    assert levels(world) == 0
    await end(stale, Failure())
    assert levels(world) == min(100, stale.left + 30)


@pytest.mark.fast("merged", "made anew")
@CHANGE
async def test_resets(stale, world):
    await stale.client.repo.reset_bucket(USER, API)
    assert levels(world) == 100
    await stale.client.take(rpm=100)
    assert levels(world) == 0


@pytest.mark.fast("60-the same", "60-merged here, split there")
@CHANGE
@pytest.mark.parametrize(
    "amount", [60, *(pytest.param(other, marks=pytest.mark.slow) for other in (10, 1000))]
)
async def test_top_ups(stale, world, amount):
    await stale.client.repo.top_up(USER, API, {"rpm": amount})
    assert levels(world) == min(100, stale.left + amount)


@pytest.mark.fast("the same", "merged here, split there")
@CHANGE
async def test_consumption_is_what_was_used(stale, world):
    before = world.spent() if world.items() else 0  # a bucket that is made anew counts anew
    await stale.client.take(rpm=10)
    await stale.client.take(rpm=30)
    await end(stale, Failure())
    assert world.spent() - before == 10_000


async def test_shards_that_a_deleted_entity_has_left_do_no_harm(world):
    """A shard that was split off while its entity was deleted."""
    await world.limits(HUNDRED)
    await world.use(rpm=0)
    await world.split(0)
    orphan = world.items()[1]
    await world.admin.delete_entity(USER)
    world.put(orphan)
    await world.limits(HUNDRED)
    client = await world.client()
    await client.take(rpm=60)
    await client.refusal(rpm=41)
    [bucket] = await client.repo.get_buckets(USER, API)
    assert bucket.tokens == 40
    [bucket] = await client.repo.get_buckets(USER)
    assert bucket.tokens == 40
    await world.split(0)
    assert world.level() == 40_000
    await client.take(rpm=40)
    await client.refusal(rpm=1)


async def test_a_deletion_while_others_know_the_shards_leaves_nothing(world):
    await world.limits(HUNDRED)
    await world.use(rpm=50)
    await world.split(*EVEN[8])
    client = await world.client()
    await client.take(rpm=1)
    await world.admin.delete_entity(USER)
    assert world.items() == {}
    assert await client.repo.get_buckets(USER) == []

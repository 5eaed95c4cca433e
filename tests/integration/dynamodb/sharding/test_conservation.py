"""Nothing is made and nothing is lost, whatever processes do to a bucket and to each other.

What was taken, net of all that was given back, and what is left add up to what there was at the
beginning and what has accrued since. That is so exactly, to less than a millitoken for each shard,
since each rounds its level down, as long as no shard is full: what accrues in a full one runs over.
Debts are negative levels and change nothing in the sum. Of a process that was killed, each step
that was under way counts as made or not made: a charge that nobody heard of, or a lease that was to
be given back. The latter may also be made in part: what a shard can not hold goes to the others in
further writes. Leases that it held stay charged.

Limits that bring next to nothing in the time of a test leave no room for anything else. Their
balances are those of six years since the epoch all the same, so that a shard that were charged at
another one's rate would be off by millions.
"""

import asyncio
import random
import time

import pytest

from tests.integration.dynamodb.sharding.crowd import Crowd
from tests.integration.dynamodb.sharding.world import World
from tests.support.dynamodb.world import API, USER
from zae_limiter import Limit
from zae_limiter.clock import HostClock

SHARDS = 32
STEADY = (Limit.custom("rpm", 1_000_000, 1, 60), Limit.custom("slow", 3_000_000, 1, 86_400))
# Another rate of the same capacity: a smaller one would cut what a full shard holds.
FASTER_REFILL = (
    Limit.custom("rpm", 1_000_000, 2, 60),
    Limit.custom("slow", 3_000_000, 1, 86_400),
)
PLAN = {
    "tasks": 4,
    "shapes": True,
    "numbers": 16,
    "splits": 0.5,
    "pause_s": 0.02,
    "stopped": 0.1,
    "refusals": 0.2,
    "large": 0.06,
    "little": {"rpm": [1, 50], "slow": [0, 3]},
    "much": {"rpm": [20_000, 200_000], "slow": [0, 400_000]},
}
EMPTY = PLAN | {
    "little": {"rpm": [100, 6_000], "slow": [0, 20_000]},
    "much": {"rpm": [50_000, 400_000], "slow": [0, 500_000]},
}
FAST = (Limit.custom("rpm", 600, 300, 1), Limit.custom("slow", 2_000, 2, 1))
FASTER = (Limit.custom("rpm", 800, 400, 1), Limit.custom("slow", 2_000, 2, 1))
GREEDY = PLAN | {
    "numbers": 4,
    "large": 0.1,
    "pause_s": 0.01,
    "little": {"rpm": [1, 20], "slow": [0, 1]},
    "much": {"rpm": [100, 300], "slow": [0, 200]},
}


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """With the real time, which all processes share."""
    async with World(stack, endpoint, unique_name, clock=HostClock()) as world:
        yield world


@pytest.fixture
def crowd(world, tmp_path):
    with Crowd(world, tmp_path) as crowd:
        yield crowd


async def live(world, crowd, plan, seed, seconds, changes):
    """Some processes live on, others are killed and replaced; limits change now and then."""
    chance, ends = random.Random(seed), time.monotonic() + seconds
    others = plan | {"stopped": 0}
    long_lived = [crowd.start(seed, "async", seconds, plan)]
    victims = [
        crowd.start(seed + 1, "async", 3600, plan),
        crowd.start(seed + 2, "sync", 3600, others),
    ]
    await begun(*long_lived, *victims)
    while time.monotonic() < ends:
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        position = chance.randrange(len(victims))
        victims[position].kill()
        tree = chance.choice(("async", "async", "sync"))
        fresh = crowd.start(chance.randrange(10**9), tree, 3600, others if tree == "sync" else plan)
        victims[position] = fresh
        await world.limits(*chance.choice(changes))
        await begun(fresh)
    for child in victims:
        child.kill()
    for child in long_lived:
        assert child.finished()
    await asyncio.sleep(0.3)  # what the killed have sent arrives


async def begun(*children):
    async with asyncio.timeout(30):
        while not all(child.has_begun for child in children):  # noqa: ASYNC110 - processes
            await asyncio.sleep(0.02)


def check(world, crowd, before):
    """``before`` is what each limit held; see above."""
    world.shards()
    done, doubts = crowd.steps()
    charges = [high for _, high in doubts if any(high.values())]
    refunds = [low for low, _ in doubts if any(low.values())]
    missing = {}  # millitokens that only the steps in doubt can explain: the least, the most
    for limit in STEADY:
        name = limit.name
        accrued = 1000 * 2 * 60 // limit.refill_period_seconds  # at the faster of the rates
        taken = before[name] - world.level(name) - 1000 * sum(net.get(name, 0) for net in done)
        returned = -1000 * sum(refund.get(name, 0) for refund in refunds)
        missing[name] = (taken - SHARDS, taken + accrued + returned)
    assert explained(missing, charges), (missing, charges, refunds)


def explained(missing, charges):
    """Whether some of the charges in doubt, all limits of each, are what is missing.

    With many of them, almost any sum can be made, and only the most that they come to counts.
    """
    if len(charges) > 14:
        return all(
            low <= 1000 * sum(charge.get(name, 0) for charge in charges) and high >= 0
            for name, (low, high) in missing.items()
        )
    found = [dict.fromkeys(missing, 0)]
    for charge in charges:
        found += [
            {name: sum_ + 1000 * charge.get(name, 0) for name, sum_ in each.items()}
            for each in found
        ]
    return any(
        all(low <= each[name] <= high for name, (low, high) in missing.items()) for each in found
    )


async def check_merged(world):
    """Shards that are merged are as full as they were."""
    await world.limits(*STEADY)
    client = await world.client()
    async with asyncio.timeout(20):
        while len({item["lh"]["S"] for item in world.items().values()}) > 1:
            if not await client.granted(rpm=0):  # brings the same limits to all that it has seen
                await world.admin.top_up(USER, API, {"rpm": 10_000, "slow": 10_000})
    before = {limit.name: world.level(limit.name) for limit in STEADY}
    await world.merge_all()
    assert world.shards() == {0: 1}
    for name, level in before.items():
        assert level <= world.level(name) <= level + 2 * SHARDS


async def conserved(world, crowd, plan, seed, seconds, used):
    await world.limits(*STEADY)
    await world.use(**used)
    before = {limit.name: world.level(limit.name) for limit in STEADY}
    await live(world, crowd, plan, seed, seconds, [STEADY, FASTER_REFILL])
    counts = crowd.counts()
    assert not crowd.lines("doubt")
    assert all(lost == 0 for _, lost in crowd.lines("over"))
    assert min(counts["split"], counts["merge"]) > 3
    check(world, crowd, before)
    await check_merged(world)


async def greedy(world, crowd, seed, seconds):
    start_ms = world.clock()
    await world.limits(*FAST)
    await world.use(rpm=0)
    await live(world, crowd, GREEDY, seed, seconds, [FAST, FASTER])
    counts = crowd.counts()
    elapsed_ms = world.clock() - start_ms + 20
    world.shards()
    for limit in FASTER:
        least, _ = crowd.net(limit.name)
        accrued = limit.refill_amount * elapsed_ms // limit.refill_period_seconds
        held = 1000 * least + world.level(limit.name)
        assert held <= 1000 * limit.capacity + accrued + SHARDS * len(crowd.children), limit.name
    _, most = crowd.net("rpm")
    # While they run: how long they take to start depends on the machine.
    least_brought = 1000 * FAST[0].capacity + FAST[0].refill_amount * 1000 * seconds
    assert 2000 * most > least_brought
    assert min(counts["split"], counts["merge"]) > 3


HALF = {"rpm": 500_000, "slow": 1_500_000}


@pytest.mark.parametrize("seed", [1])
async def test_a_bucket_that_is_neither_full_nor_empty(world, crowd, seed):
    await conserved(world, crowd, PLAN, seed, 3, HALF)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2])
async def test_a_bucket_that_is_empty_most_of_the_time(world, crowd, seed):
    await conserved(world, crowd, EMPTY, seed, 3, HALF)


@pytest.mark.parametrize("seed", [3])
async def test_a_fast_bucket_that_all_processes_want_all_of(world, crowd, seed):
    """It runs over now and then, so this has only one side: never more than there can be.

    Processes agree on the time to a few milliseconds. Most of what there is, they get.
    """
    await greedy(world, crowd, seed, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("plan", [PLAN, EMPTY], ids=["half full", "empty"])
async def test_for_long(world, crowd, plan, seed):
    await conserved(world, crowd, plan, seed, 30, HALF)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 205))
async def test_a_fast_bucket_for_long(world, crowd, seed):
    await greedy(world, crowd, seed, 30)

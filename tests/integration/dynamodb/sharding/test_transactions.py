"""Splits and merges as they are planned and sent to the server: conserved or refused."""

import dataclasses
from itertools import pairwise

import pytest

from tests.integration.dynamodb.sharding.world import EVEN, HUNDRED
from tests.support.dynamodb.world import API, USER
from zae_limiter import Limit
from zae_limiter.admission.image import Rate
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.items.sharding import transactions
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored.attributes import n, s


@pytest.fixture
async def bucket(world):
    """Make the bucket of a hundred a minute: of one item, or split, with so many tokens taken."""

    async def make(taken=0, split=()):
        await world.limits(HUNDRED)
        await world.use(rpm=taken)
        await world.split(*split)

    return make


def generation(world, number=0):
    return int(world.item(number=number)["g"]["N"])


@pytest.mark.fast("70", "over 100")
@pytest.mark.parametrize("idle_s", [0, 7, 20, 3000], ids=["70", "near 80", "over 100", "overfull"])
async def test_a_split_cuts_what_is_there_in_two(world, bucket, idle_s):
    await bucket(taken=30)
    world.clock.advance(seconds=idle_s)
    before = world.level()
    await world.split(0)
    assert world.shards() == {0: 2, 1: 2}
    levels = world.levels()
    assert before - 1 <= sum(levels.values()) <= before
    assert abs(levels[0] - levels[1]) <= 1
    world.clock.advance(days=1)
    assert world.levels() == {0: 50_000, 1: 50_000}


async def test_a_debt_is_split_as_well(world, bucket):
    await bucket(taken=100)
    world.take_from(0, 60_001)
    balance = world.balance()
    await world.split(0)
    assert world.balance() == balance
    assert set(world.levels().values()) <= {-30_000, -30_001, -30_002}


async def test_a_new_shard_has_all_that_belongs_to_the_bucket_and_counts_from_zero(world, bucket):
    await world.admin.create_entity(USER, parent_id="org", cascade=True)
    await bucket(taken=30)
    item = world.item()
    await world.split(0)
    old, new = world.item(number=0), world.item(number=1)
    for name in ("lh", "cv", "p_rpm", "GSI2PK", "GSI3PK", "GSI4PK", "cascade", "parent_id"):
        assert new[name] == old[name] == item[name]
    assert (new["c_rpm"], new["ac"], new["wc"]) == (n(0), n(0), n(1))
    assert old["c_rpm"] == item["c_rpm"]
    assert old["g"] == new["g"] == n(int(item["g"]["N"]) + 1)
    assert new.keys() <= old.keys()
    assert new["GSI2SK"] == s(f"BUCKET#{USER}#1")
    assert new["GSI3SK"] == s(f"BUCKET#{API}#1")


async def test_a_shard_never_expires_and_the_last_merge_sets_the_ttl_of_the_bucket(world):
    await world.admin.set_system_defaults([HUNDRED])
    await world.use(rpm=30)
    assert "ttl" in world.item()
    await world.split(0, 0)
    assert not any("ttl" in item for item in world.items().values())
    await world.merge(0)
    assert not any("ttl" in item for item in world.items().values())
    await world.merge(0)
    assert int(world.item()["ttl"]["N"]) * 1000 >= world.clock() + 30 * 600


async def test_what_is_merged_again_is_as_if_it_had_never_been_split(world, bucket):
    await bucket(taken=30)
    item = world.item()
    world.clock.advance(seconds=1.234)
    await world.split(0)
    world.clock.advance(seconds=3.077)
    await world.merge(0)
    merged = world.item()
    assert merged["t_rpm"] == item["t_rpm"]
    assert merged["n"] == n(1)
    assert int(merged["g"]["N"]) == int(item["g"]["N"]) + 2
    assert world.shards() == {0: 1}


async def test_thirty_two_shards_and_back_again_cost_nothing(world, bucket):
    await bucket(taken=99)
    balance = world.balance()
    for number in EVEN[32]:
        world.clock.advance(ms=77)
        await world.split(number)
    assert world.balance() == balance
    assert world.shards() == dict.fromkeys(range(32), 32)
    while len(world.items()) > 1:
        for number in range(len(world.items()) // 2):
            world.clock.advance(ms=13)
            await world.merge(number)
        assert world.balance() == balance
    assert world.shards() == {0: 1}


async def test_a_shard_that_comes_back_is_of_a_later_generation(world, bucket):
    await bucket()
    seen = []
    for _ in range(3):
        await world.split(0, 1)
        seen.append(generation(world, 1))
        await world.merge(1, 0)
        seen.append(generation(world))
    assert all(earlier < later for earlier, later in pairwise(seen))


async def test_the_largest_limits_stay_exact(world):
    """Balances of 30 digits."""
    await world.limits(Limit.custom("rpm", 10**15, 10**15, 1), Limit.per_day("tpd", 3_000_000))
    await world.use(rpm=5 * 10**14)
    before = world.balance()
    await world.split(0, 0, 1)
    assert world.balance() == before
    await world.merge_all()
    assert world.balance() == before


# --- while other processes write


async def test_a_split_lets_others_take_meanwhile_as_long_as_half_is_left(world, bucket):
    await bucket(taken=20)
    planned = world.planned_split()
    world.take_from(0, 40_000)
    balance = world.balance()
    assert world.transact(planned)
    assert world.balance() == balance
    assert world.levels() == {0: 0, 1: 40_000}


async def test_a_split_is_refused_if_more_than_half_is_gone_and_nothing_changes(world, bucket):
    await bucket(taken=20)
    planned = world.planned_split()
    world.take_from(0, 40_001)
    assert not world.transact(planned)
    assert list(world.items()) == [0]
    await world.split(0)


async def test_a_nearly_empty_shard_can_be_split_while_it_is_drained(world, bucket):
    await bucket(taken=95)
    planned = world.planned_split()
    world.take_from(0, 5000)
    assert world.transact(planned)
    assert world.levels() == {0: 0, 1: 0}


async def test_a_split_is_refused_after_a_credit(world, bucket):
    await bucket(taken=50)
    async with world.limiter.acquire(USER, API, {"rpm": 1}) as lease:
        planned = world.planned_split()
        await lease.adjust(rpm=-1)
    assert not world.transact(planned)
    assert list(world.items()) == [0]


@pytest.mark.parametrize("attribute", ["n", "lh", "g"])
async def test_a_split_is_refused_if_the_shard_has_become_another(world, bucket, attribute):
    await bucket(taken=50)
    planned = world.planned_split()
    replace(world, 0, attribute)
    assert not world.transact(planned)
    assert list(world.items()) == [0]


async def test_of_two_splits_of_one_shard_one_succeeds(world, bucket):
    await bucket(taken=50)
    first, second = world.planned_split(), world.planned_split()
    assert [world.transact(first), world.transact(second)] == [True, False]
    assert world.shards() == {0: 2, 1: 2}


async def test_a_merge_is_refused_if_the_sibling_was_written_to(world, bucket):
    await bucket(taken=50, split=(0,))
    planned = world.planned_merge(0, 1)
    world.take_from(1, 1)
    assert not world.transact(planned)
    assert world.shards() == {0: 2, 1: 2}


async def test_a_merge_lets_others_take_from_the_survivor(world, bucket):
    await bucket(taken=50, split=(0,))
    planned = world.planned_merge(0, 1)
    world.take_from(0, 25_000)
    assert world.transact(planned)
    assert world.level() == 25_000


async def test_a_merge_cuts_off_only_what_each_has_run_over(world, bucket):
    await bucket(split=(0,))
    world.take_from(1, 50_000)
    world.clock.advance(seconds=12)  # 10 tokens for each, of which the first has no use
    await world.merge(0)
    assert world.level() == 60_000


@pytest.mark.each_value_once
@pytest.mark.parametrize("attribute", ["n", "lh", "g"])
@pytest.mark.parametrize("number", [0, 1])
async def test_a_merge_is_refused_if_one_of_the_shards_has_become_another(
    world, bucket, attribute, number
):
    await bucket(taken=50, split=(0,))
    planned = world.planned_merge(0, 1)
    replace(world, number, attribute)
    assert not world.transact(planned)
    assert list(world.items()) == [0, 1]


async def test_only_two_halves_with_the_same_limits_can_be_merged(world, bucket):
    await bucket(split=(0, 0))
    zero, one, two = map(bucket_item.decode, world.items().values())
    assert (zero.shard, one.shard, two.shard) == (Shard(0, 4), Shard(1, 2), Shard(2, 4))
    assert transactions.can_merge(zero, two)
    assert not transactions.can_merge(two, zero)
    assert not transactions.can_merge(zero, one)
    assert not transactions.can_merge(zero, dataclasses.replace(two, rates={"rpm": Rate(1, 1, 1)}))


async def test_a_shard_of_a_deleted_bucket_is_swept_before_the_new_one_is_split(world, bucket):
    """Shard 1 has outlived its bucket, which then was made anew."""
    await bucket(taken=50, split=(0,))
    world.remove(0)
    newcomer = await world.client()
    await newcomer.take(rpm=10)
    whole, orphan = world.items().values()
    assert n(1) == whole["n"]
    assert not world.transact(transactions.split(whole, world.clock(), "planned"))
    assert not world.transact(transactions.remove_orphan({**whole, "g": n(99)}, orphan))
    assert not world.transact(transactions.remove_orphan(whole, {**orphan, "g": n(99)}))
    assert world.transact(transactions.remove_orphan(whole, orphan))
    assert world.shards() == {0: 1}
    await world.split(0)


def replace(world, number, attribute):
    """Another process has changed the shape, the limits or the generation of a shard."""
    changed = s("other") if attribute == "lh" else n(7)
    world.update(number, f"SET {attribute} = :it", values={":it": changed})

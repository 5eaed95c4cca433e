"""Splits, merges and gathered charges on the real server: conserved or refused."""

from itertools import pairwise

import pytest

from tests.integration.dynamodb.shards.accounts import level
from tests.integration.dynamodb.shards.hand import LIMITS, PLACE
from zae_limiter import Limit
from zae_limiter.admission.moves import Wanted
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.records.dynamodb import bucket_item, bucket_shards
from zae_limiter.records.dynamodb.attributes import n, s
from zae_limiter.records.dynamodb.bucket_item import Family
from zae_limiter.testing import FakeClock
from zae_limiter.transport.errors import ConditionFailed

HUNDRED = (Limit.per_minute("rpm", 100),)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def hand(hands, clock):
    return hands(limits=HUNDRED, clock=clock)


def raw(hand, expression, values, number=0):
    """A change by other means."""
    body = {
        "Key": bucket_item.key(*PLACE, number),
        "UpdateExpression": expression,
        "ExpressionAttributeValues": values,
    }
    hand.client.call("UpdateItem", body)
    return hand.read(number)


@pytest.mark.parametrize("idle_s", [0, 7, 20, 3000], ids=["70", "near 80", "over 100", "overfull"])
def test_a_split_cuts_what_is_there_in_two(hand, accounts, clock, idle_s):
    hand.create(rpm=30_000)
    clock.advance(seconds=idle_s)
    before = accounts.level("rpm", clock())
    assert hand.split(0)
    assert accounts.shards() == {0: 2, 1: 2}
    levels = accounts.levels("rpm", clock())
    assert before - 1 <= sum(levels.values()) <= before
    assert abs(levels[0] - levels[1]) <= 1
    clock.advance(days=1)
    assert accounts.levels("rpm", clock()) == {0: 50_000, 1: 50_000}


def test_a_debt_is_split_as_well(hand, accounts, clock):
    hand.create(rpm=100_000)
    hand.update(0, {"rpm": Wanted(owed_milli=60_001)})
    balance = accounts.balance("rpm")
    assert hand.split(0)
    assert accounts.balance("rpm") == balance
    assert set(accounts.levels("rpm", clock()).values()) <= {-30_000, -30_001, -30_002}


def test_a_new_shard_has_all_that_belongs_to_the_bucket_and_counts_from_zero(hand):
    item = hand.create(Family("org", cascade=True), rpm=30_000)
    assert hand.split(0)
    old, new = hand.read(0), hand.read(1)
    for name in ("lh", "cv", "p_rpm", "GSI2PK", "GSI3PK", "GSI4PK", "cascade", "parent_id"):
        assert new[name] == old[name] == item[name]
    assert (new["c_rpm"], new["ac"], new["wc"]) == (n(0), n(0), n(1))
    assert old["c_rpm"] == item["c_rpm"]
    assert old["g"] == new["g"] == n(int(item["g"]["N"]) + 1)
    assert new.keys() <= old.keys()
    assert new["GSI2SK"] == s("BUCKET#user#1")
    assert new["GSI3SK"] == s("BUCKET#api#1")


def test_a_shard_is_never_forgotten_and_the_last_merge_says_until_when_the_bucket_is(hand, clock):
    hand.create(rpm=30_000)
    body = {
        "Key": bucket_item.key(*PLACE),
        "UpdateExpression": "SET #ttl = :ttl",
        "ExpressionAttributeNames": {"#ttl": "ttl"},
        "ExpressionAttributeValues": {":ttl": n(clock() // 1000 + 60)},
    }
    hand.client.call("UpdateItem", body)
    assert hand.split(0)
    assert hand.split(0)
    for number in (0, 1, 2):
        assert "ttl" not in hand.read(number)
    assert hand.merge(0, clock() + 60_500)
    assert "ttl" not in hand.read(0)
    assert hand.merge(0, clock() + 60_500)
    assert int(hand.read(0)["ttl"]["N"]) * 1000 >= clock() + 60_500


def test_what_is_merged_again_is_as_if_it_had_never_been_split(hand, accounts, clock):
    item = hand.create(rpm=30_000)
    clock.advance(seconds=1.234)
    assert hand.split(0)
    clock.advance(seconds=3.077)
    assert hand.merge(0)
    merged = hand.read(0)
    assert merged["t_rpm"] == item["t_rpm"]
    assert merged["n"] == n(1)
    assert int(merged["g"]["N"]) == int(item["g"]["N"]) + 2
    assert accounts.shards() == {0: 1}


def test_thirty_two_shards_and_back_again_cost_nothing(hand, accounts, clock):
    hand.create(rpm=99_000)
    balance = accounts.balance("rpm")
    for _ in range(5):
        for number in list(accounts.items()):
            clock.advance(ms=77)
            assert hand.split(number)
            assert accounts.balance("rpm") == balance
    assert accounts.shards() == dict.fromkeys(range(32), 32)
    while len(accounts.items()) > 1:
        half = len(accounts.items()) // 2
        for number in range(half):
            clock.advance(ms=13)
            assert hand.merge(number)
            assert accounts.balance("rpm") == balance
    assert accounts.shards() == {0: 1}


def test_a_shard_that_comes_back_is_of_a_later_generation(hand):
    hand.create()
    seen = []
    for _ in range(3):
        assert hand.split(0)
        assert hand.split(1)  # counts on by itself
        seen.append(int(hand.read(1)["g"]["N"]))
        assert hand.merge(1)
        assert hand.merge(0)
        seen.append(int(hand.read(0)["g"]["N"]))
    assert all(earlier < later for earlier, later in pairwise(seen))


# --- while others write


def test_a_split_lets_others_take_meanwhile_as_long_as_half_is_left(hand, hands, accounts, clock):
    item = hand.create(rpm=20_000)
    other = hands(limits=HUNDRED, clock=clock)
    other.read(0)
    planned = hand.planned_split(item)
    assert other.charge(rpm=40_000)
    balance = accounts.balance("rpm")
    assert hand.transact(planned)
    assert accounts.balance("rpm") == balance
    assert accounts.levels("rpm", clock()) == {0: 0, 1: 40_000}


def test_a_split_is_refused_if_more_than_half_is_gone_and_nothing_changes(hand, hands, clock):
    item = hand.create(rpm=20_000)
    other = hands(limits=HUNDRED, clock=clock)
    other.read(0)
    planned = hand.planned_split(item)
    assert other.charge(rpm=40_001)
    assert not hand.transact(planned)
    assert hand.read(1) is None
    assert hand.split(0)


def test_a_nearly_empty_shard_can_be_split_while_it_is_drained(hand, hands, accounts, clock):
    item = hand.create(rpm=95_000)
    other = hands(limits=HUNDRED, clock=clock)
    other.read(0)
    planned = hand.planned_split(item)
    assert other.charge(rpm=5000)
    assert hand.transact(planned)
    assert accounts.levels("rpm", clock()) == {0: 0, 1: 0}


def test_a_split_is_refused_after_a_credit(hand, clock):
    item = hand.create(rpm=50_000)
    planned = hand.planned_split(item)
    hand.update(0, {"rpm": Wanted(returned_milli=1)})
    assert not hand.transact(planned)
    assert hand.read(1) is None


@pytest.mark.parametrize("attribute", ["n", "lh", "g"])
def test_a_split_is_refused_if_the_shard_has_become_another(hand, attribute):
    item = hand.create(rpm=50_000)
    planned = hand.planned_split(item)
    changed = s("other") if attribute == "lh" else n(7)
    raw(hand, f"SET {attribute} = :it", {":it": changed})
    assert not hand.transact(planned)
    assert hand.read(1) is None


def test_of_two_who_split_one_succeeds(hand, accounts):
    item = hand.create(rpm=50_000)
    first, second = hand.planned_split(item), hand.planned_split(item)
    assert [hand.transact(first), hand.transact(second)] == [True, False]
    assert accounts.shards() == {0: 2, 1: 2}


def test_a_merge_is_refused_if_the_sibling_was_written_to(hand, accounts, clock):
    hand.create(rpm=50_000)
    assert hand.split(0)
    kept, gone = hand.read(0), hand.read(1)
    planned = bucket_shards.merge(kept, gone, clock(), "m")
    hand.update(1, {"rpm": Wanted(1, asked=True)})
    assert not hand.transact(planned)
    assert accounts.shards() == {0: 2, 1: 2}


def test_a_merge_lets_others_take_from_the_survivor(hand, accounts, clock):
    hand.create(rpm=50_000)
    assert hand.split(0)
    planned = bucket_shards.merge(hand.read(0), hand.read(1), clock(), "m")
    hand.update(0, {"rpm": Wanted(25_000, asked=True)})
    assert hand.transact(planned)
    assert accounts.level("rpm", clock()) == 25_000


def test_a_merge_cuts_off_only_what_each_has_run_over(hand, accounts, clock):
    hand.create()
    assert hand.split(0)
    hand.read(1)
    hand.update(1, {"rpm": Wanted(50_000, asked=True)})
    clock.advance(seconds=12)  # 10 tokens for each, of which the first has no use
    assert hand.merge(0)
    assert accounts.level("rpm", clock()) == 60_000


@pytest.mark.parametrize("attribute", ["n", "lh", "g"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_merge_is_refused_if_one_of_the_shards_has_become_another(hand, clock, attribute, number):
    hand.create(rpm=50_000)
    assert hand.split(0)
    planned = bucket_shards.merge(hand.read(0), hand.read(1), clock(), "m")
    changed = s("other") if attribute == "lh" else n(7)
    raw(hand, f"SET {attribute} = :it", {":it": changed}, number)
    assert not hand.transact(planned)
    assert hand.read(1) is not None


def test_only_two_halves_with_the_same_limits_can_be_merged(hand, clock):
    hand.create()
    assert hand.split(0)
    assert hand.split(0)
    zero, one, two = (bucket_item.decode(hand.read(number)) for number in range(3))
    assert (zero.shard, one.shard, two.shard) == (Shard(0, 4), Shard(1, 2), Shard(2, 4))
    assert bucket_shards.can_merge(zero, two)
    assert not bucket_shards.can_merge(two, zero)
    assert not bucket_shards.can_merge(zero, one)
    other = two._replace(digest="other")
    assert not bucket_shards.can_merge(zero, other)


def test_who_does_not_know_of_a_split_is_shown_it(hand, hands, clock):
    hand.create()
    late = hands(limits=HUNDRED, clock=clock)
    late.read(0)
    assert hand.split(0)
    bucket = bucket_item.decode(late.items[0])
    assert late.update(0, {"rpm": Wanted(1000, asked=True)}) is None
    assert bucket_item.decode(late.items[0]).shard == Shard(0, 2)
    assert bucket.shard.n == 1
    assert late.charge(rpm=1000)


def test_who_does_not_know_of_a_merge_finds_the_bucket_again(hand, hands, clock):
    hand.create()
    assert hand.split(0)
    assert hand.split(1)
    late = hands(limits=HUNDRED, clock=clock)
    late.read_all()
    assert hand.merge(1)
    assert hand.merge(0)
    with pytest.raises(ConditionFailed):
        late.client.call(
            "UpdateItem",
            {
                "Key": bucket_item.key(*PLACE, 3),
                "UpdateExpression": "ADD c_rpm :one",
                "ConditionExpression": "attribute_exists(PK)",
                "ExpressionAttributeValues": {":one": n(1)},
            },
        )
    late.learn(3, None)
    assert late.known() == [Shard(0, 2), Shard(1, 2)]
    assert list(late.read_all()) == [Shard(0, 1)]


# --- gathered charges, debts and credits


def test_a_charge_is_gathered_exactly_and_counted_once(hand, accounts, clock):
    hand.create(rpm=50_000)
    assert hand.split(0)
    assert hand.split(0)
    before = accounts.level("rpm", clock())
    admitted = sum(int(item["ac"]["N"]) for item in accounts.items().values())
    assert hand.gather(rpm=30_000)
    assert accounts.level("rpm", clock()) == before - 30_000
    items = accounts.items().values()
    assert sum(int(item["ac"]["N"]) for item in items) == admitted + 1
    assert accounts.consumed("rpm") == 80_000


def test_what_is_not_there_is_not_gathered(hand, accounts, clock):
    hand.create(rpm=50_000)
    assert hand.split(0)
    before = accounts.items()
    assert not hand.gather(rpm=accounts.level("rpm", clock()) + 1)
    assert accounts.items() == before


def test_if_one_shard_refuses_nothing_is_gathered_from_the_others(hand, hands, clock):
    """The plan is older than somebody else's charge."""
    hand.create(rpm=50_000)
    assert hand.split(0)
    other = hands(limits=HUNDRED, clock=clock)
    other.read_all()
    tries = []
    hand.tell = lambda *what: (
        tries.append(what[0])
        or (what[0] == "try" and other.update(1, {"rpm": Wanted(10_000, asked=True)}))
    )
    levels = [level(hand.read(number), "rpm", clock()) for number in (0, 1)]
    assert not hand.gather(rpm=sum(levels))
    assert tries[:2] == ["try", "not"]
    assert level(hand.read(0), "rpm", clock()) == levels[0]


@pytest.mark.parametrize("change", ["split", "other limits"])
def test_nothing_is_gathered_from_a_shard_that_has_become_another(hand, hands, clock, change):
    """Its balance may mean something else by years of accrual."""
    hand.create(rpm=50_000)
    assert hand.split(0)
    other, told = hands(limits=HUNDRED, clock=clock), []

    def tell(word, number, net):
        told.append(word)
        if told == ["try"] and change == "split":
            assert other.split(1)
        elif told == ["try"]:
            raw(other, "SET lh = :it", {":it": s("other")}, 1)

    hand.tell = tell
    assert hand.gather(rpm=49_990)
    assert told == ["try", "not", "try", "made"]


def test_a_debt_takes_what_is_there_and_the_rest_is_owed_by_all(hand, accounts, clock):
    hand.create(rpm=90_000)
    for number in (0, 0, 1):
        assert hand.split(number)
    held = accounts.level("rpm", clock())
    hand.owe(rpm=50_000)
    assert accounts.level("rpm", clock()) == held - 50_000
    levels = accounts.levels("rpm", clock()).values()
    assert max(levels) < 0
    assert max(levels) - min(levels) <= 2
    assert accounts.consumed("rpm") == 140_000


def test_a_credit_finds_its_way_after_a_merge(hand, accounts, clock):
    hand.create(rpm=100_000)
    for number in (0, 1):
        assert hand.split(number)
    assert hand.merge(1)
    hand.give_back(3, rpm=70_000)
    assert accounts.level("rpm", clock()) == 70_000
    assert accounts.levels("rpm", clock())[1] == 50_000


def test_what_an_earlier_life_has_left_is_swept_away(hand, hands, accounts, clock):
    """Shard 1 has outlived its bucket, which then was made anew."""
    hand.create(rpm=50_000)
    assert hand.split(0)
    hand.client.call("DeleteItem", {"Key": bucket_item.key(*PLACE)})
    fresh = hands(limits=HUNDRED, clock=clock)
    fresh.create(rpm=10_000)
    assert not fresh.split(0)
    orphan = fresh.read(1)
    assert not fresh.transact(bucket_shards.sweep({**fresh.read(0), "g": n(99)}, orphan))
    assert not fresh.transact(bucket_shards.sweep(fresh.read(0), {**orphan, "g": n(99)}))
    assert fresh.transact(bucket_shards.sweep(fresh.read(0), orphan))
    assert accounts.shards() == {0: 1}
    assert fresh.split(0)


def test_the_largest_limits_stay_exact(hands, accounts):
    """Balances of 30 digits."""
    huge = hands(limits=(Limit.custom("rpm", 10**15, 10**15, 1), LIMITS[1]))
    huge.create(rpm=5 * 10**17)
    before = huge.read(0)["t_rpm"]
    for number in (0, 0, 1):
        assert huge.split(number)
    assert str(accounts.balance("rpm")) == before["N"]
    for number in (1, 0, 0):
        assert huge.merge(number)
    assert huge.read(0)["t_rpm"] == before

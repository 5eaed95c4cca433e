"""Which shard a process asks: the same for a moment, then one by its weight."""

import random
import time
from dataclasses import replace

import pytest

from tests.support.changes import settlement_of
from tests.unit.dynamodb.stored import BUCKET_ID, IN_FORCE, NOW_MS
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.items.sharding.affinity import STAY_S, ShardAffinity
from zae_limiter.items.stored.keys import BucketId

QUARTERS = [Shard(number, 4) for number in range(4)]
SHARE = 25_000


def images(levels):
    """Quarters of a bucket that hold that many millitokens."""
    found = {}
    for shard, level in zip(QUARTERS, levels, strict=True):
        image = full_bucket(IN_FORCE.at(shard), NOW_MS)
        full = image.limits["rpm"]
        state = replace(full, balance_milli=full.balance_milli - SHARE + level)
        found[shard] = image._replace(limits={"rpm": state})
    return found


def settled(favourites, levels, amount):
    part = settlement_of(IN_FORCE, {} if amount is None else {"rpm": amount})
    return favourites.choose_for_settlement(BUCKET_ID, images(levels), part, NOW_MS)


def test_there_is_none_if_nothing_fits():
    favourites = ShardAffinity()
    assert favourites.choose(BUCKET_ID, []) is None
    assert favourites.current(BUCKET_ID) is None


def test_calls_at_the_same_time_are_led_to_one_shard():
    favourites = ShardAffinity()
    chosen = favourites.choose(BUCKET_ID, QUARTERS)
    began_s = time.monotonic()
    for _ in range(20):
        again, current = favourites.choose(BUCKET_ID, QUARTERS), favourites.current(BUCKET_ID)
        if time.monotonic() - began_s < STAY_S / 2:
            assert again == chosen
            assert current == chosen.number


def test_a_favourite_is_left_as_soon_as_it_does_not_fit():
    favourites = ShardAffinity()
    chosen = favourites.choose(BUCKET_ID, QUARTERS)
    others = [shard for shard in QUARTERS if shard != chosen]
    other = favourites.choose(BUCKET_ID, others)
    assert other in others
    assert favourites.current(BUCKET_ID) in (other.number, None)


def test_a_favourite_is_one_for_a_moment_only():
    favourites = ShardAffinity()
    favourites.choose(BUCKET_ID, QUARTERS)
    time.sleep(STAY_S * 1.2)
    assert favourites.current(BUCKET_ID) is None


def test_every_bucket_has_its_own():
    favourites = ShardAffinity()
    for number, shard in enumerate(QUARTERS):
        assert favourites.choose(BucketId("ns", f"user-{number}", "api"), [shard]) == shard


def test_shards_are_chosen_as_often_as_they_refill():
    random.seed(1)
    favourites = ShardAffinity()
    shards = [Shard(0, 2), Shard(1, 4), Shard(3, 4)]
    chosen = [
        favourites.choose(BucketId("ns", f"user-{each}", "api"), shards) for each in range(1000)
    ]
    assert 450 < chosen.count(Shard(0, 2)) < 550
    assert 200 < chosen.count(Shard(1, 4)) < 300


@pytest.mark.parametrize(
    ("levels", "amount", "expected"),
    [
        ([SHARE, SHARE, 10_000, SHARE], -12_000, 2),
        ([SHARE, 1_000, SHARE, SHARE], -24_000, 1),
        ([0, 0, 0, 8_000], 8_000, 3),
        ([-5_000, 7_999, 9_000, 0], 8_000, 2),
    ],
)
def test_a_credit_goes_where_there_is_room_and_a_debt_where_there_are_tokens(
    levels, amount, expected
):
    assert settled(ShardAffinity(), levels, amount).number == expected


@pytest.mark.parametrize(
    ("levels", "amount", "expected"),
    [
        ([SHARE, 20_000, SHARE, 24_000], -12_000, 1),
        ([1_000, 2_000, -3_000, 0], 60_000, 1),
    ],
    ids=["least is wasted", "least is owed"],
)
def test_what_fits_nowhere_goes_where_it_does_least_harm(levels, amount, expected):
    assert settled(ShardAffinity(), levels, amount).number == expected


def test_a_settlement_stays_with_the_favourite_if_that_will_do():
    favourites = ShardAffinity()
    chosen = favourites.choose(BUCKET_ID, [QUARTERS[2]])
    if favourites.current(BUCKET_ID) is not None:
        assert settled(favourites, [10_000] * 4, 5_000) == chosen


def test_a_settlement_of_nothing_goes_anywhere():
    assert settled(ShardAffinity(), [-1, SHARE, 0, 1], None) in QUARTERS

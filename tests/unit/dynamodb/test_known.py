"""What a client remembers of buckets: the latest it was shown, and not too much of it."""

import pytest

from tests.unit.dynamodb.stored import NOW_MS, PLACE, bucket_of, item_of
from zae_limiter import Entity
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.dynamodb.known import MAX_BUCKETS, MAX_ENTITIES, Known
from zae_limiter.dynamodb.sights import Sights
from zae_limiter.records.dynamodb.bucket_item import Family

HALVES = [Shard(0, 2), Shard(1, 2)]
QUARTERS = [Shard(number, 4) for number in range(4)]


def spot(number=0, place=PLACE):
    return (*place, number)


def knowing(shards, generation=5, **others):
    known = Known()
    for shard in shards:
        known.saw(spot(shard.number), bucket_of(shard, generation, **others), NOW_MS)
    return known


def shards_of(known):
    """Those that there must be, and whether something was seen of each."""
    return {shard: seen is not None for shard, seen in Sights.of(known, PLACE).shards.items()}


# --- answers that overtake each other


@pytest.mark.parametrize("older", [{"writes": 7}, {"generation": 4, "writes": 99}])
def test_an_answer_from_before_what_is_known_is_not_believed(older):
    known = knowing([WHOLE], writes=8)
    before = known.get(spot())
    assert known.saw(spot(), bucket_of(**{"generation": 5, **older}), NOW_MS + 5) is before
    assert known.get(spot()) is before


def test_an_answer_of_the_same_moment_or_a_later_one_is_believed():
    known = knowing([WHOLE], writes=8)
    for later in (bucket_of(generation=5, writes=8), bucket_of(generation=6, writes=1)):
        known.saw(spot(), later, NOW_MS)
        assert known.get(spot()).bucket is later


def test_what_contradicts_an_assumption_is_believed_even_if_it_looks_older():
    """The bucket was deleted and made anew by somebody whose clock is behind."""
    known = knowing([WHOLE], writes=8)
    assumed = known.get(spot()).bucket
    view = known.learn(spot(), item_of(generation=3), NOW_MS, assumed)
    assert view.literal
    assert known.get(spot()).bucket == view.bucket == bucket_of(generation=3)


def test_what_contradicts_an_assumption_does_not_contradict_what_was_learnt_since():
    known = knowing([WHOLE], writes=8)
    assumed = known.get(spot()).bucket
    known.saw(spot(), bucket_of(generation=5, writes=10), NOW_MS)
    view = known.learn(spot(), item_of(generation=5, writes=9), NOW_MS, assumed)
    assert view.bucket.image.writes == 9
    assert known.get(spot()).bucket.image.writes == 10


def test_a_copy_that_may_lag_does_not_replace_what_a_write_has_shown():
    known = knowing([WHOLE], writes=8)
    known.saw_bucket(*PLACE, item_of(generation=6))
    assert known.get(spot()).bucket.image.writes == 8
    known.saw_bucket(*PLACE, None)
    assert known.get(spot()) is None
    known.saw_bucket(*PLACE, item_of(generation=6))
    assert known.get(spot()).bucket.generation == 6


# --- shards


def test_only_buckets_that_are_split_have_a_layout():
    assert knowing([WHOLE]).layout(PLACE) is None
    assert knowing(HALVES).layout(PLACE).live == tuple(HALVES)


def test_what_was_never_seen_is_named_all_the_same():
    assert shards_of(Known()) == {WHOLE: False}
    assert shards_of(knowing([Shard(3, 4)])) == {
        Shard(0, 2): False,
        Shard(1, 4): False,
        Shard(3, 4): True,
    }


def test_a_later_shape_makes_the_earlier_one_forgotten():
    known = knowing(QUARTERS)
    known.saw(spot(), bucket_of(Shard(0, 2), 6), NOW_MS)
    assert shards_of(known) == {Shard(0, 2): True, Shard(1, 4): True, Shard(3, 4): True}
    assert known.get(spot(2)) is None
    known.saw(spot(), bucket_of(WHOLE, 7), NOW_MS)
    assert shards_of(known) == {WHOLE: True}
    assert len(known) == 1


def test_an_answer_from_before_a_merge_does_not_bring_the_shards_back():
    known = knowing(QUARTERS)
    known.saw(spot(), bucket_of(Shard(0, 2), 6), NOW_MS)
    known.saw(spot(2), bucket_of(Shard(2, 4), 5, writes=100), NOW_MS)
    assert shards_of(known) == {Shard(0, 2): True, Shard(1, 4): True, Shard(3, 4): True}


def test_a_bucket_that_was_made_anew_is_known_as_one_item_although_it_was_split():
    """A generation begins with the time, so that of a later bucket is higher."""
    known = knowing(QUARTERS, generation=NOW_MS)
    known.saw(spot(), bucket_of(WHOLE, NOW_MS + 60_000), NOW_MS + 60_000)
    assert shards_of(known) == {WHOLE: True}
    assert all(known.get(spot(number)) is None for number in (1, 2, 3))


def test_a_shard_that_is_missed_was_merged():
    known = knowing(QUARTERS)
    known.missed(spot(3))
    assert shards_of(known) == {Shard(0, 4): True, Shard(1, 2): False, Shard(2, 4): True}
    known.missed(spot(1))
    assert shards_of(known) == {WHOLE: False}


def test_a_bucket_whose_first_item_is_missed_is_gone():
    known = knowing(QUARTERS)
    known.missed(spot())
    assert shards_of(known) == {WHOLE: False}
    assert len(known) == 0


def test_nothing_is_left_of_a_bucket_that_is_forgotten():
    known = knowing(QUARTERS)
    known.saw(spot(place=("ns", "other", "api")), bucket_of(), NOW_MS)
    known.forget(PLACE)
    assert shards_of(known) == {WHOLE: False}
    assert len(known) == 1


def test_what_is_in_doubt_is_not_seen_any_more_but_still_there():
    known = knowing(HALVES)
    known.doubt(spot(1))
    assert shards_of(known) == {Shard(0, 2): True, Shard(1, 2): False}


# --- how fast others take


def test_what_others_take_is_told_from_what_was_not_taken_by_oneself():
    known = Known()
    known.saw(spot(), bucket_of(writes=1, consumed=0), NOW_MS)
    seen = known.saw(
        spot(), bucket_of(writes=3, consumed=10_000), NOW_MS + 1000, own_milli={"rpm": 2_000}
    )
    assert seen.others_milli_per_s == {"rpm": 8_000 // 4}


def test_a_bucket_that_only_oneself_uses_is_used_by_nobody_else():
    known, consumed = Known(), 0
    for second in range(5):
        consumed += 3_000
        seen = known.saw(
            spot(),
            bucket_of(writes=second + 1, consumed=consumed),
            NOW_MS + 1000 * second,
            own_milli={"rpm": 3_000},
        )
    assert not any(seen.others_milli_per_s.values())


# --- not too much of it


def test_the_bucket_that_was_not_written_to_for_longest_is_forgotten_first():
    known, bucket = Known(), bucket_of()
    places = [("ns", f"user-{number}", "api") for number in range(MAX_BUCKETS)]
    for place in places:
        known.saw((*place, 0), bucket, NOW_MS)
    known.saw((*places[0], 0), bucket, NOW_MS)
    known.saw(spot(), bucket, NOW_MS)
    assert len(known) == MAX_BUCKETS
    assert known.get((*places[0], 0)) is not None
    assert known.get((*places[1], 0)) is None


def test_a_layout_goes_with_the_last_of_its_shards():
    """The others are still known to be there as long as one of them is remembered."""
    known, bucket = knowing(HALVES), bucket_of()
    for number in range(MAX_BUCKETS - 1):
        known.saw(("ns", f"user-{number}", "api", 0), bucket, NOW_MS)
    assert shards_of(known) == {Shard(0, 2): False, Shard(1, 2): True}
    known.saw(("ns", "one-more", "api", 0), bucket, NOW_MS)
    assert known.layout(PLACE) is None


def test_entities_are_not_remembered_without_end():
    known = Known()
    entity = Entity("user", parent_id="org", cascade=True)
    for number in range(MAX_ENTITIES + 10):
        known.saw_entity("ns", f"user-{number}", entity)
    assert known.family("ns", "user-9") is None
    assert known.family("ns", "user-10") == Family("org", True)
    known.saw_entity("ns", "nobody", None)
    assert known.family("ns", "nobody") == Family()

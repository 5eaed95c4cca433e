"""What a client remembers of buckets: the latest it was shown, and not too much of it."""

import pytest

from tests.unit.dynamodb.stored import BUCKET_ID, NOW_MS, bucket_of, item_of
from zae_limiter import Entity
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.items.buckets.cache import MAX_BUCKETS, MAX_ENTITIES, BucketCache
from zae_limiter.items.sharding.known_shards import KnownShards
from zae_limiter.items.stored.bucket import EntityLink
from zae_limiter.items.stored.keys import BucketId, ShardId

HALVES = [Shard(0, 2), Shard(1, 2)]
QUARTERS = [Shard(number, 4) for number in range(4)]


def item(number=0, bucket_id=BUCKET_ID):
    return bucket_id.shard(number)


def knowing(shards, generation=5, **others):
    cache = BucketCache()
    for shard in shards:
        cache.store(item(shard.number), bucket_of(shard, generation, **others), NOW_MS)
    return cache


def shards_of(cache):
    """Those that there must be, and whether something was seen of each."""
    return {
        shard: seen is not None for shard, seen in KnownShards.of(cache, BUCKET_ID).entries.items()
    }


# --- answers that overtake each other


@pytest.mark.parametrize("older", [{"writes": 7}, {"generation": 4, "writes": 99}])
def test_an_answer_from_before_what_is_known_is_not_believed(older):
    cache = knowing([WHOLE], writes=8)
    before = cache.get(item())
    assert cache.store(item(), bucket_of(**{"generation": 5, **older}), NOW_MS + 5) is before
    assert cache.get(item()) is before


def test_an_answer_of_the_same_moment_or_a_later_one_is_believed():
    cache = knowing([WHOLE], writes=8)
    for later in (bucket_of(generation=5, writes=8), bucket_of(generation=6, writes=1)):
        cache.store(item(), later, NOW_MS)
        assert cache.get(item()).bucket is later


def test_what_contradicts_an_assumption_is_believed_even_if_it_looks_older():
    """The bucket was deleted and made anew by somebody whose clock is behind."""
    cache = knowing([WHOLE], writes=8)
    assumed = cache.get(item()).bucket
    view = cache.store_authoritative(item(), item_of(generation=3), NOW_MS, assumed)
    assert view.is_fresh
    assert cache.get(item()).bucket == view.bucket == bucket_of(generation=3)


def test_what_contradicts_an_assumption_does_not_contradict_what_was_learnt_since():
    cache = knowing([WHOLE], writes=8)
    assumed = cache.get(item()).bucket
    cache.store(item(), bucket_of(generation=5, writes=10), NOW_MS)
    view = cache.store_authoritative(item(), item_of(generation=5, writes=9), NOW_MS, assumed)
    assert view.bucket.image.writes == 9
    assert cache.get(item()).bucket.image.writes == 10


def test_a_copy_that_may_lag_does_not_replace_what_a_write_has_shown():
    cache = knowing([WHOLE], writes=8)
    cache.on_bucket_read(*BUCKET_ID, item_of(generation=6))
    assert cache.get(item()).bucket.image.writes == 8
    cache.on_bucket_read(*BUCKET_ID, None)
    assert cache.get(item()) is None
    cache.on_bucket_read(*BUCKET_ID, item_of(generation=6))
    assert cache.get(item()).bucket.generation == 6


# --- shards


def test_only_buckets_that_are_split_have_a_layout():
    assert knowing([WHOLE]).layout(BUCKET_ID) is None
    assert knowing(HALVES).layout(BUCKET_ID).live == tuple(HALVES)


def test_what_was_never_seen_is_named_all_the_same():
    assert shards_of(BucketCache()) == {WHOLE: False}
    assert shards_of(knowing([Shard(3, 4)])) == {
        Shard(0, 2): False,
        Shard(1, 4): False,
        Shard(3, 4): True,
    }


def test_a_later_shape_makes_the_earlier_one_forgotten():
    cache = knowing(QUARTERS)
    cache.store(item(), bucket_of(Shard(0, 2), 6), NOW_MS)
    assert shards_of(cache) == {Shard(0, 2): True, Shard(1, 4): True, Shard(3, 4): True}
    assert cache.get(item(2)) is None
    cache.store(item(), bucket_of(WHOLE, 7), NOW_MS)
    assert shards_of(cache) == {WHOLE: True}
    assert len(cache) == 1


def test_an_answer_from_before_a_merge_does_not_bring_the_shards_back():
    cache = knowing(QUARTERS)
    cache.store(item(), bucket_of(Shard(0, 2), 6), NOW_MS)
    cache.store(item(2), bucket_of(Shard(2, 4), 5, writes=100), NOW_MS)
    assert shards_of(cache) == {Shard(0, 2): True, Shard(1, 4): True, Shard(3, 4): True}


def test_a_bucket_that_was_made_anew_is_known_as_one_item_although_it_was_split():
    """A generation begins with the time, so that of a later bucket is higher."""
    cache = knowing(QUARTERS, generation=NOW_MS)
    cache.store(item(), bucket_of(WHOLE, NOW_MS + 60_000), NOW_MS + 60_000)
    assert shards_of(cache) == {WHOLE: True}
    assert all(cache.get(item(number)) is None for number in (1, 2, 3))


def test_a_shard_that_is_missed_was_merged():
    cache = knowing(QUARTERS)
    cache.drop_shard(item(3))
    assert shards_of(cache) == {Shard(0, 4): True, Shard(1, 2): False, Shard(2, 4): True}
    cache.drop_shard(item(1))
    assert shards_of(cache) == {WHOLE: False}


def test_a_bucket_whose_first_item_is_missed_is_gone():
    cache = knowing(QUARTERS)
    cache.drop_shard(item())
    assert shards_of(cache) == {WHOLE: False}
    assert len(cache) == 0


def test_nothing_is_left_of_a_bucket_that_is_forgotten():
    cache = knowing(QUARTERS)
    cache.store(item(bucket_id=BucketId("ns", "other", "api")), bucket_of(), NOW_MS)
    cache.drop_bucket(BUCKET_ID)
    assert shards_of(cache) == {WHOLE: False}
    assert len(cache) == 1


def test_what_is_in_doubt_is_not_seen_any_more_but_still_there():
    cache = knowing(HALVES)
    cache.invalidate(item(1))
    assert shards_of(cache) == {Shard(0, 2): True, Shard(1, 2): False}


# --- how fast others take


def test_what_others_take_is_told_from_what_was_not_taken_by_oneself():
    cache = BucketCache()
    cache.store(item(), bucket_of(writes=1, consumed=0), NOW_MS)
    seen = cache.store(
        item(), bucket_of(writes=3, consumed=10_000), NOW_MS + 1000, own_milli={"rpm": 2_000}
    )
    assert seen.others_milli_per_s == {"rpm": 8_000 // 4}


def test_a_bucket_that_only_this_client_uses_is_known_as_such():
    cache, consumed = BucketCache(), 0
    for second in range(5):
        consumed += 3_000
        seen = cache.store(
            item(),
            bucket_of(writes=second + 1, consumed=consumed),
            NOW_MS + 1000 * second,
            own_milli={"rpm": 3_000},
        )
    assert not any(seen.others_milli_per_s.values())


# --- not too much of it


def test_the_bucket_that_was_not_written_to_for_longest_is_forgotten_first():
    cache, bucket = BucketCache(), bucket_of()
    items = [ShardId("ns", f"user-{number}", "api", 0) for number in range(MAX_BUCKETS)]
    for each in items:
        cache.store(each, bucket, NOW_MS)
    cache.store(items[0], bucket, NOW_MS)
    cache.store(item(), bucket, NOW_MS)
    assert len(cache) == MAX_BUCKETS
    assert cache.get(items[0]) is not None
    assert cache.get(items[1]) is None


def test_a_layout_goes_with_the_last_of_its_shards():
    """The others are still known to exist as long as one of them is remembered."""
    cache, bucket = knowing(HALVES), bucket_of()
    for number in range(MAX_BUCKETS - 1):
        cache.store(ShardId("ns", f"user-{number}", "api", 0), bucket, NOW_MS)
    assert shards_of(cache) == {Shard(0, 2): False, Shard(1, 2): True}
    cache.store(ShardId("ns", "one-more", "api", 0), bucket, NOW_MS)
    assert cache.layout(BUCKET_ID) is None


def test_entities_are_not_remembered_without_end():
    cache = BucketCache()
    entity = Entity("user", parent_id="org", cascade=True)
    for number in range(MAX_ENTITIES + 10):
        cache.on_entity_read("ns", f"user-{number}", entity)
    assert cache.entity_link("ns", "user-9") is None
    assert cache.entity_link("ns", "user-10") == EntityLink("org", True)
    cache.on_entity_read("ns", "nobody", None)
    assert cache.entity_link("ns", "nobody") == EntityLink()

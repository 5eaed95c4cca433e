"""Whatever was seen before, and in whatever order, a few reads show all shards of a bucket."""

from hypothesis import given
from hypothesis import strategies as st

from tests.property.shard_strategies import trees
from tests.unit.dynamodb.stored import BUCKET_ID, NOW_MS, item_of
from zae_limiter.admission.shards.tree import UNKNOWN, WHOLE, is_whole, pairs
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.sharding.known_shards import KnownShards
from zae_limiter.items.stored.bucket import decode

MOST = 16
ENOUGH_LOOKS = 12  # as often as a client reads before it gives up


class Life:
    """A bucket that is split, merged, written to, deleted and made anew, by itself."""

    def __init__(self):
        self.now_ms = NOW_MS
        self.items = {}
        self.make()

    def make(self):
        self.now_ms += 60_000
        self.items = {0: item_of(WHOLE, self.now_ms)}

    def change(self, do, number):
        number = number if number in self.items else 0
        bucket = decode(self.items[number])
        shard, generation, writes = bucket.shard, bucket.generation, bucket.image.writes
        if do == "make":
            self.make()
        elif do == "write":
            self.put(shard, generation, writes + 1)
        elif do == "turn":
            self.put(shard, generation + 1, writes + 1)
        elif do == "split" and shard.n < MOST:
            kept, new = shard.halves()
            self.put(kept, generation + 1, writes + 1)
            self.put(new, generation + 1, 1)
        elif do == "merge" and shard in pairs(self.shards):
            gone = decode(self.items.pop(shard.sibling.number))
            self.put(shard.parent, max(generation, gone.generation) + 1, writes + 1)

    def put(self, shard, generation, writes):
        self.items[shard.number] = item_of(shard, generation, writes=writes)

    @property
    def shards(self):
        return sorted(decode(item).shard for item in self.items.values())


@st.composite
def lives(draw):
    """A bucket, and answers from any moments of its life, in any order."""
    life, answers = Life(), []
    steps = st.tuples(
        st.sampled_from(["split"] * 4 + ["merge"] * 4 + ["write", "turn", "make"]),
        st.integers(0, MOST - 1),
    )
    for do, number in draw(st.lists(steps, max_size=25)):
        life.change(do, number)
        answers += life.items.items()
    found = draw(st.lists(st.sampled_from(answers), max_size=15)) if answers else []
    return life, found


def look(cache, life):
    """Read every shard that there must be, as far as is cache."""
    for number in KnownShards.of(cache, BUCKET_ID).numbers():
        item = life.items.get(number)
        cache.store_authoritative(BUCKET_ID.shard(number), item, life.now_ms, None)


def knows(cache, life):
    found = KnownShards.of(cache, BUCKET_ID).entries
    return sorted(found) == life.shards and all(
        seen is not None and seen.bucket == decode(life.items[shard.number])
        for shard, seen in found.items()
    )


@given(lives())
def test_whatever_came_late_a_few_looks_show_the_bucket_as_it_is(case):
    life, answers = case
    cache = BucketCache()
    for number, item in answers:
        cache.store(BUCKET_ID.shard(number), decode(item), NOW_MS)
        assert is_whole(KnownShards.of(cache, BUCKET_ID).entries)
    looks = 0
    while not knows(cache, life) and looks < ENOUGH_LOOKS:
        look(cache, life)
        looks += 1
    assert knows(cache, life)


@given(lives(), st.data())
def test_late_answers_of_live_shards_change_no_layout(case, data):
    life, answers = case
    cache = BucketCache()
    for number, item in data.draw(st.permutations(sorted(life.items.items()))):
        cache.store(BUCKET_ID.shard(number), decode(item), life.now_ms)
    assert knows(cache, life)
    for number, item in answers:
        if number in life.items:
            cache.store(BUCKET_ID.shard(number), decode(item), life.now_ms)
            assert knows(cache, life)


@given(trees(MOST), st.data())
def test_the_order_of_sights_does_not_matter(leaves, data):
    layout = UNKNOWN
    for shard in data.draw(st.permutations(leaves)):
        layout = layout.with_seen(shard, 5)
        assert shard in layout.live
        assert is_whole(layout.live)
    assert list(layout.live) == leaves


@given(trees(MOST), st.integers(1, MOST - 1))
def test_a_number_that_is_missed_is_not_expected_any_more(leaves, number):
    layout = UNKNOWN
    for shard in leaves:
        layout = layout.with_seen(shard, 5)
    left = layout.without(number)
    assert is_whole(left.live)
    assert number not in {shard.number for shard in left.live}

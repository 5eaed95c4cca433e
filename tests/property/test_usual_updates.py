"""The usual write is filled in just as it would be spelled."""

import json

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import HourUsage
from zae_limiter.dynamodb.expressions import text
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.items.stored.bucket_updates import WriteTrailer, balance_update
from zae_limiter.items.stored.usage.clauses import HourCounts, HourForm
from zae_limiter.items.stored.usage.hours import ItemHours

numbers = st.integers(-(10**30), 10**30)
perhaps = st.none() | numbers
texts = st.text(min_size=1, max_size=20)
names = st.sampled_from(["rpm", "tpm", "a.b", "x~0a1b2c3d4e5f6071", "%s", "%"])


@st.composite
def moves(draw):
    keys = draw(st.lists(names, unique=True, max_size=4))
    return [
        Move(
            key,
            draw(perhaps),
            draw(perhaps),
            draw(numbers | st.just(0)),
            draw(perhaps),
            draw(numbers | st.just(0)),
        )
        for key in keys
    ]


stamps = st.builds(
    WriteTrailer,
    st.text("0123456789abcdef.-_", min_size=1, max_size=20),
    st.integers(-3, 3),
    st.none() | st.integers(0, 2**62),
    st.booleans(),
)


@st.composite
def hours_and_counts(draw):
    """The hours of an item, and what a write counts in one of the usual forms."""
    keys = draw(st.lists(names, unique=True, min_size=1, max_size=4))
    slots = {key: slot for slot, key in enumerate(keys, start=draw(st.integers(0, 2)))}
    state = ItemHours("0.Ab-_", draw(numbers), None, slots, draw(st.booleans()))
    form = draw(st.sampled_from([HourForm.COUNT, HourForm.LATE, HourForm.TURN]))
    through = draw(st.dictionaries(st.sampled_from(keys), numbers, max_size=3))
    small = st.integers(0, 3)
    tally = Tally(
        draw(small),
        draw(small),
        draw(small),
        shadowed=draw(small),
        as_further=draw(small),
        elsewhere=draw(small),
    )
    rejections = draw(st.sampled_from(["", "0=5,rpm=7", '0=5;[7,1,["rpm"]]']))
    added = HourUsage(draw(numbers), {}, draw(small), through, tally)
    counts = HourCounts(form, added, draw(perhaps), rejections=rejections)
    return state, draw(st.none() | st.just(counts))


@given(
    texts,
    texts,
    texts,
    moves(),
    stamps,
    st.sampled_from([1, 2, 32]),
    st.integers(0, 10**9),
    texts,
    hours_and_counts(),
)
def test_a_write_is_filled_in_as_it_is_spelled(
    namespace, entity, resource, made, stamp, shards, version, table, hours_and_counts
):
    image = BucketImage({}, 1, None, 0)
    hours, counts = hours_and_counts
    bucket = StoredBucket(image, "Dig-est_", hours, shard=Shard(0, shards))
    spot = (namespace, entity, resource, 0)
    for _ in range(2):  # the form is made, then used
        write = balance_update(
            keys.bucket(*spot), made, stamp, bucket, version=version, counts=counts
        )
        filled = json.loads(text(write, table))
        write.is_usual = False
        assert filled == json.loads(text(write, table))

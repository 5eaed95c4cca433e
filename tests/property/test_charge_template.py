"""The usual write is filled in just as it would be spelled."""

import json

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.dynamodb.items.bucket import StoredBucket
from zae_limiter.dynamodb.items.bucket_updates import WriteTrailer
from zae_limiter.dynamodb.items.charge_template import TemplatedCharge

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


@given(
    texts, texts, texts, moves(), stamps, st.sampled_from([1, 2, 32]), st.integers(0, 10**9), texts
)
def test_a_write_is_filled_in_as_it_is_spelled(
    namespace, entity, resource, made, stamp, shards, version, table
):
    image = BucketImage({}, 1, None, 0)
    bucket = StoredBucket(image, "Dig-est_", shard=Shard(0, shards))
    spot = (namespace, entity, resource, 0)
    for _ in range(2):  # the form is made, then used
        write = TemplatedCharge(spot, made, stamp, bucket, version)
        assert json.loads(write.text(table)) == json.loads(write.update().text(table))

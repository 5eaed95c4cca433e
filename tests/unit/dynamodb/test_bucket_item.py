"""What is known of an item saves work when it is read again, and changes nothing."""

import pytest

from tests.unit.dynamodb.stored import NOW_MS, bucket_of, item_of
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored.attributes import n, s


@pytest.mark.parametrize("shard", [WHOLE, Shard(1, 4)])
def test_an_item_reads_the_same_whether_it_is_known_or_not(shard):
    known = bucket_of(shard, 1, writes=1)
    item = {**item_of(shard, 2, writes=7, consumed=3_000), "ttl": n(99), "cv": n(4), "ac": n(5)}
    assert bucket_item.decode(item, known) == bucket_item.decode(item)


@pytest.mark.parametrize(
    "change",
    [
        {"n": n(2)},
        {"g": n(2)},
        {"cv": n(2)},
        {"ttl": n(100)},
        {"ttl": None},
        {"o": s("0.other")},
        {"h": n(1)},
        {"ph": n(1)},
        {"k0": n(1)},
        {"wc": n(2)},
        {"ac": n(2)},
        {"ac": None},
        {"op": s("6.x")},
        {"t_rpm": n(-1)},
        {"c_rpm": n(-1)},
    ],
)
def test_what_few_writes_change_is_noticed(change):
    before = {**item_of(), "ttl": n(99), "ac": n(1)}
    known = bucket_item.decode(before)
    after = {name: value for name, value in (before | change).items() if value is not None}
    assert bucket_item.decode(after, known) == bucket_item.decode(after) != known


@pytest.mark.parametrize("shard", [WHOLE, Shard(1, 4)])
@pytest.mark.parametrize("of_children", [{}, {"k0": n(500), "v0": n(200)}, {"k0": n(0)}])
def test_a_turned_item_reads_the_same_whether_it_is_known_or_not(shard, of_children):
    hour = NOW_MS // HOUR_MS
    counted = {"ph": n(hour), "u0": n(9), "ua": n(3), "ur": n(2), "uw": n(1), "uq": s("0=7")}
    item = {**item_of(shard, writes=2), "h": n(hour + 1), "b0": n(9), **counted, **of_children}
    bucket = bucket_item.decode(item)
    assert bucket.hours.finished is not None
    for before in ({}, {"k0": n(1)}, {"ph": n(hour - 1), "u0": n(4)}):
        known = bucket_item.decode({**item_of(shard), **before})
        assert bucket_item.decode(item, known) == bucket


def test_names_of_limits_are_remembered_up_to_a_bound():
    names = bucket_item.AttributeNames()
    for at in range(bucket_item.MAX_NAMES + 1):
        assert names[f"limit-{at}"] == (f"t_limit-{at}", f"c_limit-{at}")
        assert len(names) <= bucket_item.MAX_NAMES
    assert len(names) == 1


def test_other_limits_than_the_known_ones_are_read():
    item = {**item_of(), "p_rpm": s("7:7:60:0")}
    item["lh"] = s(bucket_item.digest_of({"rpm": bucket_item.unpack("7:7:60:0")}, {"rpm": 0}))
    assert bucket_item.decode(item, bucket_of()) == bucket_item.decode(item)


def test_a_bucket_that_was_split_meanwhile_is_read_as_a_shard():
    item = item_of(Shard(0, 2), 2)
    found = bucket_item.decode(item, bucket_of())
    assert found == bucket_item.decode(item)
    assert found.shard == Shard(0, 2)


def test_a_known_item_that_has_lost_something_is_not_read():
    item = item_of()
    del item["c_rpm"]
    with pytest.raises(ZAELimiterError, match="unknown form of bucket"):
        bucket_item.decode(item, bucket_of())

"""What a deletion takes at once."""

from zae_limiter.items.stored import keys
from zae_limiter.items.stored.entity_items import EntityItems


def entity_items(limits, buckets, meta=None):
    return EntityItems(
        meta,
        tuple(
            keys.entity_config("ns", "user", f"r{number}").attributes for number in range(limits)
        ),
        tuple(keys.bucket("ns", "user", f"r{number}").attributes for number in range(buckets)),
    )


def test_what_fits_goes_whole():
    items = entity_items(51, 15, {"PK": {"S": "x"}})
    assert items.first(96) is items


def test_the_entity_goes_last_and_something_always_goes_with_it_or_is_left():
    items = entity_items(100, 100, {"PK": {"S": "x"}})
    taken = []
    while (first := items.first(96)) is not items:
        assert first.meta is None
        assert 0 < len(first.limits) + 3 * len(first.buckets) <= 96
        taken.append(first)
        items = EntityItems(
            items.meta, items.limits[len(first.limits) :], items.buckets[len(first.buckets) :]
        )
    assert len(taken) == 4
    assert items.meta is not None
    assert items.buckets


def test_resources_are_named_once_and_in_order():
    items = EntityItems(
        buckets=tuple(
            keys.bucket("ns", "user", resource, shard).attributes
            for resource in "ba"
            for shard in (0, 1)
        ),
        limits=(
            keys.entity_config("ns", "user", "b").attributes,
            keys.entity_config("ns", "user", "a").attributes,
        ),
    )
    assert items.bucket_resources == ["a", "b"]
    assert items.limit_resources == ["a", "b"]
    assert not items.is_empty
    assert EntityItems().is_empty

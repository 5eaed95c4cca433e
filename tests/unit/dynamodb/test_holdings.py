"""What a deletion takes at once."""

from zae_limiter._sync.engines.dynamodb.entities import Holdings
from zae_limiter.records.dynamodb import keys


def holdings(limits, buckets, meta=None):
    return Holdings(
        meta,
        tuple(keys.entity_config("ns", "user", f"r{number}").item for number in range(limits)),
        tuple(keys.bucket("ns", "user", f"r{number}").item for number in range(buckets)),
    )


def test_what_fits_goes_whole():
    held = holdings(50, 46, {"PK": {"S": "x"}})
    assert held.some(96) is held


def test_the_entity_goes_last_and_something_always_goes_with_it_or_is_left():
    held = holdings(100, 100, {"PK": {"S": "x"}})
    taken = []
    while (some := held.some(96)) is not held:
        assert some.meta is None
        assert 0 < len(some.limits) + len(some.buckets) <= 96
        taken.append(some)
        held = Holdings(
            held.meta, held.limits[len(some.limits) :], held.buckets[len(some.buckets) :]
        )
    assert len(taken) == 2
    assert held.meta is not None
    assert held.buckets


def test_resources_are_named_once_and_in_order():
    held = Holdings(
        buckets=tuple(
            keys.bucket("ns", "user", resource, shard).item for resource in "ba" for shard in (0, 1)
        ),
        limits=(
            keys.entity_config("ns", "user", "b").item,
            keys.entity_config("ns", "user", "a").item,
        ),
    )
    assert held.buckets_of == ["a", "b"]
    assert held.limits_of == ["a", "b"]
    assert not held.is_empty
    assert Holdings().is_empty

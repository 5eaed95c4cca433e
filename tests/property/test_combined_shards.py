"""Credits find the room that there is; after the promised wait, the amounts can be taken."""

from hypothesis import given
from hypothesis import strategies as st

from tests.property.shard_strategies import buckets, level, levels_of, state_at
from zae_limiter import Limit
from zae_limiter.admission.image import BucketImage, Rate, level_milli
from zae_limiter.admission.shards.combined import combine, fit_at_ms
from zae_limiter.admission.shards.spreading import gather, place_what_fits
from zae_limiter.admission.shards.tree import Shard, effective, share
from zae_limiter.admission.tally import Tally


@st.composite
def wanted(draw, bucket, least=0):
    """Amounts from nothing to just above the capacity of each limit; often what one shard holds."""
    now_ms, whole, images = bucket
    found = {}
    for name, rate in whole.items():
        capacity, held = rate.capacity_milli, max(least, level(images, name, now_ms))
        of_one = max(least, capacity // max(shard.n for shard in images))
        some = st.sampled_from([least, capacity, capacity + 1, held, held + 1])
        found[name] = draw(st.integers(least, of_one) | st.integers(least, capacity) | some)
    return found


def with_amounts(most=64, least=0):
    return buckets(most=most).flatmap(
        lambda bucket: st.tuples(st.just(bucket), wanted(bucket, least))
    )


# --- credits


@given(with_amounts(least=1))
def test_what_is_placed_and_what_is_left_are_the_credit(case):
    (now_ms, _, images), amounts = case
    placed = place_what_fits(images, amounts, now_ms)
    for name, amount in amounts.items():
        parts = [each[name] for each in placed.spread.values() if name in each]
        assert all(part > 0 for part in parts)
        assert sum(parts) + placed.left.get(name, 0) == amount
    assert all(placed.left.values())


@given(with_amounts(least=1))
def test_shards_fill_up_before_a_credit_is_left_over(case):
    (now_ms, whole, images), amounts = case
    placed = place_what_fits(images, amounts, now_ms)
    for name in amounts:
        for shard, held in levels_of(images, name, now_ms).items():
            capacity = share(shard, whole[name].capacity_milli)
            after = held + placed.spread.get(shard, {}).get(name, 0)
            assert after <= capacity
            assert after == capacity or name not in placed.left


@given(buckets(), st.integers(1, 10**9))
def test_a_limit_that_no_shard_has_is_full_and_takes_nothing(bucket, amount):
    now_ms, _, images = bucket
    assert place_what_fits(images, {"gone": amount}, now_ms) == ({}, {})


# --- counts


def counted(hour, rejected):
    """A shard without limits that has counted rejections in an hour."""
    return BucketImage({}, 1, None, hour, tally=Tally(rejected=rejected))


def test_rejections_of_the_newest_hour_are_those_of_the_shards_that_it_has_begun_in():
    shards = {Shard(0, 2): counted(7, 3), Shard(1, 4): counted(7, 2), Shard(3, 4): counted(6, 9)}
    whole = combine(shards, {}, 0)
    assert (whole.hour, whole.tally.rejected) == (7, 5)


# --- waiting


def can_be_made(images, amounts, moment_ms):
    """One shard holds all amounts, or they can be gathered."""
    alone = any(
        all(
            level_milli(image.limits[name], moment_ms) >= amount for name, amount in amounts.items()
        )
        for image in images.values()
    )
    return alone or gather(images, amounts, moment_ms) is not None


def test_a_charge_waits_until_one_shard_or_all_hold_it():
    """Each limit alone could be charged at once, in one of the shards."""
    now_ms = 1_767_225_600_000
    rate = Rate.of(Limit.per_minute("rpm", 120))
    images = {}
    for shard, held in ((Shard(0, 2), (50_000, -60_000)), (Shard(1, 2), (-60_000, 50_000))):
        states = [state_at(effective(rate, shard), each, now_ms) for each in held]
        images[shard] = BucketImage(dict(zip(("rpm", "tpm"), states, strict=True)), 1, None, 0)
    amounts = {"rpm": 10_000, "tpm": 10_000}
    for name in amounts:
        assert fit_at_ms(list(images.values()), {name: 10_000}, now_ms) == {name: now_ms}
    found = fit_at_ms(list(images.values()), amounts, now_ms)
    assert sorted(found.values()) == [now_ms, now_ms + 10_000]
    assert can_be_made(images, amounts, now_ms + 10_000)
    assert not can_be_made(images, amounts, now_ms + 9_999)


@given(with_amounts(most=16))
def test_the_last_of_the_moments_is_exact_to_the_millisecond(case):
    (now_ms, whole, images), amounts = case
    found = fit_at_ms(list(images.values()), amounts, now_ms)
    for name, amount in amounts.items():
        assert (found[name] is None) == (amount > whole[name].capacity_milli)
    if None in found.values():
        return
    last_ms = max(found.values())
    assert can_be_made(images, amounts, last_ms)
    assert last_ms == now_ms or not can_be_made(images, amounts, last_ms - 1)


@given(with_amounts(most=16))
def test_a_limit_is_not_named_for_longer_than_it_lacks_something(case):
    """All but the last are told by themselves, as if nothing else were wanted."""
    (now_ms, _, images), amounts = case
    found = fit_at_ms(list(images.values()), amounts, now_ms)
    told = sorted((each for each in found if found[each] is not None), key=lambda each: found[each])
    last = None if None in found.values() else told[-1]
    for name in told:
        if name != last:
            one = {name: amounts[name]}
            assert can_be_made(images, one, found[name])
            assert found[name] == now_ms or not can_be_made(images, one, found[name] - 1)

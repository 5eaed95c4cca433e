"""The debt of one shard is repaid by the others, exactly once."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.property.shard_strategies import (
    MOST,
    buckets,
    let_through,
    level,
    levels_of,
    state_at,
    written,
)
from zae_limiter.admission.image import level_milli
from zae_limiter.admission.shards.spreading import heir, repayment
from zae_limiter.admission.shards.tree import WHOLE

numbers = st.integers(0, MOST - 1)
split_buckets = buckets(most=8, least_splits=1)


@st.composite
def indebted(draw):
    """A bucket, and the number of a shard that owes at least one of its limits."""
    now_ms, whole, images = draw(split_buckets)
    number = draw(numbers)
    home, name = heir(images, number), draw(st.sampled_from(sorted(whole)))
    debt = draw(st.integers(1, 5) | st.integers(1, 3 * whole[name].capacity_milli))
    rate = images[home].limits[name].rate
    limits = {**images[home].limits, name: state_at(rate, -debt, now_ms)}
    return now_ms, whole, {**images, home: images[home]._replace(limits=limits)}, number


@given(indebted())
def test_takes_and_gives_add_up_to_nothing(case):
    now_ms, whole, images, number = case
    moves = repayment(images, number, now_ms)
    after = written(images, moves)
    assert after is not None, "as it was read, nothing speaks against it"
    for name in whole:
        made = [each for some in moves.values() for each in some if each.key == name]
        assert sum(each.consumed_milli for each in made) == 0
        assert level(after, name, now_ms) == level(images, name, now_ms)


@given(indebted())
def test_only_the_shard_that_owes_gains_and_only_up_to_nothing(case):
    now_ms, whole, images, number = case
    home = heir(images, number)
    after = written(images, repayment(images, number, now_ms))
    for name in whole:
        before, now = levels_of(images, name, now_ms), levels_of(after, name, now_ms)
        assert before[home] <= now[home] <= max(0, before[home])
        assert all(now[shard] <= before[shard] for shard in images if shard != home)


@given(indebted())
def test_it_owes_nothing_while_another_has_tokens(case):
    """Others are not driven into debt either before all tokens are used up."""
    now_ms, whole, images, number = case
    home = heir(images, number)
    after = written(images, repayment(images, number, now_ms))
    for name in whole:
        before, now = levels_of(images, name, now_ms), levels_of(after, name, now_ms)
        if any(each > 0 for each in now.values()):
            assert now[home] >= 0
            assert all(now[shard] >= min(0, before[shard]) for shard in images)


@given(indebted())
def test_a_second_repayment_from_one_read_is_refused(case):
    now_ms, _, images, number = case
    moves = repayment(images, number, now_ms)
    assume(moves)
    assert written(written(images, moves), moves) is None


@given(indebted(), st.integers(1, 10**7), st.data())
def test_it_is_refused_if_the_debt_was_made_smaller_meanwhile(case, gained, data):
    now_ms, _, images, number = case
    moves = repayment(images, number, now_ms)
    assume(moves)
    home = heir(images, number)
    made = data.draw(st.sampled_from(moves[home]))
    assert not let_through(made, images[home].limits[made.key].balance_milli + gained)


@given(indebted(), st.integers(1, 10**7))
def test_a_repayment_drives_no_shard_into_debt(case, taken):
    """Unless it was to owe its part anyway, and then it must stand as it was read."""
    now_ms, _, images, number = case
    home = heir(images, number)
    for shard, some in repayment(images, number, now_ms).items():
        for made in some if shard != home else ():
            state = images[shard].limits[made.key]
            less = replace(state, balance_milli=state.balance_milli - taken)
            if let_through(made, less.balance_milli):
                after = replace(less, balance_milli=made.applied(less.balance_milli))
                assert level_milli(after, now_ms) >= 0


@given(buckets(), numbers)
def test_a_shard_that_owes_nothing_gets_nothing(bucket, number):
    now_ms, _, images = bucket
    home = heir(images, number)
    if all(level_milli(state, now_ms) >= 0 for state in images[home].limits.values()):
        assert repayment(images, number, now_ms) == {}


@given(buckets(most=1), numbers)
def test_a_bucket_in_one_item_has_no_other_shard_to_repay_it(bucket, number):
    now_ms, _, images = bucket
    assert set(images) == {WHOLE}
    assert repayment(images, number, now_ms) == {}

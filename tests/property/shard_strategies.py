"""Buckets in several shards, in any condition."""

from dataclasses import replace

from hypothesis import strategies as st

from tests.property.strategies import levels, moments, rates
from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    accrued_since_epoch,
    full_balance,
    level_milli,
)
from zae_limiter.admission.shards.tree import WHOLE, effective

MOST = 64  # shards


@st.composite
def trees(draw, most=MOST, least_splits=0):
    """All live shards of a bucket, after any number of splits."""
    leaves = {WHOLE}
    for _ in range(draw(st.integers(least_splits, 20))):
        splittable = sorted(leaf for leaf in leaves if leaf.n < most)
        if splittable:
            leaf = draw(st.sampled_from(splittable))
            leaves = leaves - {leaf} | set(leaf.halves())
    return sorted(leaves)


@st.composite
def buckets(draw, most=MOST, names=("rpm", "tpd"), least_splits=0):
    """A moment, the limits of a bucket, and its shards."""
    now_ms = draw(moments())
    whole = {name: draw(rates()) for name in names[: draw(st.integers(1, len(names)))]}
    images = {}
    for shard in draw(trees(most, least_splits)):
        own = {name: effective(rate, shard) for name, rate in whole.items()}
        held = {name: state_at(rate, draw(levels(rate)), now_ms) for name, rate in own.items()}
        images[shard] = BucketImage(held, 1, None, 0)
    return now_ms, whole, images


def state_at(rate, level, now_ms):
    return LimitState(level - accrued_since_epoch(rate, now_ms), rate)


def level(images, name, now_ms):
    """Of all shards together."""
    return sum(levels_of(images, name, now_ms).values())


def levels_of(images, name, now_ms):
    return {shard: level_milli(image.limits[name], now_ms) for shard, image in images.items()}


def let_through(made, balance):
    return (made.low is None or balance >= made.low) and (made.high is None or balance <= made.high)


def written(images, moves):
    """The shards after a transaction; None if the bounds of one of its moves refuse it."""
    after = dict(images)
    for shard, made in moves.items():
        limits = dict(after[shard].limits)
        for each in made:
            state = limits[each.key]
            if not let_through(each, state.balance_milli):
                return None
            limits[each.key] = replace(state, balance_milli=each.applied(state.balance_milli))
        after[shard] = after[shard]._replace(limits=limits)
    return after


def full_shard(rates, shard, version, now_ms):
    """A shard that nothing was taken from; ``rates`` are those of the whole."""
    limits = {}
    for key, rate in rates.items():
        own = effective(rate, shard)
        limits[key] = LimitState(full_balance(own, now_ms), own)
    return BucketImage(limits, version, None, 0)

"""Shards of a bucket are that bucket: nothing is minted, nothing lost, no caller starves.

``DEFECTS`` are stores that ignore one guard: the histories must find each of them.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st

from tests.property.shard_strategies import full_shard
from tests.property.strategies import levels, limits, moments, rates, steps
from tests.support.changes import Wanted
from zae_limiter import Limit
from zae_limiter.admission.image import BucketImage, LimitState, Rate, level_milli
from zae_limiter.admission.shards import split_merge as division
from zae_limiter.admission.shards.combined import combine, fits_at_ms
from zae_limiter.admission.shards.pressure import (
    QUIET_MS,
    Pressure,
    has_useful_halves,
    mergeable,
    observed,
    wants_split,
)
from zae_limiter.admission.shards.spreading import (
    gather,
    heir,
    is_large,
    place_credits,
    place_debts,
    taking,
)
from zae_limiter.admission.shards.tree import (
    WHOLE,
    Shard,
    contradicts,
    draw,
    effective,
    heirs,
    is_whole,
    live,
    of_shard,
    pairs,
    share,
)
from zae_limiter.bucket import EPOCH_MS

MOST = 64  # shards in these tests
DEFAULT_MOST = 32

shards = st.integers(0, 6).flatmap(
    lambda power: st.builds(Shard, st.integers(0, 2**power - 1), st.just(2**power))
)


@st.composite
def trees(draw, most=MOST):
    """All live shards of a bucket, after any number of splits."""
    leaves = {WHOLE}
    for _ in range(draw(st.integers(0, 20))):
        splittable = sorted(leaf for leaf in leaves if leaf.n < most)
        leaf = draw(st.sampled_from(splittable)) if splittable else None
        if leaf is not None:
            leaves = leaves - {leaf} | set(leaf.halves())
    return sorted(leaves)


def accrued(rate, now_ms):
    """Exactly, in millitokens."""
    return Fraction((now_ms - EPOCH_MS) * rate.refill_milli, rate.period_ms)


def let_through(made, balance):
    return (made.low is None or balance >= made.low) and (made.high is None or balance <= made.high)


def state_at(rate, level, now_ms):
    return LimitState(level - accrued(rate, now_ms).__floor__(), rate)


@st.composite
def buckets(draw, most=MOST, names=("rpm", "tpd")):
    """A moment, the limits of a bucket, and its shards in any condition."""
    now_ms = draw(moments())
    whole = {name: draw(rates()) for name in names[: draw(st.integers(1, len(names)))]}
    images = {}
    for shard in draw(trees(most)):
        own = {name: effective(rate, shard) for name, rate in whole.items()}
        held = {name: state_at(rate, draw(levels(rate)), now_ms) for name, rate in own.items()}
        images[shard] = BucketImage(held, 1, None, 0)
    return now_ms, whole, images


def level(images, name, now_ms):
    return sum(level_milli(image.limits[name], now_ms) for image in images.values())


# --- the tree


@given(shards, st.integers(0, 10**18))
@example(Shard(0, 2), 1)
@example(Shard(1, 2), 1)
def test_halves_of_a_share_are_the_share_and_the_first_is_larger(shard, capacity):
    first, second = (share(half, capacity) for half in shard.halves())
    assert (first, second) == ((share(shard, capacity) + 1) // 2, share(shard, capacity) // 2)
    assert share(WHOLE, capacity) == capacity


@given(trees(), st.integers(0, 10**18))
def test_shares_are_the_capacity_and_the_n_ths_are_one(leaves, capacity):
    assert is_whole(leaves)
    assert sum(Fraction(1, leaf.n) for leaf in leaves) == 1
    assert sum(share(leaf, capacity) for leaf in leaves) == capacity


@given(trees(), st.data())
def test_shards_are_not_whole_if_one_is_missing_or_there_twice(leaves, data):
    other = data.draw(st.sampled_from(leaves))
    assert not is_whole([leaf for leaf in leaves if leaf != other])
    assert not is_whole([*leaves, other.halves()[1]])
    assert not is_whole([*leaves, other])


@given(shards)
def test_relations_fit_together(shard):
    for half in shard.halves():
        assert half.parent == shard
        assert half.sibling.sibling == half
        assert {half, half.sibling} == set(shard.halves())
        assert shard.covers(half)
        assert not half.covers(shard)
        assert not half.covers(half.sibling)
    stays, comes = shard.halves()
    assert (stays.survives, comes.survives) == (True, False)
    assert stays.number == shard.number
    assert next(iter(list(heirs(comes.number))[1:])) == shard.number


@given(trees(), st.data())
def test_some_shards_tell_which_others_there_must_be(leaves, data):
    known = data.draw(st.sets(st.sampled_from(leaves)))
    found = live(dict.fromkeys(known, 0))
    assert known <= set(found)
    assert is_whole(found)
    for leaf in leaves:
        assert sum(guess.covers(leaf) for guess in found) == 1
    if known == set(leaves):
        assert found == leaves


@given(st.data())
def test_of_contradicting_sights_the_later_ones_are_believed(data):
    """Seen at any moments of a history; in the end every live shard is seen once more."""
    generations, seen = {WHOLE: 0}, {}
    for _ in range(data.draw(st.integers(0, 25))):
        do = data.draw(st.sampled_from(["split", "merge", "write", "see"]))
        shard = data.draw(st.sampled_from(sorted(generations)))
        if do == "split" and shard.n < MOST:
            found = generations.pop(shard)
            generations |= dict.fromkeys(shard.halves(), found + 1)
        elif do == "merge" and shard in pairs(generations):
            both = generations.pop(shard), generations.pop(shard.sibling)
            generations[shard.parent] = max(both) + 1
        elif do == "write":
            generations[shard] += 1
        else:
            seen[shard.number] = (shard, generations[shard])
    seen |= {shard.number: (shard, found) for shard, found in generations.items()}
    assert live(dict(seen.values())) == sorted(generations)


@given(trees(), st.data())
def test_a_missing_shard_contradicts_its_relatives(leaves, data):
    number = data.draw(st.sampled_from([leaf.number for leaf in leaves if leaf.number] or [0]))
    assume(number)
    left = [leaf for leaf in leaves if not contradicts(leaf, number)]
    assert number not in {leaf.number for leaf in left}
    guessed = live(dict.fromkeys(left, 0))
    assert number not in {leaf.number for leaf in guessed}, "it is no longer guessed"
    assert not any(contradicts(leaf, number) for leaf in guessed)


@given(st.lists(shards, max_size=8), st.data())
def test_whatever_was_seen_the_guess_is_a_whole(seen, data):
    known = {shard: data.draw(st.integers(0, 5)) for shard in seen}
    assert is_whole(live(known))


# --- splitting and merging


@given(buckets(), st.integers(-3, 3) | st.integers(-(10**7), 10**7))
def test_a_split_that_is_let_through_cuts_the_balance_in_two(bucket, others):
    now_ms, _, images = bucket
    for image in images.values():
        halves = division.split(image, now_ms)
        for made in halves.kept:
            state, given_ = image.limits[made.key], halves.given[made.key]
            assert let_through(made, state.balance_milli), "as it was read"
            balance = state.balance_milli + others
            if not let_through(made, balance):
                continue
            here, there = (effective(state.rate, half) for half in WHOLE.halves())
            assert given_.rate == there
            kept = made.applied(balance)
            full = sum(share.capacity_milli - floor_of(share, now_ms) for share in (here, there))
            assert kept + given_.balance_milli == min(balance, full)
            for half, part in ((here, kept), (there, given_.balance_milli)):
                assert part + floor_of(half, now_ms) <= half.capacity_milli, "nothing is cut off"
            if level_milli(state, now_ms) >= 0:
                assert kept + floor_of(here, now_ms) >= -1
                assert level_milli(given_, now_ms) >= 0


def floor_of(rate, now_ms):
    return accrued(rate, now_ms).__floor__()


@given(buckets(most=8))
def test_halves_have_the_rates_of_the_shards_they_become(bucket):
    _, whole, images = bucket
    for shard, image in images.items():
        for name, state in image.limits.items():
            halves = tuple(effective(whole[name], half) for half in shard.halves())
            assert division.halved(state.rate) == halves


@given(buckets(), st.integers(-3, 3) | st.integers(-(10**7), 10**7))
def test_a_merge_that_is_let_through_adds_the_balances_up(bucket, others):
    now_ms, _, images = bucket
    for shard in pairs(images):
        one, other = images[shard], images[shard.sibling]
        for made in division.merge(one, other, now_ms):
            state, gone = one.limits[made.key], other.limits[made.key]
            assert let_through(made, state.balance_milli), "as it was read"
            balance = state.balance_milli + others
            if let_through(made, balance):
                within = [
                    min(each, state.rate.capacity_milli - floor_of(state.rate, now_ms))
                    for each, state in ((balance, state), (gone.balance_milli, gone))
                ]
                assert made.applied(balance) == sum(within)


@given(buckets())
def test_a_split_and_a_merge_leave_a_shard_as_it_was(bucket):
    now_ms, _, images = bucket
    for image in images.values():
        halves = division.split(image, now_ms)
        kept = {}
        for made in halves.kept:
            state = image.limits[made.key]
            balance = made.applied(state.balance_milli)
            kept[made.key] = LimitState(balance, division.halved(state.rate)[0])
        here, there = image._replace(limits=kept), image._replace(limits=halves.given)
        for made in division.merge(here, there, now_ms):
            balance, rate = image.limits[made.key].balance_milli, image.limits[made.key].rate
            merged = made.applied(kept[made.key].balance_milli)
            full = rate.capacity_milli - floor_of(rate, now_ms)
            if balance >= full:  # up to the rounding of a half
                assert full <= merged <= full + 1
            else:
                assert merged == balance


# --- histories


class World:
    """A sharded bucket and, beside it, what one exact bucket would hold."""

    def __init__(self, whole, now_ms):
        self.whole, self.now_ms = whole, now_ms
        self.images = {WHOLE: full_shard(whole, WHOLE, 1, now_ms)}
        self.exact = {name: Fraction(rate.capacity_milli) for name, rate in whole.items()}
        self.owed = dict.fromkeys(whole, 0)
        self.most = 1

    def wait(self, elapsed_ms):
        self.now_ms += elapsed_ms
        for name, rate in self.whole.items():
            brought = Fraction(elapsed_ms * rate.refill_milli, rate.period_ms)
            self.exact[name] = min(rate.capacity_milli, self.exact[name] + brought)

    def split(self, shard):
        """Plan it; what is returned carries it out, if nothing speaks against it by then."""
        halves = division.split(self.images[shard], self.now_ms)
        here, there = shard.halves()

        def done():
            image = self.images.get(shard)
            if shard.n < MOST and image is not None and self.write(shard, halves.kept):
                image = self.images.pop(shard)
                self.images[here] = self.turned(image, here)
                self.images[there] = image._replace(limits=halves.given)
                self.most = max(self.most, len(self.images))

        return done

    def merge(self, shard):
        """The same for a merge.

        While a merge is under way, a full sibling accrues into the room that charges make in the
        other shard. One bucket would have cut these tokens off. They are no excess: the capacity
        and the rate still bound every window.
        """
        if shard not in pairs(self.images):
            return lambda: None
        sibling, began_ms = self.images[shard.sibling], self.now_ms
        moves = division.merge(self.images[shard], sibling, self.now_ms)

        def done():
            both = shard in self.images and shard.sibling in self.images
            if both and self.is_unchanged(shard.sibling, sibling) and self.write(shard, moves):
                del self.images[shard.sibling]
                self.images[shard.parent] = self.turned(self.images.pop(shard), shard.parent)
                for name, rate in self.whole.items():
                    elapsed_ms, period_ms = self.now_ms - began_ms, rate.period_ms * shard.n
                    kept = Fraction(elapsed_ms * rate.refill_milli, period_ms)
                    self.exact[name] = min(rate.capacity_milli, self.exact[name] + kept)

        return done

    def is_unchanged(self, shard, image):
        """Whether a shard is as a merge has read it."""
        return self.images[shard] == image

    def lets_through(self, made, balance):
        return let_through(made, balance)

    def turned(self, image, shard):
        """The same balances at the rates of another shard."""
        whole = {key: replace(state, rate=self.whole[key]) for key, state in image.limits.items()}
        return of_shard(image._replace(limits=whole), shard)

    def write(self, shard, moves):
        """All or none."""
        limits = dict(self.images[shard].limits)
        for made in moves:
            state = limits[made.key]
            if not self.lets_through(made, state.balance_milli):
                return False
            limits[made.key] = replace(state, balance_milli=made.applied(state.balance_milli))
        self.images[shard] = self.images[shard]._replace(limits=limits)
        return True

    def charge(self, shard, amounts):
        wanted = {key: Wanted(amount, asked=True) for key, amount in amounts.items()}
        if self.write(shard, self.moves(shard, wanted)):
            self.count(amounts)

    def gather(self, amounts):
        spread = gather(self.images, amounts, self.now_ms)
        if spread is not None:
            for shard, parts in spread.items():
                assert self.write(shard, taking(self.images[shard], parts, self.now_ms))
            self.count(amounts)

    def owe(self, amounts):
        planned = place_debts(self.images, amounts, self.now_ms)
        for shard, parts in planned.covered.items():
            assert self.write(shard, taking(self.images[shard], parts, self.now_ms))
        for shard, parts in planned.owed.items():
            self.settle(shard, {key: Wanted(owed_milli=part) for key, part in parts.items()})
        self.count(amounts)
        for key, amount in amounts.items():
            self.owed[key] += amount

    def give_back(self, number, amounts):
        spread = place_credits(self.images, number, amounts, self.now_ms)
        for shard, parts in spread.items():
            self.settle(shard, {key: Wanted(returned_milli=part) for key, part in parts.items()})
        for key, amount in amounts.items():
            capacity = self.whole[key].capacity_milli
            self.exact[key] = min(capacity, self.exact[key] + amount)

    def settle(self, shard, wanted):
        assert self.write(shard, self.moves(shard, wanted))

    def moves(self, shard, wanted):
        limits = self.images[shard].limits
        return [each.ledger(key, limits[key], self.now_ms).move() for key, each in wanted.items()]

    def count(self, amounts):
        for key, amount in amounts.items():
            self.exact[key] -= amount


@st.composite
def amounts_for(draw, world, most=Fraction(3, 2)):
    """For each limit none, a little, about what there is, or too much."""
    found = {}
    for name, rate in world.whole.items():
        capacity = rate.capacity_milli
        held = max(0, level(world.images, name, world.now_ms))
        found[name] = draw(
            st.just(0)
            | st.integers(0, max(1, capacity // MOST))
            | st.integers(0, int(capacity * most))
            | st.integers(-2, 2).map(lambda more, held=held: max(0, held + more))
        )
    return found


DOINGS = ["wait", "split", "merge", "arrive", "arrive", "charge", "charge", "gather", "give back"]


@given(st.data(), moments())
@pytest.mark.parametrize("doings", [DOINGS, [*DOINGS, "owe"]], ids=["no debts", "debts"])
def test_shards_never_hold_more_than_one_bucket_would(doings, data, now_ms):
    check_shards(World, doings, data, now_ms)


def check_shards(make_world, doings, data, now_ms):
    """All shards hold at most a millitoken more for each shard that there ever was at once."""
    whole = {"rpm": data.draw(rates()), "tpd": Rate.of(Limit.per_day("tpd", 10))}
    world = make_world(whole, now_ms)
    under_way = []
    for _ in range(data.draw(st.integers(1, 40))):
        do = data.draw(st.sampled_from(doings))
        shard = data.draw(st.sampled_from(sorted(world.images)))
        if do == "wait":
            world.wait(data.draw(steps()))
        elif do in ("split", "merge"):
            under_way.append(getattr(world, do)(shard))
        elif do == "arrive" and under_way:
            under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))()
        elif do == "arrive":
            continue
        elif do == "charge":
            world.charge(shard, data.draw(amounts_for(world)))
        elif do == "gather":
            world.gather(data.draw(amounts_for(world)))
        elif do == "owe":
            world.owe(data.draw(amounts_for(world)))
        else:
            world.give_back(data.draw(st.integers(0, MOST - 1)), data.draw(amounts_for(world)))
        assert is_whole(world.images)
        for name, rate in whole.items():
            shares = [image.limits[name].rate.capacity_milli for image in world.images.values()]
            assert sum(shares) == rate.capacity_milli
            exact = world.exact[name]
            assert level(world.images, name, world.now_ms) < exact + world.most
            assert exact > -world.owed[name] - world.most, "too much was given out"


class TakesWhatIsNotThere(World):
    def lets_through(self, made, balance):
        return made.high is None or balance <= made.high


class SplitsWhatIsNoLongerThere(World):
    def lets_through(self, made, balance):
        return made.low is None or balance >= made.low


class MergesChangedShards(World):
    def is_unchanged(self, shard, image):
        return True


class KeepsTheRatesOfTheWhole(World):
    def turned(self, image, shard):
        return image


BUSY = ["split", "merge", "merge", "arrive", "charge", "charge", "give back"]
DEFECTS = [
    TakesWhatIsNotThere,
    SplitsWhatIsNoLongerThere,
    pytest.param(MergesChangedShards, marks=pytest.mark.slow),  # takes hundreds of examples
    KeepsTheRatesOfTheWhole,
]


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect):
    @settings(max_examples=1000, phases=[Phase.generate], derandomize=True)
    @given(st.data(), moments())
    def run(data, now_ms):
        check_shards(defect, BUSY, data, now_ms)

    with pytest.raises(AssertionError):
        run()


@given(st.data(), moments())
def test_nothing_is_lost_as_long_as_nothing_runs_over(data, now_ms):
    """Splits and merges at any moments, with charges between, cost nothing at all."""
    refill, period = data.draw(st.integers(1, 10**9)), data.draw(st.integers(1, 10**9))
    whole = {"rpm": Rate(10**30, refill, period)}
    world = World(whole, now_ms)
    world.gather({"rpm": 9 * 10**29})
    for _ in range(data.draw(st.integers(1, 40))):
        do = data.draw(st.sampled_from(["wait", "split", "merge", "charge"]))
        shard = data.draw(st.sampled_from(sorted(world.images)))
        if do == "wait":
            world.wait(data.draw(st.integers(0, 10**7)))
        elif do == "charge":
            world.charge(shard, {"rpm": data.draw(st.integers(0, 10**27))})
        else:
            getattr(world, do)(shard)()
        held = [image.limits["rpm"] for image in world.images.values()]
        exact = sum(state.balance_milli + accrued(state.rate, world.now_ms) for state in held)
        assert 0 <= exact - world.exact["rpm"] < 1, "what the first write has rounded up"
        assert 0 <= exact - level(world.images, "rpm", world.now_ms) < len(held)


# --- amounts that go to several shards


@st.composite
def wishes(draw, bucket):
    """Amounts near what all shards together hold."""
    now_ms, whole, images = bucket
    found = {}
    for name in whole:
        held = max(0, level(images, name, now_ms))
        found[name] = draw(
            st.integers(0, held + 1) | st.sampled_from([0, 1, held, held + 1, held // 2])
        )
    return found


with_wishes = buckets().flatmap(lambda bucket: st.tuples(st.just(bucket), wishes(bucket)))


@given(with_wishes)
def test_a_gathered_charge_takes_exactly_its_amount(case):
    (now_ms, _, images), amounts = case
    spread = gather(images, amounts, now_ms)
    fits = all(level(images, name, now_ms) >= amount for name, amount in amounts.items())
    assert (spread is not None) == fits
    if spread is None:
        return
    after = dict(images)
    for shard, parts in spread.items():
        assert parts.keys() == amounts.keys()
        limits = dict(images[shard].limits)
        for made in taking(images[shard], parts, now_ms):
            state = limits[made.key]
            assert let_through(made, state.balance_milli)
            assert parts[made.key] <= max(0, level_milli(state, now_ms))
            limits[made.key] = replace(state, balance_milli=made.applied(state.balance_milli))
        after[shard] = images[shard]._replace(limits=limits)
    for name, amount in amounts.items():
        assert sum(parts[name] for parts in spread.values()) == amount
        assert level(after, name, now_ms) == level(images, name, now_ms) - amount


@given(with_wishes)
def test_no_fewer_shards_would_do_for_one_limit(case):
    (now_ms, whole, images), amounts = case
    name = next(iter(whole))
    spread = gather(images, {name: amounts[name]}, now_ms)
    assume(spread)
    held = sorted(level_milli(image.limits[name], now_ms) for image in images.values())[::-1]
    assert len(spread) == 1 or sum(held[: len(spread) - 1]) < amounts[name]


@given(with_wishes, st.integers(1, 5))
def test_a_debt_is_taken_in_full_and_owed_by_all_alike(case, times):
    (now_ms, whole, images), wanted = case
    amounts = {name: amount * times for name, amount in wanted.items()}
    planned = place_debts(images, amounts, now_ms)
    for name, amount in amounts.items():
        covered = {shard: parts.get(name, 0) for shard, parts in planned.covered.items()}
        owed = {shard: parts.get(name, 0) for shard, parts in planned.owed.items()}
        assert sum(covered.values()) + sum(owed.values()) == amount
        held = {shard: level_milli(image.limits[name], now_ms) for shard, image in images.items()}
        assert all(0 <= part <= max(0, held[shard]) for shard, part in covered.items())
        if sum(owed.values()):
            assert sum(covered.values()) == sum(max(0, each) for each in held.values())
            left = {
                shard: held[shard] - covered.get(shard, 0) - owed.get(shard, 0) for shard in held
            }
            width = {shard: max(1, share(shard, whole[name].capacity_milli)) for shard in held}
            for shard in (each for each, part in owed.items() if part):
                height = Fraction(left[shard] + 1, width[shard])
                assert all(Fraction(left[each] - 1, width[each]) <= height for each in left)


@given(with_wishes, st.integers(0, MOST - 1))
def test_a_credit_goes_home_and_its_surplus_to_others(case, number):
    (now_ms, whole, images), amounts = case
    home = heir(images, number)
    assert home.number in heirs(number)
    spread = place_credits(images, number, amounts, now_ms)
    for name, amount in amounts.items():
        parts = {shard: each.get(name, 0) for shard, each in spread.items()}
        assert sum(parts.values()) == amount
        held = {shard: level_milli(image.limits[name], now_ms) for shard, image in images.items()}
        after = {shard: held[shard] + parts.get(shard, 0) for shard in held}
        room = {shard: share(shard, whole[name].capacity_milli) - after[shard] for shard in held}
        assert all(room[shard] >= 0 for shard in room if shard != home)
        if room[home] < 0:
            assert not any(room[shard] for shard in room if shard != home)
        if any(part for shard, part in parts.items() if shard != home):
            assert room[home] <= 0


# --- no caller starves


@given(trees(), st.integers(1, 12), moments())
def test_a_small_capacity_in_many_shards_can_be_taken(leaves, capacity, now_ms):
    whole = {"rpm": Rate.of(Limit.per_second("rpm", capacity))}
    images = {shard: full_shard(whole, shard, 1, now_ms) for shard in leaves}
    for wanted in range(1, capacity + 1):
        amounts = {"rpm": wanted * 1000}
        alone = any(share(shard, capacity * 1000) >= amounts["rpm"] for shard in leaves)
        assert alone or is_large(images, amounts)
        assert gather(images, amounts, now_ms) is not None


@given(buckets(), st.data())
def test_the_stated_wait_is_exact_to_the_millisecond(bucket, data):
    now_ms, whole, images = bucket
    name = next(iter(whole))
    capacity = whole[name].capacity_milli
    amount = data.draw(st.integers(1, capacity + 1) | st.sampled_from([capacity, capacity + 1]))
    states = [image.limits[name] for image in images.values()]
    at_ms = fits_at_ms(states, amount, now_ms)
    assert (at_ms is None) == (amount > whole[name].capacity_milli)
    if at_ms is None:
        return

    def can_be_taken(moment_ms):
        alone = any(level_milli(state, moment_ms) >= amount for state in states)
        return alone or gather(images, {name: amount}, moment_ms) is not None

    assert can_be_taken(at_ms)
    assert at_ms == now_ms or not can_be_taken(at_ms - 1)


@given(trees(), limits(), moments())
def test_a_third_is_given_to_one_call_if_half_is_there(leaves, limit, now_ms):
    rate = Rate.of(limit)
    whole = {limit.name: rate}
    images = {}
    for shard in leaves:
        own = effective(rate, shard)
        half = state_at(own, (own.capacity_milli + 1) // 2, now_ms)
        images[shard] = BucketImage({limit.name: half}, 1, None, 0)
    amounts = {limit.name: rate.capacity_milli * 3 // 10}
    if len(leaves) > 1:
        assert is_large(images, amounts) or rate.capacity_milli < 10
    assert gather(images, amounts, now_ms) is not None
    assert whole.keys() == amounts.keys()


@given(buckets())
def test_the_sum_of_shards_is_reported_as_one_bucket(bucket):
    now_ms, whole, images = bucket
    found = combine(images, whole, now_ms)
    for name, rate in whole.items():
        assert found.limits[name].rate == rate
        assert level_milli(found.limits[name], now_ms) == level(images, name, now_ms)


# --- choice


@given(trees(), st.floats(0, 1, exclude_max=True))
def test_one_of_the_candidates_is_asked(leaves, chance):
    assert draw(leaves, chance) in leaves
    assert draw(leaves[:1], chance) == leaves[0]


@given(trees())
def test_a_shard_is_asked_as_often_as_it_refills(leaves):
    finest = max(leaf.n for leaf in leaves)
    found = [draw(leaves, (spot + 0.5) / finest) for spot in range(finest)]
    for leaf in leaves:
        assert found.count(leaf) == finest // leaf.n


# --- pressure


def seen(writes_per_s, *, seconds, shard=WHOLE, step_ms=100, start_ms=EPOCH_MS):
    pressure = None
    for at_ms in range(0, seconds * 1000 + 1, step_ms):
        count = writes_per_s * at_ms // 1000
        pressure = observed(pressure, shard, count, start_ms + at_ms)
    return pressure


def image_of(capacity, *, admitted=0, taken=0, shard=WHOLE):
    rate = Rate.of(Limit.per_second("rpm", capacity))
    state = LimitState(0, rate, taken * 1000 * admitted)
    return of_shard(BucketImage({"rpm": state}, 1, None, 0, admitted), shard)


@pytest.mark.parametrize(("per_s", "hot"), [(0, False), (790, False), (810, True), (5000, True)])
def test_a_shard_is_split_over_800_writes_a_second(per_s, hot):
    assert wants_split(seen(per_s, seconds=3), image_of(10_000), DEFAULT_MOST) == hot


def test_a_rate_is_not_told_from_an_instant():
    burst = observed(observed(None, WHOLE, 0, 0), WHOLE, 900, 10)
    assert not wants_split(burst, image_of(10_000), DEFAULT_MOST)
    assert observed(burst, WHOLE, 901, 5000).per_s == 180


def test_throttling_calls_for_a_split_whatever_was_counted():
    assert wants_split(seen(10, seconds=2), image_of(10_000), DEFAULT_MOST, throttled=True)


def test_there_are_never_more_shards_than_allowed():
    shard = Shard(5, 32)
    assert not wants_split(
        seen(5000, seconds=2, shard=shard), image_of(10**9, shard=shard), DEFAULT_MOST
    )
    assert wants_split(seen(5000, seconds=2, shard=shard), image_of(10**9, shard=shard), 64)
    assert not wants_split(seen(5000, seconds=2), image_of(10**9), 1)


@pytest.mark.parametrize(
    ("capacity", "taken", "useful"), [(4, 1, True), (3, 1, False), (40, 10, True), (39, 10, False)]
)
def test_halves_must_hold_two_usual_charges(capacity, taken, useful):
    assert has_useful_halves(image_of(capacity, admitted=100, taken=taken)) == useful


def test_a_split_starts_the_count_anew():
    before = seen(5000, seconds=3)
    here, there = WHOLE.halves()
    now_ms = before.at_ms + 1000
    assert observed(before, here, before.writes + 1, now_ms) == Pressure(
        here, before.writes + 1, now_ms, now_ms
    )
    assert observed(observed(None, there, 9000, 0), there, 1, 5000).per_s == 0


def test_siblings_are_merged_after_ten_quiet_minutes():
    pair = WHOLE.halves()
    minutes = QUIET_MS // 60_000
    for per_s, passed, found in [
        (199, minutes, pair[0]),
        (199, minutes - 1, None),
        (201, 20, None),
    ]:
        pressures = {
            each: seen(per_s, seconds=passed * 60, shard=each, step_ms=1000) for each in pair
        }
        now_ms = EPOCH_MS + passed * 60_000
        assert mergeable(pressures, now_ms)[:1] == ([found] if found else [])
        assert not mergeable({pair[0]: pressures[pair[0]]}, now_ms)
        assert not mergeable(pressures, now_ms + 3_600_000), "that may be over"


def test_the_finest_shards_are_merged_first():
    first, second = WHOLE.halves()
    leaves = [*first.halves(), second]
    pressures = {
        each: seen(0, seconds=QUIET_MS // 1000, shard=each, step_ms=1000) for each in leaves
    }
    assert mergeable(pressures, EPOCH_MS + QUIET_MS)[0] == first.halves()[0]


def test_weights_are_in_the_order_of_numbers():
    assert all(one < other for one, other in pairwise(live({Shard(5, 8): 0})))
    assert live({Shard(0, 4): 0}) == [Shard(0, 4), Shard(1, 2), Shard(2, 4)]

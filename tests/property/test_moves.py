"""A guessed write is exact wherever its bounds let it through, and some guess always is.

``DEFECTS`` are stores that ignore one bound: the properties must find each of them.
"""

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.support.changes import Wanted
from zae_limiter.admission.image import LimitState, Rate
from zae_limiter.admission.moves import Move, Seen, rebase_move, reset_move, top_up_move
from zae_limiter.bucket import EPOCH_MS

amounts = st.integers(0, 3_000_000)
rates = st.builds(
    Rate,
    st.integers(1, 2_000_000),
    st.integers(1, 2_000_000),
    st.integers(1, 90_000_000),
    st.none(),  # quotas and soft limits have terms
)
stamps = st.integers(EPOCH_MS - 10**10, EPOCH_MS + 10**12)
wanteds = st.builds(
    lambda charged, owed, returned, asked: Wanted(charged if asked else 0, owed, returned, asked),
    amounts,
    amounts,
    amounts,
    st.booleans(),
)


def accrued(rate, now_ms):
    return (now_ms - EPOCH_MS) * rate.refill_milli // rate.period_ms


def let_through(made: Move, balance):
    return (made.low is None or balance >= made.low) and (made.high is None or balance <= made.high)


def level(balance, rate, now_ms):
    return min(rate.capacity_milli, balance + accrued(rate, now_ms))


@st.composite
def limits(draw):
    """A rate, a moment, and a balance whose level is anywhere near what matters."""
    rate, now_ms = draw(rates), draw(stamps)
    value = draw(
        st.integers(-4_000_000, 6_000_000)
        | st.sampled_from([0, -1, 1])
        | st.integers(-2, 2).map(lambda more: rate.capacity_milli + more)
    )
    return rate, now_ms, value - accrued(rate, now_ms)


def ideal(balance, rate, wanted, now_ms):
    """The level after credits, debts and charges in this order, or None if they do not fit."""
    held = min(rate.capacity_milli, balance + accrued(rate, now_ms) + wanted.returned_milli)
    left = held - wanted.owed_milli - wanted.charged_milli
    return None if wanted.asked and left < 0 else left


def branch_of(wanted, rate, now_ms, *, overflowing):
    """The move of one guess, whatever the balance is."""
    ledger = wanted.ledger("x", LimitState(0, rate), now_ms)
    return ledger.branch(overflowing=overflowing)


@given(limits(), wanteds, st.booleans())
def test_what_is_let_through_is_exact(limit, wanted, overflowing):
    check_charge(let_through, limit, wanted, overflowing=overflowing)


def check_charge(let_through, limit, wanted, *, overflowing):
    rate, now_ms, balance = limit
    made = branch_of(wanted, rate, now_ms, overflowing=overflowing)
    full, enough = rate.capacity_milli, wanted.taken_milli
    near = [most + off for most in (full, enough) for off in (-1000, -1, 0, 1, 1000)]
    earned = accrued(rate, now_ms) + wanted.returned_milli
    for held in [balance, *(value - earned for value in near)]:
        if let_through(made, held):
            expected = ideal(held, rate, wanted, now_ms)
            assert expected is not None
            assert level(made.applied(held), rate, now_ms) == expected
    assert made.consumed_milli == wanted.taken_milli - wanted.returned_milli


@given(limits(), wanteds)
@example((Rate(10, 1, 1), EPOCH_MS, 10), Wanted(10, asked=True))
@example((Rate(10, 1, 1), EPOCH_MS, 11), Wanted(11, asked=True))
@example((Rate(10, 1, 1), EPOCH_MS, -1), Wanted(asked=True))
def test_what_fits_is_let_through_by_the_branch_that_was_read(limit, wanted):
    rate, now_ms, balance = limit
    made = wanted.ledger("x", LimitState(balance, rate), now_ms).move()
    expected = ideal(balance, rate, wanted, now_ms)
    assert let_through(made, balance) == (expected is not None)


def guessed(limit, wanted, age_ms, others):
    rate, now_ms, balance = limit
    ledger = wanted.ledger("x", LimitState(balance, rate), now_ms)
    return ledger.move(Seen(age_ms, {"x": others}))


@given(limits(), wanteds, st.integers(-10, 10**7))
def test_a_guess_without_other_clients_is_what_would_be_read(limit, wanted, age_ms):
    rate, now_ms, balance = limit
    read = wanted.ledger("x", LimitState(balance, rate), now_ms).move()
    assert guessed(limit, wanted, age_ms, 0) == read


@given(limits(), wanteds, st.integers(-10, 10**7), st.integers(0, 10**7))
def test_others_only_make_a_limit_seem_less_full(limit, wanted, age_ms, others):
    rate, now_ms, balance = limit
    plain = branch_of(wanted, rate, now_ms, overflowing=False)
    read = wanted.ledger("x", LimitState(balance, rate), now_ms).move()
    assert guessed(limit, wanted, age_ms, others) in (plain, read)


@given(rates, st.integers(1, 10**6))
def test_a_busy_limit_is_not_thought_to_be_full(rate, surplus):
    """A limit of which two thirds of what accrues, or more, are taken is seldom full."""
    limit = (rate, EPOCH_MS, rate.capacity_milli + surplus)
    wanted = Wanted(1, asked=True)
    two_thirds = -(-2 * rate.refill_milli * 1000 // (3 * rate.period_ms))
    assert guessed(limit, wanted, 0, two_thirds).put is None
    assert guessed(limit, wanted, 0, 0).put is not None


@given(limits(), amounts)
def test_the_first_write_takes_from_a_full_limit(limit, amount):
    rate, now_ms, balance = limit
    made = Wanted(amount).ledger("x", LimitState(balance, rate), now_ms).first_move()
    assert made.put is not None
    assert made.put + accrued(rate, now_ms) == rate.capacity_milli - amount
    assert let_through(made, balance) == (level(balance, rate, now_ms) == rate.capacity_milli)


@given(limits(), rates, st.integers(-10, 10))
def test_another_rate_keeps_the_level(limit, other, off):
    check_rebase(let_through, limit, other, off)


def check_rebase(let_through, limit, other, off):
    rate, now_ms, balance = limit
    made = rebase_move("x", LimitState(balance, rate), other, now_ms)
    assert let_through(made, balance)
    later = balance + off  # another write was made meanwhile
    if let_through(made, later):
        most = min(rate.capacity_milli, other.capacity_milli)
        found = made.applied(later) + accrued(other, now_ms)
        assert found == min(most, later + accrued(rate, now_ms))


@given(limits(), amounts, st.integers(-10, 10))
def test_a_top_up_adds_what_it_says(limit, amount, off):
    rate, now_ms, balance = limit
    made = top_up_move("x", LimitState(balance, rate), amount, now_ms)
    assert let_through(made, balance)
    room = max(0, rate.capacity_milli - balance - accrued(rate, now_ms))
    assert made.add == min(amount, room)
    if let_through(made, balance + off):
        expected = min(rate.capacity_milli, balance + off + accrued(rate, now_ms)) + made.add
        assert level(made.applied(balance + off), rate, now_ms) == expected


@given(limits())
def test_a_reset_fills(limit):
    rate, now_ms, balance = limit
    made = reset_move("x", LimitState(balance, rate), now_ms)
    assert let_through(made, balance)
    assert made.add == max(0, rate.capacity_milli - balance - accrued(rate, now_ms))
    assert made.applied(balance) + accrued(rate, now_ms) == rate.capacity_milli


# --- planted defects


def ignoring_the_lower_bound(made, balance):
    return made.high is None or balance <= made.high


def ignoring_the_upper_bound(made, balance):
    return made.low is None or balance >= made.low


DEFECTS = {
    "a charge is let through that does not fit": (
        ignoring_the_lower_bound,
        check_charge,
        {"limit": limits(), "wanted": wanteds, "overflowing": st.just(False)},
    ),
    "a guess that there is no overflow is not checked": (
        ignoring_the_upper_bound,
        check_charge,
        {"limit": limits(), "wanted": wanteds, "overflowing": st.just(False)},
    ),
    "a guess of overflow is not checked": (
        ignoring_the_lower_bound,
        check_charge,
        {"limit": limits(), "wanted": wanteds, "overflowing": st.just(True)},
    ),
    "another rate mints the overflow": (
        ignoring_the_upper_bound,
        check_rebase,
        {"limit": limits(), "other": rates, "off": st.integers(-10, 10)},
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect):
    broken, check, arguments = DEFECTS[defect]

    @settings(max_examples=1000, phases=[Phase.generate], derandomize=True)
    @given(st.fixed_dictionaries(arguments))
    def run(case):
        check(broken, **case)

    with pytest.raises(AssertionError):
        run()

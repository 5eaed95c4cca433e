"""Writes to a quota that were planned on an earlier state: the store refuses those that are wrong.

Each test is a way in which another design grants too much, or loses something.
"""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from zae_limiter import Limit
from zae_limiter.admission.image import BucketImage, Rate, full_at_ms
from zae_limiter.admission.quotas import (
    QuotaSettlement,
    WindowLedger,
    fits_at_ms,
    free_units,
    full_quota,
    rebase_quota,
    reset_quota,
    top_up_quota,
)
from zae_limiter.admission.windows import HoldName, level_in, window_of

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
T = int(NOON.timestamp() * 1000)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
EDGE = T + DAY_MS // 2
DAILY = Rate.of(Limit.quota("tokens", 1000, per="day", hold_ttl=60))
SESSION = Rate.of(Limit.quota("tokens", 1000, after_first_use="5h"))


def is_accepted(planned, state):
    """Tell whether a store makes a planned write: its bounds hold, and its holds are as seen."""
    move, holds, _ = planned
    is_low_enough = move.high is None or state.balance_milli <= move.high
    is_high_enough = move.low is None or state.balance_milli >= move.low
    stored = state.quota.holds
    are_as_seen = all(stored.get(name) == units for name, units in holds.swept.items())
    are_held = all(stored.get(name, 0) >= units for name, units in holds.removed.items())
    return is_low_enough and is_high_enough and are_as_seen and are_held


def charge(state, tokens, now_ms):
    """Plan a charge; return the write and the hold."""
    ledger = WindowLedger("tokens", state, now_ms, charges=tokens > 0)
    hold = ledger.take(tokens * 1000)
    return ledger.finish(asked=True), hold


def settle(state, hold, change, now_ms):
    """Plan a settlement whose cost is larger by ``change`` tokens than the estimate."""
    ledger = WindowLedger("tokens", state, now_ms, charges=False)
    ledger.settle(QuotaSettlement(hold, change * 1000))
    return ledger.finish(asked=False)


def after_charge(state, tokens, now_ms):
    planned, _ = charge(state, tokens, now_ms)
    assert is_accepted(planned, state)
    return planned.applied(state)


def level(state):
    return level_in(window_of(state.balance_milli), state.balance_milli) // 1000


@pytest.fixture
def full():
    return full_quota(DAILY, T)


def test_of_two_first_uses_one_begins_the_window():
    seen = full_quota(SESSION, T)
    first, second = (charge(seen, 600, now_ms)[0] for now_ms in (T, T + 7))
    assert is_accepted(first, seen)
    assert not is_accepted(second, first.applied(seen))


def test_of_two_turns_one_begins_the_window(full):
    first, second = (charge(full, 600, EDGE + ms)[0] for ms in (0, 7))
    assert not is_accepted(second, first.applied(full))


def test_of_two_charges_that_do_not_fit_together_one_is_made(full):
    seen = after_charge(full, 1, T)
    first, second = (charge(seen, 600, T + ms)[0] for ms in (1, 2))
    assert not is_accepted(second, first.applied(seen))


def test_a_charge_of_the_window_before_is_refused_after_the_turn(full):
    seen = after_charge(full, 1, T)
    planned, _ = charge(seen, 1, EDGE - 1)
    assert not is_accepted(planned, after_charge(seen, 1, EDGE))


def test_a_charge_ahead_is_refused_after_the_balance_was_brought_back(full):
    ahead = after_charge(full, 1, T + 5 * DAY_MS)
    planned, _ = charge(ahead, 1, T)
    back = reset_quota("tokens", ahead, T).applied(ahead)
    assert window_of(back.balance_milli) == window_of(full.balance_milli)
    assert not is_accepted(planned, back)


def test_a_settlement_whose_hold_was_returned_is_refused_after_the_turn(full):
    planned, hold = charge(full, 300, T)
    swept = after_charge(planned.applied(full), 1, T + HOUR_MS)
    late = settle(swept, hold, 0, EDGE - 1)
    assert is_accepted(late, swept)
    assert not is_accepted(late, after_charge(swept, 1, EDGE))


def test_a_settlement_after_the_turn_is_usage_only(full):
    planned, hold = charge(full, 300, T)
    turned = after_charge(planned.applied(full), 100, EDGE)
    late = settle(turned, hold, -100, EDGE - 1)  # by a clock that is behind the edge
    assert (level(late.applied(turned)), late.applied(turned).consumed_milli) == (900, 300_000)


def test_a_settlement_by_a_clock_beyond_the_edge_counts_in_its_window(full):
    planned, hold = charge(full, 300, T)
    seen = planned.applied(full)  # no other client has begun the next window
    assert level(settle(seen, hold, -100, EDGE + 1).applied(seen)) == 800


def test_expired_holds_are_returned_once(full):
    seen = after_charge(full, 300, T)
    first, second = (charge(seen, 1, T + HOUR_MS + ms)[0] for ms in (0, 1))
    assert level(first.applied(seen)) == 999
    assert not is_accepted(second, first.applied(seen))


def test_a_hold_of_another_window_is_forgotten_and_not_returned(full):
    number = window_of(full.balance_milli)
    other = {HoldName(number - 1, T // 1000 + 600): 50_000}
    seen = replace(full, consumed_milli=50_000, quota=full.quota._replace(holds=other))
    charged = after_charge(seen, 1, T)
    assert (level(charged), charged.consumed_milli) == (999, 1000)
    assert {name.window for name in charged.quota.holds} == {number}


def test_a_write_that_does_not_charge_a_quota_leaves_its_expired_holds(full):
    seen = after_charge(full, 300, T)
    unnamed, _ = charge(seen, 0, T + HOUR_MS)
    assert unnamed.holds.is_empty
    assert unnamed.applied(seen) == seen


def test_a_reset_keeps_a_charge_that_came_meanwhile(full):
    planned, hold = charge(full, 300, T)
    spent = settle(planned.applied(full), hold, 0, T).applied(planned.applied(full))
    reset = reset_quota("tokens", spent, T + 1)
    charged = after_charge(spent, 200, T + 2)
    assert is_accepted(reset, charged)
    assert level(reset.applied(charged)) == 800


def test_another_amount_keeps_a_charge_that_came_meanwhile(full):
    more = Rate.of(Limit.quota("tokens", 1500, per="day", hold_ttl=60))
    rebase = rebase_quota("tokens", full, more, T)
    charged = after_charge(full, 200, T + 1)
    assert is_accepted(rebase, charged)
    assert level(rebase.applied(charged)) == 1300
    assert not is_accepted(rebase, after_charge(charged, 1, EDGE))


def test_a_top_up_before_the_first_charge_of_a_window_turns_it(full):
    seen = after_charge(full, 900, T)
    topped = top_up_quota("tokens", seen, 500_000, EDGE).applied(seen)
    assert level(after_charge(topped, 1500, EDGE + 1)) == 0


def test_a_hold_that_never_expires_survives_a_reset():
    rate = Rate.of(Limit.quota("tokens", 100, per="day", hold_ttl=None))
    full = full_quota(rate, T)
    planned, hold = charge(full, 50, T)
    seen = planned.applied(full)
    reset = reset_quota("tokens", seen, T + 1).applied(seen)
    assert (level(reset), sum(reset.quota.holds.values())) == (50, 50_000)
    assert level(settle(reset, hold, -50, T + 2).applied(reset)) == 100


def test_a_client_behind_is_told_the_edge_of_the_window_that_it_joins(full):
    turned = after_charge(full, 1000, EDGE)
    assert free_units(turned, EDGE - 1000) == 0
    holdless = replace(turned, quota=turned.quota._replace(holds={}))
    assert fits_at_ms(holdless, 1000, EDGE - 1000) == EDGE + DAY_MS


@pytest.mark.parametrize(
    ("rate", "until_ms"),
    [(DAILY, EDGE + 2 * DAY_MS), (SESSION, T + 5 * HOUR_MS + DAY_MS)],
    ids=["calendar", "first use"],
)
def test_a_bucket_outlives_the_window_of_its_quota(rate, until_ms):
    state = after_charge(full_quota(rate, T), 1, T)
    assert full_at_ms(BucketImage({"tokens": state}, 1, None, 0)) == until_ms

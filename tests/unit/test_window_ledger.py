"""The changes of one write to one quota, where the group of the write spans two windows."""

from datetime import UTC, datetime

from zae_limiter import Limit
from zae_limiter.admission.image import Rate
from zae_limiter.admission.quotas import QuotaHold, QuotaSettlement, WindowLedger, full_quota
from zae_limiter.admission.windows import level_in

DAY_MS = 86_400_000
NOON_MS = int(datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp() * 1000)
DAILY = Rate.of(Limit.quota("tokens", 1000, per="day"))
SESSION = Rate.of(Limit.quota("tokens", 1000, after_first_use="5h"))


def charged(rate, units, now_ms):
    """Return a quota of which an amount is held, and the hold."""
    state = full_quota(rate, now_ms)
    ledger = WindowLedger("tokens", state, now_ms, charges=True)
    hold = ledger.take(units)
    return ledger.finish(asked=True).applied(state), hold


def debt_of_unnamed(window, units):
    """Return the debt of a call that did not name the quota when it was admitted."""
    return QuotaSettlement(QuotaHold("tokens", 0, window, 0), units)


def test_a_late_debt_is_not_owed_by_the_window_that_a_debt_beside_it_begins():
    state, hold = charged(DAILY, 300_000, NOON_MS)
    later_ms = NOON_MS + DAY_MS
    ledger = WindowLedger("tokens", state, later_ms, charges=False)
    ledger.settle(QuotaSettlement(hold, 200_000))  # cost 500 in the window before
    ledger.settle(debt_of_unnamed(hold.window + 1, 50_000))
    after = ledger.finish(asked=False).applied(state)
    assert level_in(hold.window + 1, after.balance_milli) == 950_000
    assert after.consumed_milli == 550_000


def test_a_late_debt_is_not_owed_by_the_first_use_that_a_debt_beside_it_begins():
    state, hold = charged(SESSION, 300_000, NOON_MS)
    later_ms = NOON_MS + DAY_MS
    ledger = WindowLedger("tokens", state, later_ms, charges=False)
    ledger.settle(QuotaSettlement(hold, 200_000))
    ledger.settle(debt_of_unnamed(0, 50_000))
    after = ledger.finish(asked=False).applied(state)
    assert level_in(later_ms, after.balance_milli) == 950_000
    assert after.consumed_milli == 550_000

"""What a lease knows of the amounts of quotas that it holds, after a renewal."""

from datetime import UTC, datetime

from zae_limiter import ConfigSource, Limit
from zae_limiter._async.holds import HeldQuotas
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.quotas import QuotaHold, expiry_s
from zae_limiter.admission.request import Charge, Grant, RenewalFailure
from zae_limiter.admission.windows import begun

BUCKET = ("key-1", "gpt-4")
BEFORE_MIDNIGHT = int(datetime(2026, 3, 10, 23, 58, tzinfo=UTC).timestamp() * 1000)
DAY = Limit.quota("day", 100, per="day", hold_ttl=600)
MONTH = Limit.quota("month", 100, per="month", hold_ttl=600)


def held():
    in_force = InForce((DAY, MONTH), ConfigSource.SYSTEM, 1)
    charge = Charge(*BUCKET, in_force, in_force.amounts_milli({"day": 5, "month": 5}))
    holds = tuple(
        QuotaHold(
            key,
            5000,
            begun(in_force.rate_of(key).terms.window, BEFORE_MIDNIGHT),
            expiry_s(600, BEFORE_MIDNIGHT),
        )
        for key in in_force.keys
    )
    return HeldQuotas(Grant((charge,), quota_holds=(holds,)), BEFORE_MIDNIGHT)


def test_a_hold_that_outlives_its_window_is_not_renewed_by_an_unknown_outcome():
    quotas = held()
    ((day, month),) = quotas.current()
    later_ms = BEFORE_MIDNIGHT + 300_000
    quotas.renewed(BUCKET, RenewalFailure.UNKNOWN, {}, later_ms, later_ms + 2000)
    ((day_after, month_after),) = quotas.current()
    assert day_after == day
    assert month_after == month._replace(expires_s=expiry_s(600, later_ms))

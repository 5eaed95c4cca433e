"""Plans of groups that charge and settle a quota in one write."""

from tests.support.changes import charge_of, settlement_of
from tests.unit.dynamodb.stored import BUCKET_ID, NOW_MS
from tests.unit.dynamodb.test_longest_writes import LINK
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.image import HOUR_MS, Rate
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.quotas import QuotaHold, QuotaSettlement
from zae_limiter.admission.rebase import full_limit
from zae_limiter.items.buckets.cache import FreshBucket
from zae_limiter.items.buckets.planning import plan
from zae_limiter.items.buckets.writes import WriteContext
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import n, s

DAY_MS = 86_400_000
DAILY = Limit.quota("tokens", 1000, per="day")
RATE = Rate.of(DAILY)
IN_FORCE = InForce((DAILY,), ConfigSource.SYSTEM, 7)


def bucket_of(seen_ms):
    """Return a bucket that is full, in the window of a moment."""
    rates = {"tokens": RATE}
    indexes = stored.limit_indexes(rates)
    return stored.decode(
        {
            **keys.bucket(*BUCKET_ID, 0).attributes,
            **stored.index_keys(*BUCKET_ID, 0),
            **stored.link_attributes(LINK),
            "n": n(1),
            "cv": n(7),
            "g": n(3),
            "wc": n(9),
            "o": s("0.origin"),
            "h": n(NOW_MS // HOUR_MS),
            "op": s("0.mark"),
            "lh": s(stored.digest_of(rates, indexes)),
            "t_tokens": n(full_limit(RATE, seen_ms).balance_milli),
            "c_tokens": n(0),
            "p_tokens": s(stored.pack(RATE, indexes["tokens"])),
        }
    )


def test_a_turn_has_no_room_for_a_charge_beside_a_late_cost_of_its_own_window():
    """A reset has brought the balance back, and the call was admitted before."""
    bucket = bucket_of(NOW_MS - DAY_MS)
    window = RATE.terms.window.number(NOW_MS)
    hold = QuotaHold("tokens", 300_000, window, 0, "0.origin")
    settled = settlement_of(IN_FORCE, {}, quotas=(QuotaSettlement(hold, 0),))
    charge = charge_of(IN_FORCE, {"tokens": 800_000})
    small = charge_of(IN_FORCE, {"tokens": 700_000})
    context = WriteContext(BUCKET_ID.shard(0), NOW_MS, "mark")
    assert plan(FreshBucket(bucket), [settled, charge], context, LINK).decision.carried == [0]
    assert plan(FreshBucket(bucket), [settled, small], context, LINK).decision.carried == [0, 1]

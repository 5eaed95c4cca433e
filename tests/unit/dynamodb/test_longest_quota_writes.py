"""The longest writes to buckets with quotas fit into a request of DynamoDB.

A bucket with as many quotas, or quotas and slots, as it may hold is charged, settled and renewed
while every hold that it can have is there.
"""

from dataclasses import replace

import pytest

from tests.support.aws_rules.rules import MAX_EXPRESSION_BYTES, MAX_OPERATORS
from tests.unit.dynamodb.stored import BUCKET_ID, NOW_MS
from tests.unit.dynamodb.test_longest_writes import LINK, actions_of, measured, moments
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.image import HOUR_MS, Rate
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.quotas import QuotaHold, QuotaSettlement
from zae_limiter.admission.rebase import full_limit, rebase
from zae_limiter.admission.tally import Tally
from zae_limiter.dynamodb.buckets import writes
from zae_limiter.dynamodb.buckets.cache import FreshBucket
from zae_limiter.dynamodb.buckets.changes import BucketChange
from zae_limiter.dynamodb.buckets.planning import plan
from zae_limiter.dynamodb.buckets.writes import WriteContext
from zae_limiter.dynamodb.items import bucket as stored
from zae_limiter.dynamodb.items.attributes import n, s
from zae_limiter.models.limit import CONCURRENT_PLACES, MAX_LIMITS, QUOTA_PLACES

HOUR, DAY_MS = NOW_MS // HOUR_MS, 86_400_000
HOLD_TTL = 600
# A charge sweeps expired holds, and a hold lives 1.5 times its TTL in steps of half of it. So four
# names are in use at a time, and one more while a step begins.
STEPS = range(5)
MOST = MAX_LIMITS // QUOTA_PLACES
BESIDE = MAX_LIMITS - 8 * QUOTA_PLACES  # places beside eight quotas


def quotas(count, *, per="day", amount=1_000_000):
    return [
        Limit.budget(f"budget{number}", amount, per=per, zone="America/New_York", on=None)
        for number in range(count)
    ]


SETS = {
    "quotas": quotas(MOST),
    "quotas and slots": [
        *quotas(8),
        *[Limit.concurrent(f"slot{number}", 100) for number in range(BESIDE // CONCURRENT_PLACES)],
    ],
    "quotas and rates": [
        *quotas(8),
        *[Limit.per_minute(f"rate{number}", 100) for number in range(BESIDE)],
    ],
}


class Bucket:
    """A bucket with children, a finished hour, a pause that is over, and all holds."""

    def __init__(self, limits, *, is_expired, is_turned):
        self.limits = tuple(limits)
        self.in_force = InForce(self.limits, ConfigSource.SYSTEM, 7, 5)
        now_ms = self.now_ms = NOW_MS + HOUR_MS
        self.stored = stored.decode(self._item(is_expired, is_turned))
        tally = Tally(1, 1, 1, {limit.name: 1_000_000 for limit in limits}, 1)
        self.context = WriteContext(BUCKET_ID.shard(0), now_ms, "mark", tally=tally)

    def _item(self, is_expired, is_turned):
        rates = {limit.name: Rate.of(limit) for limit in self.limits}
        indexes = stored.limit_indexes(rates)
        item = {
            **stored.key(*BUCKET_ID, 0),
            **stored.index_keys(*BUCKET_ID, 0),
            **stored.link_attributes(LINK),
            "n": n(1),
            "cv": n(7),
            "g": n(3),
            "wc": n(9),
            "ac": n(4),
            "rj": n(1),
            "rx": n(1),
            "wt": n(1),
            "sh": n(1),
            "o": s("0.origin"),
            "h": n(HOUR),
            "op": s("0.mark"),
            "rq": s("0=5"),
            "ph": n(HOUR - 1),
            "ua": n(1),
            "ur": n(1),
            "ux": n(1),
            "uw": n(1),
            "us": n(1),
            "uq": s("0=5"),
            "ttl": n(NOW_MS // 1000 + 5),
            "nb": n(NOW_MS - 1),
            "lh": s(stored.digest_of(rates, indexes, NOW_MS - 1)),
        }
        seen_ms = self.now_ms - (2 * DAY_MS if is_turned else 0)
        for name, rate in rates.items():
            index = indexes[name]
            used = 50_000 if rate.terms is None else 500_000
            balance = full_limit(rate, seen_ms).balance_milli - used
            item |= {
                f"t_{name}": n(balance),
                f"c_{name}": n(9000),
                f"p_{name}": s(stored.pack(rate, index)),
                f"b{index}": n(4000),
                f"k{index}": n(500),
                f"u{index}": n(7),
                f"v{index}": n(3),
            }
            if rate.refill_milli == 0:
                item |= {stored.held_name(index, moment): n(6) for moment in moments()}
            elif rate.terms is not None:
                for hold in self.names(rate, seen_ms, is_expired):
                    item[stored.hold_name(index, hold)] = n(100_000)
                item |= {f"z{index}": n(balance), f"e{index}": n(hold[0] * 10 + 1)}
        return item

    def names(self, rate, seen_ms, is_expired):
        number = rate.terms.window.number(seen_ms)
        first = self.now_ms // 1000 // 300 - (len(STEPS) if is_expired else -1)
        return [(number, (first + step) * 300) for step in STEPS]

    def holds(self, *, is_expired, is_turned):
        seen_ms = self.now_ms - (2 * DAY_MS if is_turned else 0)
        return [
            QuotaHold(key, 1000, *name, "0.origin")
            for key in self.in_force.quota_keys
            for name in self.names(self.in_force.rate_of(key), seen_ms, is_expired)
        ]


def planned(bucket, *changes):
    yield from actions_of(plan(FreshBucket(bucket.stored), changes, bucket.context, LINK))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("is_turned", [False, True])
def test_the_longest_writes_of_quotas_fit(name, is_expired, is_turned, record_property):
    bucket = Bucket(SETS[name], is_expired=is_expired, is_turned=is_turned)
    in_force, through = bucket.in_force, bucket.in_force.name_set
    charge = BucketChange(
        in_force, dict.fromkeys(in_force.keys, 1000), True, 1, through_child=through
    )
    holds = bucket.holds(is_expired=is_expired, is_turned=is_turned)
    settled = BucketChange(
        in_force,
        {},
        False,
        through_child=through,
        quotas=tuple(QuotaSettlement(hold, -400) for hold in holds),
    )
    renewed = replace(settled, quotas=(), renewed_quotas=tuple(holds))
    wider = tuple(
        replace(each, capacity=2 * each.capacity, refill_amount=2 * each.capacity)
        if each.is_quota
        else each
        for each in SETS[name]
    )
    other_calendar = quotas(sum(each.is_quota for each in SETS[name]), per="month")
    sent = [*planned(bucket, charge), *planned(bucket, settled), *planned(bucket, renewed)]
    sent += [*planned(bucket, settled, renewed, charge)]
    sent += actions_of(plan(FreshBucket(None), [charge], bucket.context, LINK))
    for limits in (wider, tuple(other_calendar)):
        target_limits = InForce(limits, ConfigSource.SYSTEM, 9)
        target = rebase(bucket.stored.image, target_limits, bucket.now_ms)
        sent += actions_of(writes.rebase(bucket.stored, target, target_limits, bucket.context))
    for part, (size, operators) in measured(sent).items():
        record_property(part, (size, operators))
        assert size <= MAX_EXPRESSION_BYTES, part
        assert operators <= MAX_OPERATORS, part

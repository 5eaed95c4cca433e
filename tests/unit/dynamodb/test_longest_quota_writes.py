"""The longest writes to buckets with quotas fit into a request of DynamoDB.

A bucket with as many quotas, or quotas and slots, as it may hold is charged, settled and renewed
while every hold that it can have is there.
"""

from dataclasses import replace

import pytest

from tests.support.aws_rules.rules import MAX_EXPRESSION_BYTES, MAX_OPERATORS
from tests.support.changes import charge_of, renewal_of, settlement_of
from tests.unit.dynamodb.stored import BUCKET_ID, NOW_MS
from tests.unit.dynamodb.test_longest_writes import LINK, actions_of, measured, moments
from zae_limiter import ConfigSource, Limit, ValidationError
from zae_limiter._sync.engines.items.manual_refill import RefilledShard
from zae_limiter._sync.engines.items.manual_refill import _update as refill
from zae_limiter._sync.engines.items.sharding.shard_reader import ReadShard
from zae_limiter.admission.image import HOUR_MS, Rate
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import top_up_move
from zae_limiter.admission.quotas import QuotaHold, QuotaSettlement
from zae_limiter.admission.rebase import full_bucket, full_limit, rebase
from zae_limiter.admission.refills import reset_moves, reset_quotas, top_up_quotas
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.thresholds import Mark
from zae_limiter.admission.windows import HoldName, balance_in
from zae_limiter.items.buckets import writes
from zae_limiter.items.buckets.cache import FreshBucket
from zae_limiter.items.buckets.pauses import new_bucket
from zae_limiter.items.buckets.planning import plan
from zae_limiter.items.buckets.writes import WriteContext
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.items.stored.bucket_updates import mark_write
from zae_limiter.models.limit import CONCURRENT_PLACES, MAX_LIMITS, QUOTA_PLACES, FirstUse

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


def as_first_use(limit):
    """Return a quota whose windows begin with their first use, in place of a calendar's."""
    if not limit.is_quota:
        return limit
    return Limit.quota(limit.name, 1_000_000, after_first_use="30d")


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

    def __init__(self, limits, *, is_expired, days_off=0):
        self.limits = tuple(limits)
        self.in_force = InForce(self.limits, ConfigSource.SYSTEM, 7, 5)
        now_ms = self.now_ms = NOW_MS + HOUR_MS
        self.seen_ms = now_ms + days_off * DAY_MS  # a moment of the windows of the balances
        self.item = self._item(is_expired)
        self.stored = stored.decode(self.item)
        tally = Tally(1, 1, 1, {limit.name: 1_000_000 for limit in limits}, 1)
        self.context = WriteContext(BUCKET_ID.shard(0), now_ms, "mark", tally=tally)

    def _item(self, is_expired):
        rates = {limit.name: Rate.of(limit) for limit in self.limits}
        indexes = stored.limit_indexes(rates)
        item = {
            **keys.bucket(*BUCKET_ID, 0).attributes,
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
        for name, rate in rates.items():
            index = indexes[name]
            if rate.terms is None:
                balance = full_limit(rate, self.seen_ms).balance_milli - 50_000
            else:
                balance = balance_in(self.number(rate), rate.capacity_milli - 500_000)
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
                item |= {stored.slot_attribute(index, moment): n(6) for moment in moments()}
            elif rate.terms is not None:
                for hold in self.names(rate, is_expired):
                    item[stored.hold_attribute(index, hold)] = n(100_000)
                item |= {f"z{index}": n(balance), f"e{index}": n(hold[0] * 10 + 1)}
        return item

    def number(self, rate):
        """Return the number of the window that the balance of a quota belongs to."""
        window = rate.terms.window
        return self.seen_ms if isinstance(window, FirstUse) else window.number(self.seen_ms)

    def names(self, rate, is_expired):
        number = self.number(rate)
        first = self.now_ms // 1000 // 300 - (len(STEPS) if is_expired else -1)
        moments = [(first + step) * 300 for step in STEPS]
        return [HoldName(number, moment, of_child) for moment in moments for of_child in (0, 1)]

    def holds(self, *, is_expired):
        return [
            QuotaHold(key, 1000, *name[:2], "0.origin", 0, name.through_child)
            for key in self.in_force.quota_keys
            for name in self.names(self.in_force.rate_of(key), is_expired)
        ]


def planned(bucket, *changes):
    yield from actions_of(plan(FreshBucket(bucket.stored), changes, bucket.context, LINK))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("is_turned", [False, True])
def test_the_longest_writes_of_quotas_fit(name, is_expired, is_turned, record_property):
    bucket = Bucket(SETS[name], is_expired=is_expired, days_off=-2 if is_turned else 0)
    in_force, through = bucket.in_force, bucket.in_force.name_set
    amounts = dict.fromkeys(in_force.keys, 1000)
    charge = charge_of(in_force, amounts, through_child=through)
    holds = bucket.holds(is_expired=is_expired)
    settled = settlement_of(
        in_force,
        {},
        through_child=through,
        quotas=tuple(QuotaSettlement(hold, -400) for hold in holds),
    )
    renewed = renewal_of(in_force, renewed_quotas=tuple(holds))
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


def topped_up(bucket, limits):
    """Return the changes of a top-up; none before the first charge of a first-use window."""
    try:
        return top_up_quotas(limits, dict.fromkeys(bucket.in_force.quota_keys, 5), bucket.now_ms)
    except ValidationError:
        return []


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("days_off", [-40, 0, 100], ids=["turned", "running", "far ahead"])
@pytest.mark.parametrize("form", [lambda each: each, as_first_use], ids=["calendar", "first use"])
def test_the_longest_changes_by_hand_fit(name, is_expired, days_off, form, record_property):
    """A reset of balances that a wrong clock has moved requires all holds as they were seen.

    A pause and a top-up may create the bucket.
    """
    bucket = Bucket(map(form, SETS[name]), is_expired=is_expired, days_off=days_off)
    image, now_ms = bucket.stored.image, bucket.now_ms
    topped = topped_up(bucket, image.limits)
    rates = [
        top_up_move(key, state, 1000, now_ms)
        for key, state in image.limits.items()
        if state.rate.refill_milli and state.quota is None
    ]
    refilled = (
        RefilledShard(reset_moves(image, now_ms), reset_quotas(image, now_ms)),
        RefilledShard(rates, topped),
    )
    shard = ReadShard(bucket.item, bucket.stored)
    sent = [refill(shard, each) for each in refilled]
    full = full_bucket(bucket.in_force, now_ms).limits
    for topped in ((), topped_up(bucket, full)):
        created = new_bucket(
            bucket.context.shard_id,
            bucket.in_force,
            LINK,
            None if topped else now_ms + 5,
            now_ms=now_ms,
            usage_ms=HOUR_MS,
            topped=topped,
        )
        sent.append(created.write)
    for key in bucket.in_force.quota_keys:
        mark = Mark(key, 1, 10**16, -(10**34), 10**34)
        sent.append(mark_write(keys.bucket(*BUCKET_ID, 0), bucket.stored, mark))
    for part, (size, operators) in measured(sent).items():
        record_property(part, (size, operators))
        assert size <= MAX_EXPRESSION_BYTES, part
        assert operators <= MAX_OPERATORS, part

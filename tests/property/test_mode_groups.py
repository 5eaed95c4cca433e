"""Groups of charges in all modes, with debts and credits: one write decides them as a model does.

The write of DynamoDB is planned for random groups on a bucket that was just read, and compared with
a model that takes one change after the other. Models with a wrong order are the planted defects.
"""

import itertools
from dataclasses import replace
from random import Random

import pytest

from tests.support.changes import BYPASS, SHADOW, charge_of, settlement_of
from tests.unit.dynamodb.stored import BUCKET_ID, NOW_MS
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.image import level_milli
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import after
from zae_limiter.admission.quotas import QuotaHold, QuotaSettlement
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.admission.windows import window_of
from zae_limiter.items.buckets.cache import FreshBucket
from zae_limiter.items.buckets.outcomes import Applied, outcomes_of_write
from zae_limiter.items.buckets.planning import NothingToWrite, plan
from zae_limiter.items.buckets.writes import WriteContext
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket
from zae_limiter.items.stored.usage.hours import ItemHours

IN_FORCE = InForce(
    (Limit.per_minute("rpm", 10), Limit.quota("tokens", 10, per="day")), ConfigSource.SYSTEM, 1
)
KEYS = IN_FORCE.keys
RATES = dict(zip(KEYS, IN_FORCE.rates, strict=True))
HOURS = ItemHours("0.x", NOW_MS // 3_600_000, None, {"rpm": 0, "tokens": 1}, False)
CAPACITY = 10_000
GROUPS = 300


def bucket_at(levels):
    """Return a stored bucket with these levels."""
    image = full_bucket(IN_FORCE, NOW_MS)
    limits = {
        key: replace(state, balance_milli=state.balance_milli - CAPACITY + levels[key])
        for key, state in image.limits.items()
    }
    return StoredBucket(image._replace(limits=limits), "d", HOURS, 1, "op", WHOLE, RATES)


def random_group(random, bucket):
    changes = []
    for _ in range(random.randint(1, 6)):
        amounts = {key: random.choice((0, 0, 1000, 3000, 7000)) for key in KEYS}
        kind = random.choice(("charge", "charge", "shadow", "bypass", "settled"))
        switch = {"shadow": SHADOW, "bypass": BYPASS}.get(kind)
        change = charge_of(IN_FORCE, amounts, switch=switch)
        if kind == "settled":
            amounts = {"rpm": random.choice((-3000, -1000, 2000))}
            change = settlement_of(IN_FORCE, amounts, admitted=1)
            window = window_of(bucket.image.limits["tokens"].balance_milli)
            hold = QuotaHold("tokens", 0, window, 0)
            change.quotas = (QuotaSettlement(hold, random.choice((-3000, 2000))),)
        changes.append(change)
    return changes


class Model:
    """Takes the changes of a group one by one: what must not be refused first."""

    def __init__(self, levels, changes):
        self.levels, self.used = dict(levels), dict.fromkeys(KEYS, 0)
        self.admitted, self.overdrawn = set(), set()
        settled = [each for each in enumerate(changes) if not each[1].is_charge]
        for amounts in (self._amounts(change) for _, change in settled):
            for key, amount in amounts.items():
                self.used[key] += amount
                if amount < 0:
                    self.levels[key] -= amount
        if settled:
            self.levels["rpm"] = min(self.levels["rpm"], CAPACITY)
        for amounts in (self._amounts(change) for _, change in settled):
            for key, amount in amounts.items():
                self.levels[key] -= max(amount, 0)
        # The settled costs were not held: if a reset has forgiven them, nothing of them comes back.
        self.levels["tokens"] = min(self.levels["tokens"], CAPACITY)
        for position, change in self.in_order(list(enumerate(changes))):
            if change.is_charge:
                self.charge(position, change)
            else:
                self.admitted.add(position)

    def in_order(self, changes):
        """Return the changes with the charges that are not checked before the others."""
        return sorted(changes, key=lambda each: each[1].must_fit)

    def charge(self, position, change):
        fits = all(self.levels[key] >= amount for key, amount in change.amounts_milli.items())
        if not fits and change.must_fit:
            return
        self.admitted.add(position)
        if change.is_debt and not fits:
            self.overdrawn.add(position)
        for key, amount in change.amounts_milli.items():
            self.used[key] += amount
            self.levels[key] -= 0 if change.forfeits else amount

    def _amounts(self, change):
        return {**change.amounts_milli, "tokens": change.quotas[0].change}


class ShadowsBehindCharges(Model):
    def in_order(self, changes):
        return sorted(changes, key=lambda each: not each[1].must_fit)


class ByArrival(Model):
    def in_order(self, changes):
        return changes


class DebitsBypass(Model):
    def charge(self, position, change):
        super().charge(position, change)
        if change.forfeits:
            for key, amount in change.amounts_milli.items():
                self.levels[key] -= amount


def decided(bucket, changes):
    """Return the admitted and the overdrawn positions, levels and usage of the planned write."""
    context = WriteContext(BUCKET_ID.shard(0), NOW_MS, "mark")
    step = plan(FreshBucket(bucket), changes, context, EntityLink())
    if isinstance(step, NothingToWrite):
        levels = {key: level_milli(state, NOW_MS) for key, state in step.image.limits.items()}
        return set(), set(), levels, dict.fromkeys(KEYS, 0)
    for move in step.moves:  # the conditions of the write hold on the bucket as it is
        balance = bucket.image.limits[move.key].balance_milli
        assert move.low is None or balance >= move.low
        assert move.high is None or balance <= move.high
    image = after(bucket.image, step.moves)
    levels = {key: level_milli(state, NOW_MS) for key, state in image.limits.items()}
    written = StoredBucket(image, "d", HOURS, 1, "mark", WHOLE, RATES)
    outcomes = outcomes_of_write(step.decision, step.decision.carried, written, NOW_MS)
    applied = {at for at, each in enumerate(outcomes) if isinstance(each, Applied)}
    overdrawn = {at for at in applied if outcomes[at].is_overdrawn}
    return applied, overdrawn, levels, {key: step.net_milli.get(key, 0) for key in KEYS}


def agrees(model, random):
    levels = {key: random.choice((-2000, 0, 1000, 5000, 10_000)) for key in KEYS}
    bucket = bucket_at(levels)
    changes = random_group(random, bucket)
    wanted = model(levels, changes)
    admitted, overdrawn, after_write, used = decided(bucket, changes)
    found = (admitted, overdrawn, after_write, used)
    return found == (wanted.admitted, wanted.overdrawn, wanted.levels, wanted.used)


def test_one_write_decides_a_group_as_the_model_does():
    for seed in range(GROUPS):
        assert agrees(Model, Random(seed)), seed


@pytest.mark.parametrize("model", [ShadowsBehindCharges, ByArrival, DebitsBypass])
def test_a_model_with_a_wrong_rule_is_found(model):
    assert any(not agrees(model, Random(seed)) for seed in range(GROUPS))


@pytest.mark.slow
def test_many_groups_are_decided_as_the_model_does():
    for seed in itertools.islice(itertools.count(GROUPS), 20_000):
        assert agrees(Model, Random(seed)), seed

"""The longest expression of every kind of write to a bucket fits into a request of DynamoDB.

DynamoDB takes 4,096 bytes and 300 operators in an expression. The bounds ``MAX_LIMITS`` and
``MAX_STORED`` follow from these measurements: a bucket that holds as many limits as it may is
written to in every way here.
"""

from dataclasses import replace
from itertools import product

import pytest

from tests.support.aws_rules.rules import MAX_EXPRESSION_BYTES, MAX_OPERATORS, analyse, violations
from tests.support.changes import JUST_SEEN, charge_of, renewal_of, settlement_of
from tests.unit.dynamodb.stored import BUCKET_ID, NOW_MS
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.decide import decide
from zae_limiter.admission.image import HOUR_MS, Rate, full_balance
from zae_limiter.admission.in_force import InForce, alias_of
from zae_limiter.admission.moves import top_up_move
from zae_limiter.admission.rebase import MAX_STORED, rebase
from zae_limiter.admission.refills import reset_moves
from zae_limiter.admission.shards.spreading import repayment, taking
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.admission.slots import STEPS, SlotHold
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import HourUsage
from zae_limiter.dynamodb.expressions import action as action_of
from zae_limiter.items.buckets import pauses, writes
from zae_limiter.items.buckets.cache import NEVER_SEEN, FreshBucket
from zae_limiter.items.buckets.planning import plan
from zae_limiter.items.buckets.writes import PlannedWrite, WriteContext
from zae_limiter.items.sharding import transactions
from zae_limiter.items.sharding.transactions import ShardMoves
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored import bucket_updates, keys
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.items.stored.bucket import EntityLink
from zae_limiter.items.stored.bucket_updates import WriteTrailer, bucket_update
from zae_limiter.items.stored.usage import hours
from zae_limiter.models.limit import CONCURRENT_PLACES, MAX_LIMITS

HOUR = NOW_MS // HOUR_MS
WHOLE, LEFT, RIGHT = Shard(0, 1), Shard(0, 2), Shard(1, 2)
LINK = EntityLink("parent", True)
LEASE_TTL = 60
STEP_MS = LEASE_TTL * 1000 // STEPS
MOMENTS = range(8)  # of the expiry of slots: at most eight numbers per limit
# By name: how many limits that refill and limits on calls in flight are in force, and how many of
# each earlier configurations have left in the bucket.
LEFT_OVER = MAX_STORED - MAX_LIMITS
MAX_SLOTS, OLD_SLOTS = MAX_LIMITS // CONCURRENT_PLACES, LEFT_OVER // CONCURRENT_PLACES
SETS = {
    "rates": (MAX_LIMITS, 0, LEFT_OVER, 0),
    "rates beside old slots": (MAX_LIMITS, 0, 0, OLD_SLOTS),
    "slots": (0, MAX_SLOTS, LEFT_OVER, 0),
    "slots beside old slots": (0, MAX_SLOTS, 0, OLD_SLOTS),
    "both": (MAX_LIMITS // 2, MAX_SLOTS // 2, 0, OLD_SLOTS),
    "few beside many": (1, 0, MAX_STORED - 1, 0),
    "few beside many slots": (1, 0, 3, MAX_STORED // CONCURRENT_PLACES - 1),
}


def rate_limits(prefix, count, capacity=100):
    return [Limit.per_minute(f"{prefix}{number}", capacity) for number in range(count)]


def slot_limits(prefix, count):
    return [Limit.concurrent(f"{prefix}{number}", 100, LEASE_TTL) for number in range(count)]


class Bucket:
    """The fullest bucket of a set of limits, as an item that is decoded."""

    def __init__(self, name, *, children=False, finished=False, over=False, shard=WHOLE, **more):
        rates, slots, old_rates, old_slots = SETS[name]
        self.limits = (*rate_limits("rate", rates), *slot_limits("slot", slots))
        self.in_force = InForce(self.limits, ConfigSource.SYSTEM, 7, 5)
        left = (*rate_limits("old", old_rates), *slot_limits("hold", old_slots))
        self.item = self._item((*self.limits, *left), children, finished, shard, **more)
        self.shard = shard
        self.now_ms = NOW_MS + HOUR_MS if over else NOW_MS
        self.stored = stored.decode(self.item)
        self.context = WriteContext(
            BUCKET_ID.shard(shard.number),
            self.now_ms,
            "mark",
            tally=Tally(1, 1, 1, {limit.name: 1_000_000 for limit in self.limits}, 1),
        )

    def _item(self, limits, children, finished, shard, *, paused=False, is_full=False, more=()):
        rates = {limit.name: Rate.of(limit) for limit in limits} | dict(more)
        indexes = stored.limit_indexes(rates)
        item = {
            **keys.bucket(*BUCKET_ID, shard.number).attributes,
            **stored.index_keys(*BUCKET_ID, shard.number),
            **stored.link_attributes(LINK),
            "n": n(shard.n),
            "lh": s(stored.digest_of(rates, indexes, NOW_MS - 1 if paused else None)),
            "cv": n(0),
            "g": n(3),
            "wc": n(9),
            "ac": n(4),
            "rj": n(1),
            "rx": n(1),
            "wt": n(1),
            "sh": n(1),
            "o": s(f"{shard.number}.origin"),
            "h": n(HOUR),
            "op": s("0.mark"),
            "rq": s("0=5"),
            "ttl": n(NOW_MS // 1000 + 5),
        }
        if paused:
            item["nb"] = n(NOW_MS - 1)
        for name, rate in rates.items():
            index = indexes[name]
            has_slots = rate.refill_milli == 0
            level = rate.capacity_milli if is_full and not has_slots else 50_000
            balance = full_balance(rate, NOW_MS) - rate.capacity_milli + level
            item |= {
                f"t_{name}": n(balance),
                f"c_{name}": n(9000),
                f"p_{name}": s(stored.pack(rate, index)),
                f"m_{name}": n(5000),
                f"b{index}": n(9000 if is_full else 4000),
            }
            if children:
                item[f"k{index}"] = n(0 if is_full else 500)
            if finished:
                item |= {f"u{index}": n(7), f"v{index}": n(3)}
            if has_slots:
                item |= {stored.slot_attribute(index, moment): n(6) for moment in moments()}
        if finished:
            item |= {"ph": n(HOUR - 1), "ua": n(1), "ur": n(1), "ux": n(1), "uw": n(1), "us": n(1)}
            item["uq"] = s("0=5")
        return item

    @property
    def slot_keys(self):
        return [key for key, state in self.stored.image.limits.items() if not state.rate[1]]

    def change(self, amount_milli, *, is_charge, children, **more):
        in_force = self.in_force
        amounts = dict.fromkeys(in_force.keys, amount_milli)
        amounts |= dict.fromkeys(in_force.slot_keys, 1000 if is_charge else 0)
        through = in_force.name_set if children else frozenset()
        if is_charge:
            return charge_of(in_force, amounts, through_child=through, **more)
        held = set(in_force.slot_keys)
        amounts = {key: amount for key, amount in amounts.items() if key not in held}
        return settlement_of(in_force, amounts, through_child=through, admitted=1, **more)

    def holds(self):
        """Slots at every moment that is not over."""
        life = self.stored.hours.origin
        return tuple(
            SlotHold(key, 1, moment, life)
            for key in self.slot_keys
            for moment in moments()
            if moment > self.now_ms
        )

    def planned(self, *changes):
        step = plan(FreshBucket(self.stored), changes, self.context, LINK)
        assert isinstance(step, PlannedWrite), step
        return step


def moments():
    """Half of the moments are over at the stamp."""
    first = NOW_MS // STEP_MS - len(MOMENTS) // 2
    return [(first + number) * STEP_MS for number in MOMENTS]


def actions_of(step):
    """Return a write and its repetition as actions of a transaction."""
    yield step.request
    if step.guarded_retry is not None:
        yield step.guarded_retry()


def options(*names):
    for values in product((False, True), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


# --- every kind of write; each yields actions of a transaction


def charges_and_settlements(name):
    for given in options("children", "finished", "over", "paused", "is_full"):
        bucket = Bucket(name, **given)
        children = given["children"]
        charge = bucket.change(1000, is_charge=True, children=children)
        reservation = replace(charge, until_ms=bucket.now_ms + 30_000)
        debt = bucket.change(1000, is_charge=False, children=children)
        credit = bucket.change(-1000, is_charge=False, children=children)
        released = replace(credit, released=bucket.holds()[::2])
        renewed = renewal_of(bucket.in_force, renewed=bucket.holds()[1::2])
        for group in (
            [charge],
            [reservation],
            [debt],
            [credit],
            [released],
            [renewed],
            [credit, debt, charge],
            [released, renewed, credit, debt, charge],
        ):
            yield from actions_of(bucket.planned(*group))


def credits_without_an_image(name):
    bucket = Bucket(name)
    credit = bucket.change(-1000, is_charge=False, children=False)
    decision = decide(bucket.stored.image, [credit], bucket.now_ms)
    yield from actions_of(writes.credit(decision, bucket.context, bucket.stored.image.limits))


def creations(name):
    bucket = Bucket(name)
    for known, children in product((FreshBucket(None), NEVER_SEEN), (False, True)):
        charge = bucket.change(1000, is_charge=True, children=children)
        yield from actions_of(plan(known, [charge], bucket.context, LINK))
    paused = pauses.new_bucket(
        bucket.context.shard_id,
        bucket.in_force,
        LINK,
        NOW_MS + 5,
        now_ms=NOW_MS,
        usage_ms=HOUR_MS,
    )
    yield paused.write


def rebases(name):
    """Changed parameters, added limits, dropped limits: until the bucket has its limits."""
    for given in options("children", "finished", "over", "paused", "is_full"):
        bucket = Bucket(name, **given)
        wider = tuple(
            limit if limit.is_concurrent else Limit.per_minute(limit.name, 300)
            for limit in bucket.limits
        )
        held = CONCURRENT_PLACES * len(bucket.slot_keys)  # not full, so it stays
        others = tuple(rate_limits("new", min(MAX_LIMITS, MAX_STORED - held)))
        for limits in (wider, others):
            if limits and (limits is wider or given["is_full"]):
                yield from actions_of(rebased(bucket, limits))


def rebased(bucket, limits):
    in_force = InForce(limits, ConfigSource.SYSTEM, 9)
    target = rebase(bucket.stored.image, in_force, bucket.now_ms)
    return writes.rebase(bucket.stored, target, in_force, bucket.context)


def dropped_namesakes(name):
    """Limits of earlier calls leave their usage to the configured limits of the same name."""
    rate = Rate(7000, 7000, 60_000)
    more = {alias_of(f"rate{number}", rate): rate for number in range(8)}
    for given in options("children", "finished"):
        bucket = Bucket("few beside many", is_full=True, more=more, **given)
        yield from actions_of(rebased(bucket, tuple(rate_limits("rate", 8, capacity=300))))


def splits_and_merges(name):
    for given in options("children", "finished", "is_full"):
        whole = Bucket(name, **given)
        yield from transactions.split(whole.item, NOW_MS, "mark")
        left, right = (Bucket(name, shard=shard, **given) for shard in (LEFT, RIGHT))
        merged = transactions.merge(
            left.item, right.item, NOW_MS, "mark", NOW_MS + 5, usage_days=90
        )
        yield from merged
        yield from transactions.remove_orphan(left.item, right.item, 90)


def gathers(name):
    for given in options("children", "finished", "over", "is_full"):
        shards = [Bucket(name, shard=shard, **given) for shard in (LEFT, RIGHT)]
        parts = []
        for bucket in shards:
            charge = bucket.change(1000, is_charge=True, children=given["children"])
            moves = taking(bucket.stored.image, charge.amounts_milli, bucket.now_ms)
            slot_writes = ()
            if bucket.in_force.slot_keys:
                decision = decide(bucket.stored.image, [charge], bucket.now_ms, JUST_SEEN)
                moves = [each for each in moves if each.key not in bucket.slot_keys]
                moves += decision.slot_moves()
                slot_writes = decision.slot_writes()
            key = keys.bucket(*BUCKET_ID, bucket.shard.number)
            parts.append(ShardMoves(key, bucket.stored, moves, slot_writes))
        through = dict.fromkeys(shards[0].in_force.keys, 1000) if given["children"] else {}
        now_ms = shards[0].now_ms
        added = HourUsage(now_ms // HOUR_MS, {}, 1, through)
        gathered = transactions.gather(parts, "mark", added, now_ms=now_ms, usage_ms=HOUR_MS)
        yield from gathered.actions


def repayments(name):
    """Every limit of one shard is in debt, also those that are not in force."""
    shards = {shard: Bucket(name, shard=shard) for shard in (LEFT, RIGHT)}
    images = {shard: bucket.stored.image for shard, bucket in shards.items()}
    in_debt = {
        key: replace(state, balance_milli=state.balance_milli - 60_000_000)
        for key, state in images[LEFT].limits.items()
    }
    images[LEFT] = images[LEFT]._replace(limits=in_debt)
    parts = [
        ShardMoves(keys.bucket(*BUCKET_ID, shard.number), shards[shard].stored, moves)
        for shard, moves in repayment(images, 0, NOW_MS).items()
    ]
    later_ms = NOW_MS + HOUR_MS
    added = HourUsage(later_ms // HOUR_MS)
    gathered = transactions.gather(parts, "mark", added, now_ms=later_ms, usage_ms=HOUR_MS)
    yield from gathered.actions


def refills_by_hand(name):
    for is_full in (False, True):
        bucket = Bucket(name, is_full=is_full)
        image = bucket.stored.image
        topped = [
            top_up_move(key, state, 1000, NOW_MS)
            for key, state in image.limits.items()
            if state.rate.refill_milli
        ]
        for moves in (reset_moves(image, NOW_MS), topped):
            update = bucket_update(keys.bucket(*BUCKET_ID, 0), moves, WriteTrailer("mark"))
            bucket_updates.require_same(update, bucket.stored)
            bucket_updates.require_generation(update, bucket.stored)
            yield update


def housekeeping(name):
    """A pause, a later TTL, and the aggregator's clearing of a stored hour."""
    for children in (False, True):
        bucket = Bucket(name, children=children, finished=True)
        key = keys.bucket(*BUCKET_ID, 0)
        yield hours.clear(key, bucket.stored.hours)
        yield pauses.pause_write(key, bucket.stored, NOW_MS + 500_000, NOW_MS)
        yield bucket_updates.later_expiry(key, NOW_MS + 5)


KINDS = (
    charges_and_settlements,
    credits_without_an_image,
    creations,
    rebases,
    dropped_namesakes,
    splits_and_merges,
    gathers,
    repayments,
    refills_by_hand,
    housekeeping,
)


def measured(writes):
    """Return the most bytes and operators of an update and of a condition."""
    longest = {}
    for write in writes:
        action = action_of(write, "table")
        assert violations("TransactWriteItems", {"TransactItems": [action]}) == []
        [request] = action.values()
        for part in ("UpdateExpression", "ConditionExpression"):
            if part in request:
                analysis = analyse(request[part], is_update=part == "UpdateExpression")
                before = longest.get(part, (0, 0))
                sizes = (analysis.bytes, analysis.operators)
                longest[part] = tuple(map(max, before, sizes))
    return longest


@pytest.mark.each_value_once
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_longest_expressions_fit(kind, name, record_property):
    for part, (size, operators) in measured(kind(name)).items():
        record_property(part, (size, operators))
        assert size <= MAX_EXPRESSION_BYTES, part
        assert operators <= MAX_OPERATORS, part

"""What a decision saves is what its effects do, for random groups of changes on random buckets.

``DEFECTS`` are stores that leave out a part of the effects: each of them must be found.
"""

import itertools
from dataclasses import replace
from random import Random

import pytest

from tests.support.changes import BYPASS, SHADOW, charge_of, renewal_of, settlement_of
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.decide import after_plain_charge, decide
from zae_limiter.admission.image import full_balance, is_slots
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.quotas import QuotaHold, QuotaSettlement, current_window
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.slots import SlotHold
from zae_limiter.admission.windows import HoldName, QuotaState, balance_in

NOW_MS = 1_790_000_000_000
NOW_S = NOW_MS // 1000
GROUPS = 600
KINDS = (
    "{}:10/min",
    "{}:3/min:10",
    "{}:10/min,soft",
    "{}:5/concurrent:60s",
    "{}:10/day@UTC",
    "{}:10/hour@UTC,hold=2m",
    "{}:10/5h@first-use",
    "{}:10/day@UTC,soft",
)
LEVELS = (-3000, 0, 1000, 4000, 9999, 10_000, 25_000)
AMOUNTS = (0, 0, 1000, 2000, 3000, 7000, 12_000)


def random_bucket(random):
    """Return limits of all kinds, and a bucket that has them at any level, with things held."""
    names = "abc"[: random.randint(1, 3)]
    limits = tuple(Limit.parse(random.choice(KINDS).format(name)) for name in names)
    in_force = InForce(limits, ConfigSource.SYSTEM, 1)
    image, held = full_bucket(in_force, NOW_MS), {}
    for key, state in image.limits.items():
        if is_slots(state.rate):
            held[key] = slots_in_use(random)
            state.balance_milli -= 1000 * sum(held[key].values())
        elif state.quota is not None:
            number = current_window(state, NOW_MS) - random.choice((0, 0, 1))
            state.balance_milli = balance_in(number, random.choice(LEVELS))
            state.quota = QuotaState(amounts_in_use(random, number))
        else:
            level = random.choice(LEVELS)
            state.balance_milli = full_balance(state.rate, NOW_MS) - 10_000 + level
    paused_ms = random.choice((None, None, None, None, NOW_MS + 5000))
    image = image._replace(life="life", writes=3, paused_until_ms=paused_ms)
    return in_force, image if image.holds is None else image._replace(holds=held)


def slots_in_use(random):
    moments = (NOW_MS - 5000, NOW_MS + 20_000, NOW_MS + 50_000)
    return {at: random.randint(1, 2) for at in moments if random.random() < 0.5}


def amounts_in_use(random, number):
    names = [HoldName(number, NOW_S - 50), HoldName(number, 0, True), HoldName(number, NOW_S + 90)]
    return {name: random.choice((1000, 2000, 5000)) for name in names if random.random() < 0.5}


def random_change(random, in_force, image):
    kind = random.choice(("charge", "charge", "wait", "shadow", "bypass", "settle", "renew"))
    if kind in ("settle", "renew"):
        slots = [SlotHold(key, 1, at, "life") for key, at in held_slots(random, image)]
        amounts = [QuotaHold(key, 1000, *name, "life") for key, name in held_amounts(random, image)]
        amounts = [each._replace(number=0, through_child=False) for each in amounts]
        if kind == "renew":
            return renewal_of(in_force, renewed=tuple(slots), renewed_quotas=tuple(amounts))
        ends = [QuotaSettlement(each, random.choice((-1000, 0, 700))) for each in amounts]
        rates = [key for key in in_force.keys if key not in in_force.held_keys]
        owed = {key: random.choice((-5000, -1000, 1000, 4000)) for key in rates}
        return settlement_of(in_force, owed, released=tuple(slots), quotas=tuple(ends))
    taken = {
        key: random.choice((0, 1000)) if key in in_force.slot_keys else random.choice(AMOUNTS)
        for key in in_force.keys
    }
    if kind == "bypass":
        taken |= dict.fromkeys(in_force.slot_keys, 0)
    return charge_of(
        in_force,
        taken,
        switch={"shadow": SHADOW, "bypass": BYPASS}.get(kind),
        until_ms=NOW_MS + 20_000 if kind == "wait" else None,
        through_child=in_force.token_names if random.random() < 0.3 else frozenset(),
    )


def held_slots(random, image):
    named = [(key, at) for key, held in (image.holds or {}).items() for at in held]
    return random.sample(named, min(len(named), random.randint(0, 2)))


def held_amounts(random, image):
    named = [
        (key, (name.window, name.expires_s))
        for key, state in image.limits.items()
        if state.quota is not None
        for name in state.quota.holds
        if not name.through_child
    ]
    return random.sample(named, min(len(named), random.randint(0, 2)))


# --- a store that carries out effects


def with_moves(limits, decision):
    for move in (*decision.rate_moves(), *decision.slot_moves(), *decision.quota_moves()):
        state = limits[move.key]
        assert move.low is None or state.balance_milli >= move.low
        assert move.high is None or state.balance_milli <= move.high
        limits[move.key] = replace(
            state,
            balance_milli=move.applied(state.balance_milli),
            consumed_milli=state.consumed_milli + move.consumed_milli,
        )
    return limits


def with_slot_writes(holds, decision):
    for write in decision.slot_writes():
        held = dict(holds[write.key])
        for moment, seen in write.expired.items():
            assert held.pop(moment) == seen
        for moment, count in write.removed.items():
            assert held.get(moment, 0) >= count
            held[moment] -= count
        for moment, count in write.added.items():
            held[moment] = held.get(moment, 0) + count
        holds[write.key] = {moment: count for moment, count in held.items() if count}
    return holds


def with_hold_writes(limits, decision):
    for write in decision.hold_writes():
        state = limits[write.key]
        limits[write.key] = replace(state, quota=write.applied(state.quota))
    return limits


def carried_out(decision, *parts):
    """Return limits and held slots after the effects of a decision, on the bucket that it saw."""
    limits, holds = dict(decision.image.limits), dict(decision.image.holds or {})
    for part in parts:
        part(holds if part is with_slot_writes else limits, decision)
    return limits, holds


ALL = (with_moves, with_slot_writes, with_hold_writes)


def agrees(seed, parts):
    random = Random(seed)
    in_force, image = random_bucket(random)
    changes = [random_change(random, in_force, image) for _ in range(random.randint(1, 5))]
    decision = decide(image, changes, NOW_MS)
    if not decision.carried:
        return True
    after = decision.after()
    return carried_out(decision, *parts) == (after.limits, dict(after.holds or {}))


def test_what_is_saved_is_what_the_effects_do():
    for seed in range(GROUPS):
        assert agrees(seed, ALL), seed


@pytest.mark.slow
def test_what_is_saved_is_what_the_effects_do_in_many_groups():
    for seed in itertools.islice(itertools.count(GROUPS), 50_000):
        assert agrees(seed, ALL), seed


DEFECTS = {
    "balances": (with_slot_writes, with_hold_writes),
    "held slots": (with_moves, with_hold_writes),
    "held amounts": (with_moves, with_slot_writes),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_store_that_leaves_out_a_part_is_found(defect):
    assert any(not agrees(seed, DEFECTS[defect]) for seed in range(GROUPS))


# --- the short cut


def test_the_short_cut_of_a_plain_charge_decides_what_the_long_way_does():
    short_cuts = 0
    for seed in range(20 * GROUPS):
        random = Random(seed)
        in_force, image = random_bucket(random)
        charge = random_change(random, in_force, image)
        after = after_plain_charge(image, charge, NOW_MS) if charge.is_charge else None
        if after is not None:
            short_cuts += 1
            long_way = decide(image, [charge], NOW_MS)
            assert long_way.carried == [0]
            assert long_way.after() == after, seed
    assert short_cuts > GROUPS // 10


# --- the order of the changes


def test_the_order_of_arrival_of_what_is_never_refused_does_not_matter():
    """Settlements and charges in shadow mode come before charges that must fit, in any order."""
    for seed in range(GROUPS):
        random = Random(seed)
        in_force, image = random_bucket(random)
        changes = [random_change(random, in_force, image) for _ in range(4)]
        charges = [change for change in changes if change.must_fit]
        others = [change for change in changes if not change.must_fit and not change.renewed_quotas]
        first = decide(image, [*charges, *others], NOW_MS)
        second = decide(image, [*others, *charges], NOW_MS)
        moved = {at + len(others) for at in first.carried if at < len(charges)}
        moved |= {at - len(charges) for at in first.carried if at >= len(charges)}
        assert moved == set(second.carried), seed


def test_charges_are_admitted_in_the_order_of_arrival():
    in_force = InForce((Limit.per_minute("rpm", 10),), ConfigSource.SYSTEM, 1)
    image = full_bucket(in_force, NOW_MS)
    amounts = (4000, 7000, 5000, 2000)
    changes = [charge_of(in_force, {"rpm": amount}) for amount in amounts]
    decision = decide(image, changes, NOW_MS)
    assert decision.carried == [0, 2]
    assert decision.after().limits["rpm"].consumed_milli == 9000

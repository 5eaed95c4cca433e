"""A bucket and changes, and what is decided about them."""

import pytest

from tests.support.changes import (
    BYPASS,
    JUST_SEEN,
    SHADOW,
    charge_of,
    count_of,
    renewal_of,
    settlement_of,
)
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.decide import decide, late_amounts
from zae_limiter.admission.image import level_milli
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.quotas import QuotaHold, QuotaSettlement
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.slots import SlotHold

NOW_MS = 1_790_000_000_000
IN_FORCE = InForce(
    (
        Limit.per_minute("rpm", 10),
        Limit.concurrent("parallel", 2, lease_ttl=60),
        Limit.quota("tokens", 10, per="day"),
    ),
    ConfigSource.SYSTEM,
    1,
)
FULL = full_bucket(IN_FORCE, NOW_MS)._replace(life="life")


def charge(rpm=0, parallel=0, tokens=0, **fields):
    amounts = {"rpm": rpm * 1000, "parallel": parallel * 1000, "tokens": tokens * 1000}
    return charge_of(IN_FORCE, amounts, **fields)


def credit(rpm, **fields):
    return settlement_of(IN_FORCE, {"rpm": -rpm * 1000}, **fields)


def levels(decision):
    """The levels after the write: calls, slots, tokens."""
    after = decision.after()
    return tuple(level_milli(state, NOW_MS) // 1000 for state in after.limits.values())


@pytest.mark.parametrize(
    ("changes", "carried", "left"),
    [
        ([charge(4)], [0], (6, 2, 10)),
        ([charge(11)], [], (10, 2, 10)),
        ([charge(6), charge(5), charge(4)], [0, 2], (0, 2, 10)),
        ([charge(1, 1, 4), charge(1, 1, 4), charge(1, 1, 4)], [0, 1], (8, 0, 2)),
        # what is never refused comes first
        ([charge(8), charge(5, switch=SHADOW)], [1], (5, 2, 10)),
        ([charge(8), settlement_of(IN_FORCE, {"rpm": 5000})], [1], (5, 2, 10)),
        ([charge(12, switch=SHADOW)], [0], (-2, 2, 10)),
        # a bypassed charge takes nothing
        ([charge(10), charge(9, switch=BYPASS)], [0, 1], (0, 2, 10)),
        # a full bucket has no room for a credit, but a charge behind it finds it
        ([credit(5)], [0], (10, 2, 10)),
        ([credit(5), charge(10)], [0, 1], (0, 2, 10)),
        ([count_of(IN_FORCE), charge(1)], [0, 1], (9, 2, 10)),
    ],
)
def test_a_group_takes_what_fits(changes, carried, left):
    decision = decide(FULL, changes, NOW_MS)
    assert (decision.carried, levels(decision)) == (carried, left)


def test_nothing_is_charged_during_a_pause_but_settlements_are_made():
    paused = FULL._replace(paused_until_ms=NOW_MS + 1)
    changes = [charge(1), charge(1, switch=SHADOW), charge(1, switch=BYPASS), credit(1)]
    assert decide(paused, changes, NOW_MS).carried == [3]
    assert decide(paused, changes, NOW_MS + 1).carried == [0, 1, 2, 3]


def test_a_change_alone_is_sent_if_the_bucket_may_be_another_by_now():
    assert decide(FULL, [charge(11)], NOW_MS, JUST_SEEN).carried == [0]
    assert decide(FULL, [charge(11), charge(1)], NOW_MS, JUST_SEEN).carried == [1]
    assert decide(FULL, [charge(11), charge(12)], NOW_MS, JUST_SEEN).carried == [0]


def test_what_was_held_is_given_back_to_the_charges_behind_it():
    first = decide(FULL, [charge(0, 2, 10)], NOW_MS)
    slots, (amount,) = first.taken_slots(0), first.taken_quotas(0)
    end = settlement_of(IN_FORCE, {}, released=slots, quotas=(QuotaSettlement(amount, -3000),))
    second = decide(first.after(), [charge(0, 2, 3), end], NOW_MS)
    assert second.carried == [0, 1]
    assert levels(second) == (10, 0, 0)
    assert not second.is_doubtful


def test_a_renewal_says_when_each_hold_expires_and_what_has_expired():
    first = decide(FULL, [charge(0, 1, 4)], NOW_MS)
    (slot,), (amount,) = first.taken_slots(0), first.taken_quotas(0)
    gone = SlotHold("parallel", 1, NOW_MS - 1, "life")
    later_ms = NOW_MS + 30_000
    renewal = renewal_of(IN_FORCE, renewed=(slot, gone), renewed_quotas=(amount,))
    second = decide(first.after(), [renewal], later_ms)
    moments = second.renewed(0)
    assert moments[0] > slot.expires_ms
    assert moments[1] is None
    assert moments[2] >= amount.expires_s
    assert second.is_doubtful


def test_a_settlement_of_limits_that_are_gone_counts_as_usage_alone():
    rest = FULL._replace(limits={"rpm": FULL.limits["rpm"]}, holds=None)
    hold = QuotaHold("tokens", 4000, 1, 0, "life", through_child=True)
    end = settlement_of(IN_FORCE, {"rpm": -1000}, quotas=(QuotaSettlement(hold, -1500),))
    decision = decide(rest, [end], NOW_MS)
    assert decision.late == {"tokens": (2500, 2500)}
    assert late_amounts([end]) == {"rpm": (-1000, 0), "tokens": (2500, 2500)}


def test_on_a_shard_credits_are_written_apart_and_settle_nothing_of_the_others():
    first = decide(FULL, [charge(1, 0, 4)], NOW_MS)
    (amount,) = first.taken_quotas(0)
    end = settlement_of(IN_FORCE, {"rpm": 1000}, quotas=(QuotaSettlement(amount, -1000),))
    group = [end, credit(1)]
    together = decide(first.after(), group, NOW_MS)
    assert (together.carried, len(together.hold_writes())) == ([0, 1], 1)
    apart = decide(first.after(), group, NOW_MS, apart=True)
    assert (apart.carried, apart.hold_writes()) == ([1], [])

"""Limits on calls in flight: the model, the ledger of a write, and the report."""

import asyncio
import gc
import threading
import warnings
from dataclasses import replace

import pytest

from tests.support.changes import SlotPlan
from zae_limiter import (
    IncompatibleSchemaError,
    Limit,
    RateLimiter,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter._async.slot_waiting import behind_others
from zae_limiter.admission.image import BucketImage, LimitState, Rate, full_at_ms
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import rebase_move
from zae_limiter.admission.rebase import full_bucket, rebase
from zae_limiter.admission.report import bucket_states
from zae_limiter.admission.request import Grant, Settlement, with_released
from zae_limiter.admission.shards.pressure import has_useful_halves
from zae_limiter.admission.shards.split_merge import merge, split
from zae_limiter.admission.shards.tree import Shard, of_shard
from zae_limiter.admission.slots import SlotHold, retry_after_s, swept
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored.usage.hours import limit_index_of
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.status import LimitStatus
from zae_limiter.testing import FakeClock

NOW = 1_800_000_000_000
SLOTS = Rate(5000, 0, 60_000)
LATER, EARLIER = NOW + 50_000, NOW - 1000


def bounds(move):
    return move.low, move.high, move.add


def image(free=5, holds=None):
    limits = {"parallel": LimitState(free * 1000, SLOTS)}
    return BucketImage(limits, 0, None, 0, holds={"parallel": holds or {}})


# --- the model


@pytest.mark.parametrize("slots", [0, -1, 1.5, True, 10**7, "20"])
def test_a_number_of_slots_is_whole_and_positive(slots):
    with pytest.raises(ValidationError, match=r"limit\.n"):
        Limit.concurrent("parallel", slots)


@pytest.mark.parametrize("lease_ttl", [0, 2, 86_401, 60.0, None])
def test_a_lease_lives_for_whole_seconds(lease_ttl):
    with pytest.raises(ValidationError):
        Limit.concurrent("parallel", 20, lease_ttl)


def test_a_limit_that_refills_has_no_lease_and_one_with_a_lease_does_not_refill():
    with pytest.raises(ValidationError):
        Limit("parallel", 20, 0, 60)
    with pytest.raises(ValidationError, match=r"Limit\.concurrent"):
        Limit("parallel", 20, 20, 60, lease_ttl=60)
    assert Limit.concurrent("parallel", 20).is_concurrent
    assert not Limit.per_minute("rpm", 20).is_concurrent


def test_a_limit_goes_through_json_and_back():
    limit = Limit.concurrent("parallel", 20, lease_ttl=90)
    assert limit.to_dict() == {"name": "parallel", "concurrent": 20, "lease_ttl": 90}
    assert Limit.from_dict(limit.to_dict()) == limit
    assert Limit.from_dict({"name": "parallel", "concurrent": 20}).lease_ttl == 60
    soft = Limit.concurrent("parallel", 20, lease_ttl=90, soft=True)
    assert soft.to_dict() == {**limit.to_dict(), "soft": True}
    assert Limit.from_dict(soft.to_dict()) == soft
    assert Limit.from_stored(*soft.stored()) == soft


# --- the ledger


def test_taking_counts_slots_by_the_moment_that_they_expire():
    ledger = SlotPlan(image(), NOW)
    moment = ledger.take("parallel", 2)
    assert NOW + 50_000 <= moment <= NOW + 60_000
    assert ledger.applied() == image(3, {moment: 2})
    assert bounds(ledger.move("parallel")) == (2000, None, -2000)


def test_expired_slots_are_free_for_the_write_that_sweeps_them():
    ledger = SlotPlan(image(0, {EARLIER: 3, LATER: 2}), NOW)
    moment = ledger.take("parallel", 1)
    (write,) = ledger.writes()
    assert (write.expired, write.added) == ({EARLIER: 3}, {moment: 1})
    assert bounds(ledger.move("parallel")) == (-2000, None, 2000)
    assert swept(image(0, {EARLIER: 3, LATER: 2}), NOW) == image(3, {LATER: 2})


def test_releasing_and_renewing_need_slots_that_are_still_held():
    ledger = SlotPlan(image(2, {EARLIER: 1, LATER: 2}), NOW)
    assert not ledger.release(SlotHold("parallel", 1, EARLIER))
    assert ledger.renew(SlotHold("parallel", 3, LATER)) is None
    assert ledger.release(SlotHold("parallel", 2, LATER))
    assert ledger.renew(SlotHold("parallel", 1, LATER)) is None
    assert not ledger.release(SlotHold("other", 1, LATER))
    assert ledger.applied() == image(5)


def test_renewing_moves_slots_and_changes_no_balance():
    ledger = SlotPlan(image(3, {LATER: 2}), NOW + 30_000)
    moment = ledger.renew(SlotHold("parallel", 2, LATER))
    assert ledger.applied() == image(3, {moment: 2})
    assert bounds(ledger.move("parallel")) == (None, None, 0)


def test_a_rejected_caller_asks_again_soon_or_when_slots_expire():
    assert retry_after_s(image(1), "parallel", 1000, NOW) == 0
    assert retry_after_s(image(0, {NOW + 300: 1, LATER: 4}), "parallel", 1000, NOW) == 0.3
    assert retry_after_s(image(0, {NOW + 300: 1, LATER: 4}), "parallel", 2000, NOW) == 1


@pytest.mark.parametrize(("soft", "theirs"), [(False, "parallel"), (True, "rpm")])
def test_a_caller_behind_others_is_refused_by_what_they_wait_for(soft, theirs):
    limits = [
        Limit.concurrent("parallel", 5, soft=soft),
        Limit.per_minute("rpm", 9),
        Limit.per_minute("tpm", 9, soft=True),
    ]
    listed = [LimitStatus("user", "api", limit.name, limit, 5, 1, False, 0) for limit in limits]
    refused = [each for each in behind_others(listed) if each.exceeded]
    assert [(each.limit_name, each.available) for each in refused] == [(theirs, 0)]


# --- around it


def test_a_bucket_is_full_when_its_last_slot_has_expired():
    assert full_at_ms(image(0, {LATER: 3, LATER + 5: 2})) == LATER + 5
    assert full_at_ms(image()) < NOW


def test_a_report_counts_expired_slots_as_free():
    (state,) = bucket_states("user", "api", image(1, {EARLIER: 3, LATER: 1}), NOW)
    assert (state.tokens, state.capacity) == (4, 5)
    assert state.limit == Limit.concurrent("parallel", 5)


@pytest.mark.parametrize(("slots", "free"), [(7, 4), (3, 0), (1, -2)])
def test_other_numbers_of_slots_leave_those_that_are_held(slots, free):
    in_force = InForce((Limit.concurrent("parallel", slots),), ConfigSource.SYSTEM, 1)
    after = rebase(image(2, {LATER: 3}), in_force, NOW)
    assert after.limits["parallel"].balance_milli == free * 1000
    assert after.holds == {"parallel": {LATER: 3}}


def test_a_limit_of_another_kind_begins_full_and_holds_nothing():
    minute = Rate(9000, 9000, 60_000)
    before = LimitState(-(10**9), minute)
    assert rebase_move("x", before, SLOTS, NOW).applied(before.balance_milli) == 5000
    in_force = InForce((Limit.per_minute("parallel", 9),), ConfigSource.SYSTEM, 1)
    after = rebase(image(2, {LATER: 3}), in_force, NOW)
    assert after == full_bucket(in_force, NOW)._replace(hour=0)


def test_all_slots_of_a_split_bucket_stay_in_the_first_shard():
    whole = image(2, {LATER: 3})
    assert not has_useful_halves(whole)
    halves = split(whole, NOW)
    assert halves.kept == []
    assert halves.given["parallel"] == LimitState(0, Rate(0, 0, 60_000))
    first, second = (of_shard(image(2, {LATER: 3}), Shard(number, 2)) for number in (0, 1))
    assert (first.limits["parallel"].rate, second.limits["parallel"].rate.capacity_milli) == (
        SLOTS,
        0,
    )
    assert merge(first, second, NOW) == []


def test_slots_return_in_the_write_of_the_settlement():
    in_force = InForce(
        (Limit.per_minute("rpm", 9), Limit.concurrent("parallel", 5)), ConfigSource.SYSTEM, 1
    )
    hold = SlotHold("parallel", 1, LATER)
    owed = Settlement("user", "api", in_force, {"rpm": 5000})
    release = Settlement("user", "api", in_force, {}, released=(hold,))
    other = Settlement("team", "api", in_force, {}, released=(hold,))
    assert with_released((owed,), (release, other)) == (replace(owed, released=(hold,)), other)
    assert with_released((), (release,)) == (release,)
    assert Grant((), holds=((hold,),)).holds


# --- keeping


def renewing_threads():
    return {thread for thread in threading.enumerate() if thread.name == "zael-slots"}


def test_slots_of_a_lease_that_was_abandoned_are_not_renewed():
    clock = FakeClock()
    with SyncRepository.builder().url("memory://").clock(clock).build() as repo:
        repo.set_system_defaults([Limit.concurrent("parallel", 1, lease_ttl=3)])
        limiter = SyncRateLimiter(repo)
        abandoned = limiter.acquire("user", "api", {})
        abandoned.__enter__()
        assert repo.charging.slots.kept() == [1]
        del abandoned
        gc.collect()
        assert repo.charging.slots.kept() == [0]
        clock.advance(seconds=3)
        with limiter.acquire("user", "api", {}):
            pass


def test_a_closed_repository_renews_nothing_and_leaves_no_thread():
    of_others = renewing_threads()  # of repositories that tests before have not closed
    repo = SyncRepository.open(url="memory://")
    repo.set_system_defaults([Limit.concurrent("parallel", 2, lease_ttl=60)])
    with SyncRateLimiter(repo).acquire("user", "api", {}):
        (own,) = renewing_threads() - of_others
        repo.close()
    own.join(10)  # long before its lease is to be renewed
    assert not own.is_alive()


def test_event_loops_that_come_and_go_leave_nothing_behind():
    async def use(repo):
        async with RateLimiter(repo).acquire("user", "api", {}):
            pass

    async def opened():
        repo = await Repository.open(url="memory://")
        await repo.set_system_defaults([Limit.concurrent("parallel", 2, lease_ttl=3)])
        return repo

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        repo = asyncio.run(opened())
        for _ in range(5):
            asyncio.run(use(repo))
        gc.collect()
    assert repo.charging.slots.kept() == [0]  # of the last loop


# --- the stored form


def test_a_limit_on_calls_in_flight_is_stored_as_a_kind_of_its_own():
    assert stored.pack(SLOTS, 3) == "c:5:60:3"
    assert stored.unpack("c:5:60:3") == SLOTS
    assert limit_index_of("c:5:60:3") == 3
    with pytest.raises(IncompatibleSchemaError, match="kind 'z'"):
        stored.unpack("z:5:60:3")

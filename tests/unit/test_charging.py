"""The embedded engines' operations over plain tables: charges, settlements, mending, usage."""

import math
from dataclasses import replace

import pytest

from zae_limiter import ConfigSource, Limit, ValidationError
from zae_limiter.admission.image import Rate, full_at_ms, level_milli
from zae_limiter.admission.in_force import InForce, alias_of
from zae_limiter.admission.rebase import full_bucket, without_drops
from zae_limiter.admission.request import (
    Charge,
    ChargeRequest,
    Grant,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.admission.usage import whole_amounts
from zae_limiter.bucket import EPOCH_MS
from zae_limiter.embedded import buckets, history, housekeeping
from zae_limiter.embedded.memory.tables import MemoryTables
from zae_limiter.models.audit import AuditedChange
from zae_limiter.usage.report import END_OF_TIME

NS = "ns"
NOW = 1_767_225_600_000  # 2026-01-01T00:00Z
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RPM = Limit("rpm", 10, 10, 10)  # a token a second
TPM = Limit("tpm", 1000, 1000, 10)
RPD = Limit.per_day("rpd", 10)


def usage_hours(tables, entity_id):
    pages = history.usage_hours(tables, NS, entity_id, None, (0, END_OF_TIME))
    return [hour for page in pages if page is not None for hour in page]


class Store:
    """Tables, a moment, and short names for what is asked of them."""

    def __init__(self, now_ms=NOW):
        self.tables = MemoryTables()
        self.now_ms = now_ms

    def charge(self, *charges, **options):
        request = ChargeRequest(tuple(charges), lambda: self.now_ms, self.now_ms, **options)
        return buckets.charge(self.tables, NS, request)

    def take(self, in_force, entity="user-1", **amounts):
        return self.charge(wanted(in_force, entity, **amounts))

    def settle(self, in_force, entity="user-1", **amounts_milli):
        owed = Settlement(entity, "gpt-4", in_force, amounts_milli)
        buckets.settle(self.tables, NS, (owed,), lambda: self.now_ms)

    def image(self, entity="user-1"):
        return self.tables.get_bucket(NS, entity, "gpt-4")

    def level(self, name="rpm", entity="user-1"):
        return level_milli(self.image(entity).limits[name], self.now_ms)

    def used(self, entity="user-1"):
        total = {}
        for row in usage_hours(self.tables, entity):
            for name, amount in whole_amounts(row.usage.used).items():
                total[row.usage.hour, name] = total.get((row.usage.hour, name), 0) + amount
        return {key: amount for key, amount in total.items() if amount}

    def change(self, entity="user-1"):
        return AuditedChange.by(None, entity, self.now_ms, "gpt-4")

    def forget(self):
        housekeeping.delete_expired_buckets(self.tables, self.now_ms)
        housekeeping.delete_old_history(self.tables, self.now_ms, 90, 90)


@pytest.fixture
def store():
    return Store()


def configured(*limits, version=1, source=ConfigSource.SYSTEM, ttl=0):
    return InForce(limits, source, version, ttl)


def brought(*limits, beside):
    return InForce(limits, ConfigSource.OVERRIDE, beside.version, 0, beside)


def wanted(in_force, entity="user-1", **amounts):
    return Charge(entity, "gpt-4", in_force, in_force.amounts_milli(amounts))


# --- how much


def test_a_new_bucket_is_full_and_gives_just_its_capacity(store):
    assert isinstance(store.take(configured(RPM), rpm=10), Grant)
    assert store.level() == 0
    assert isinstance(store.take(configured(RPM), rpm=1), Rejection)


def test_exactly_what_is_there_is_given(store):
    store.take(configured(RPM), rpm=10)
    store.now_ms += 999
    assert isinstance(store.take(configured(RPM), rpm=1), Rejection)
    store.now_ms += 1
    assert isinstance(store.take(configured(RPM), rpm=1), Grant)


def test_after_a_long_idle_time_no_more_than_the_capacity_is_given(store):
    store.take(configured(RPM), rpm=1)
    store.now_ms += DAY_MS
    assert isinstance(store.take(configured(RPM), rpm=10), Grant)
    assert store.level() == 0
    assert isinstance(store.take(configured(RPM), rpm=1), Rejection)


def test_an_idle_bucket_gives_nothing_beyond_its_capacity_at_once(store):
    store.take(configured(RPM), rpm=1)
    store.now_ms += DAY_MS
    assert isinstance(store.take(configured(RPM), rpm=11), Rejection)
    assert store.level() == 10_000


def test_a_slow_limit_beside_a_busy_one_loses_nothing(store):
    both = configured(RPM, RPD)
    store.take(both, rpd=10)
    for _ in range(24 * 60):
        store.now_ms += 60_000
        assert isinstance(store.take(both, rpm=1), Grant)
    assert store.level("rpd") == 10_000


def test_before_the_epoch_buckets_fill_as_well():
    store = Store(EPOCH_MS - DAY_MS)
    store.take(configured(RPM), rpm=10)
    store.now_ms += 5000
    assert store.level() == 5000


def test_a_fast_limit_is_exact_in_every_millisecond(store):
    fast = configured(Limit("rpm", 10**15, 10**15, 1))
    store.take(fast, rpm=10**15)
    for _ in range(10):
        store.now_ms += 1
        assert store.level() == 10**15
        store.take(fast, rpm=10**12)


# --- all or nothing


def test_one_limit_without_enough_refuses_all(store):
    both = configured(RPM, TPM)
    rejection = store.take(both, rpm=1, tpm=1001)
    assert isinstance(rejection, Rejection)
    assert store.image() is None
    store.take(both, rpm=1, tpm=1000)
    before = store.image()
    assert isinstance(store.take(both, rpm=1, tpm=1), Rejection)
    assert store.image() == before


def test_a_rate_behind_a_quota_is_checked_as_well(store):
    quota = Limit.quota("calls", 100, per="day")
    limits = configured(quota, RPM)
    assert isinstance(store.take(limits, calls=1, rpm=10), Grant)
    assert isinstance(store.take(limits, calls=1, rpm=1), Rejection)


def test_every_threshold_of_a_quota_is_raised_once_in_order(store):
    quota = Limit.quota("calls", 100, per="day", thresholds=(50, 80, 100))
    limits, percents = configured(quota), []
    for amount in (49, 1, 10, 40):
        request = ChargeRequest((wanted(limits, calls=amount),), lambda: store.now_ms, store.now_ms)
        raised = []
        buckets.charge(store.tables, NS, request, raised=raised)
        percents.append([each.percent for each in raised])
    assert percents == [[], [50], [], [80, 100]]


def test_limits_that_a_write_cannot_drop_stay_beside_the_new_ones(store):
    store.take(configured(RPM, TPM), rpm=3, tpm=4)
    before = store.image()
    target = full_bucket(configured(RPM, RPD), store.now_ms)
    kept = without_drops(before, target).limits
    assert {name: state.consumed_milli for name, state in kept.items()} == {
        "rpm": 3000,
        "rpd": 0,
        "tpm": 4000,
    }


def test_a_refused_parent_leaves_the_child_alone(store):
    child, parent = configured(RPM), configured(Limit("rpm", 2, 1, 10))
    for _ in range(2):
        store.charge(wanted(child, "child", rpm=1), wanted(parent, "parent", rpm=1))
    before = store.image("child"), store.image("parent")
    answer = store.charge(wanted(child, "child", rpm=1), wanted(parent, "parent", rpm=1))
    assert isinstance(answer, Rejection)
    assert (store.image("child"), store.image("parent")) == before
    assert [(each.entity_id, each.exceeded) for each in answer.statuses] == [
        ("child", False),
        ("parent", True),
    ]


def test_a_refused_child_leaves_the_parent_alone(store):
    child, parent = configured(Limit("rpm", 1, 1, 10)), configured(RPM)
    store.charge(wanted(child, "child", rpm=1), wanted(parent, "parent", rpm=1))
    before = store.image("parent")
    answer = store.charge(wanted(child, "child", rpm=1), wanted(parent, "parent", rpm=1))
    assert isinstance(answer, Rejection)
    assert store.image("parent") == before


def test_a_cascade_charges_both(store):
    store.charge(wanted(configured(RPM), "child", rpm=3), wanted(configured(TPM), "parent", tpm=7))
    assert store.level("rpm", "child") == 7000
    assert store.level("tpm", "parent") == 993_000


def test_a_debt_stops_calls_that_do_not_name_the_limit(store):
    both = configured(RPM, TPM)
    store.take(both, rpm=1)
    store.settle(both, tpm=1_001_000)
    assert isinstance(store.take(both, rpm=1), Rejection)
    store.now_ms += 10
    assert isinstance(store.take(both, rpm=1), Grant)


# --- when


@pytest.mark.parametrize(("amount", "seconds"), [(1, 1.0), (2, 2.0), (10, 10.0), (11, math.inf)])
def test_a_rejection_says_exactly_when(store, amount, seconds):
    store.take(configured(RPM), rpm=10)
    (status,) = store.take(configured(RPM), rpm=amount).statuses
    assert status.retry_after_seconds == seconds


def test_the_wait_is_rounded_up_to_the_millisecond(store):
    third = configured(Limit("rpm", 3, 3, 1))
    store.take(third, rpm=3)
    (status,) = store.take(third, rpm=1).statuses
    assert status.retry_after_seconds == 0.334
    store.now_ms += 333
    assert isinstance(store.take(third, rpm=1), Rejection)
    store.now_ms += 1
    assert isinstance(store.take(third, rpm=1), Grant)


def test_a_rejection_lists_all_limits_in_force(store):
    both = configured(RPM, TPM)
    store.take(both, rpm=10, tpm=1)
    rpm, tpm = store.take(both, rpm=2).statuses
    assert (rpm.limit, rpm.available, rpm.requested, rpm.exceeded) == (RPM, 0, 2, True)
    assert (tpm.limit, tpm.available, tpm.requested, tpm.exceeded) == (TPM, 999, 0, False)
    assert (tpm.retry_after_seconds, rpm.deficit) == (0.0, 2)


# --- other limits


def test_other_parameters_keep_the_level(store):
    store.take(configured(RPM), rpm=6)
    faster = configured(Limit("rpm", 100, 50, 1), version=2)
    assert isinstance(store.take(faster, rpm=5), Rejection)
    assert isinstance(store.take(faster, rpm=4), Grant)
    assert store.level() == 0
    store.now_ms += 100
    assert store.level() == 5000


def test_a_smaller_capacity_cuts_the_level(store):
    store.take(configured(RPM), rpm=1)
    smaller = configured(Limit("rpm", 5, 10, 10), version=2)
    assert isinstance(store.take(smaller, rpm=6), Rejection)
    assert isinstance(store.take(smaller, rpm=5), Grant)


def test_a_level_that_was_cut_stays_cut_when_the_clock_goes_back(store):
    store.take(configured(RPM), rpm=1)
    store.take(configured(Limit("rpm", 5, 10, 10), version=2))
    store.now_ms -= 2000
    assert store.level() == 3000


def test_going_back_and_forth_between_limits_mints_nothing(store):
    store.take(configured(RPM), rpm=10)
    for version in range(2, 100, 2):
        other = configured(Limit("rpm", 1000, 10_000, 1), version=version)
        assert isinstance(store.take(other, rpm=1), Rejection)
        assert isinstance(store.take(configured(RPM, version=version + 1), rpm=1), Rejection)


def test_after_limits_were_raised_a_larger_request_fits_after_the_stated_time(store):
    """What is refused must move on to the new limits too, or waiting would never help."""
    store.take(configured(RPM), rpm=1)
    larger = configured(Limit("rpm", 100, 10, 10), version=2)
    (status,) = store.take(larger, rpm=50).statuses
    assert status.retry_after_seconds == 41.0
    store.now_ms += 40_999
    assert isinstance(store.take(larger, rpm=50), Rejection)
    store.now_ms += 1
    assert isinstance(store.take(larger, rpm=50), Grant)


def test_limits_that_are_out_of_date_are_not_applied(store):
    store.take(configured(RPM, version=5), rpm=1)
    old = configured(Limit("rpm", 1000, 1000, 1), version=4)
    assert store.take(old, rpm=100) == StaleLimits(5)
    assert store.image().limits["rpm"].rate == Rate.of(RPM)


def test_limits_of_a_call_leave_the_configured_ones_alone(store):
    stored = configured(RPM)
    own = brought(Limit("rpm", 100, 1, 1), beside=stored)
    store.take(stored, rpm=4)
    before = store.image().limits["rpm"]
    assert isinstance(store.take(own, rpm=100), Grant)
    assert store.image().limits["rpm"] == before
    assert isinstance(store.take(own, rpm=1), Rejection)
    assert isinstance(store.take(stored, rpm=6), Grant)


# --- debts and credits


def test_a_debt_of_an_overfull_bucket_is_not_swallowed(store):
    store.take(configured(RPM), rpm=1)
    store.now_ms += DAY_MS
    store.settle(configured(RPM), rpm=15_000)
    assert store.level() == -5000


def test_a_credit_counts_once(store):
    store.take(configured(RPM), rpm=10)
    store.settle(configured(RPM), rpm=-4000)
    assert store.level() == 4000
    assert store.image().limits["rpm"].consumed_milli == 6000


def test_a_credit_does_not_fill_beyond_the_capacity(store):
    store.take(configured(RPM), rpm=1)
    store.settle(configured(RPM), rpm=-9000)
    assert store.level() == 10_000
    assert isinstance(store.take(configured(RPM), rpm=11), Rejection)


def test_a_forgotten_bucket_keeps_debts_and_needs_no_credit(store):
    store.settle(configured(RPM), rpm=-4000)
    assert store.image() is None
    store.settle(configured(RPM), rpm=4000)
    assert store.level() == 6000


def test_the_debt_of_a_forgotten_limit_of_a_call_is_kept(store):
    own = brought(Limit("rpm", 100, 1, 1), beside=configured(RPM))
    (alias,) = own.keys
    assert alias == alias_of("rpm", Rate(100_000, 1000, 1000))
    store.settle(own, **{alias: 30_000})
    assert store.level(alias) == 70_000


def test_a_late_debt_leaves_the_limits_that_apply_by_then(store):
    old, new = configured(RPM, TPM), configured(Limit("rpm", 1000, 1, 1), version=2)
    store.take(new, rpm=1)
    store.settle(old, tpm=1000)
    assert store.image().limits["rpm"].rate == Rate.of(new.limits[0])
    assert store.level("rpm") == 999_000
    assert store.level("tpm") == 999_000


# --- mending


def test_a_reset_fills_and_counts_nothing(store):
    store.take(configured(RPM, TPM), rpm=10, tpm=1000)
    assert buckets.reset(store.tables, NS, store.change())
    assert (store.level("rpm"), store.level("tpm")) == (10_000, 1_000_000)
    assert store.used() == {(NOW // HOUR_MS, "rpm"): 10, (NOW // HOUR_MS, "tpm"): 1000}


def test_a_top_up_stops_at_the_capacity(store):
    store.take(configured(RPM), rpm=10)
    buckets.top_up(store.tables, NS, store.change(), {"rpm": 4})
    assert store.level() == 4000
    buckets.top_up(store.tables, NS, store.change(), {"rpm": 400})
    assert store.level() == 10_000
    assert isinstance(store.take(configured(RPM), rpm=11), Rejection)


def test_what_a_top_up_would_have_run_over_is_gone_also_when_the_clock_goes_back(store):
    store.take(configured(RPM), rpm=10)
    buckets.top_up(store.tables, NS, store.change(), {"rpm": 400})
    store.now_ms -= 4000
    assert store.level() == 6000


def test_a_top_up_of_a_limit_that_is_not_there_is_refused(store):
    store.take(configured(RPM), rpm=1)
    with pytest.raises(ValidationError, match="rpm"):
        buckets.top_up(store.tables, NS, store.change(), {"tpm": 5})


def test_there_is_nothing_to_mend_where_there_is_no_bucket(store):
    assert not buckets.reset(store.tables, NS, store.change())
    assert not buckets.top_up(store.tables, NS, store.change(), {"rpm": 5})
    assert store.image() is None


# --- usage


def test_usage_belongs_to_the_hour_in_which_it_was(store):
    hour = NOW // HOUR_MS
    store.take(configured(RPM), rpm=3)
    store.now_ms += HOUR_MS
    store.take(configured(RPM), rpm=4)
    store.settle(configured(RPM), rpm=-1000)
    store.now_ms += 5 * HOUR_MS
    store.settle(configured(RPM), rpm=2000)
    assert store.used() == {(hour, "rpm"): 3, (hour + 1, "rpm"): 3, (hour + 6, "rpm"): 2}


def test_what_came_through_a_child_is_counted_apart(store):
    names = frozenset({"rpm"})
    force = configured(RPM, TPM)

    def taken(rpm):
        store.charge(replace(wanted(force, "team", rpm=rpm, tpm=5), through_child=names))

    taken(3)
    store.take(force, "team", rpm=2)
    credit = Settlement("team", "gpt-4", force, {"rpm": -1000}, names)
    buckets.settle(store.tables, NS, (credit,), lambda: store.now_ms)
    store.now_ms += HOUR_MS
    store.take(force, "team", rpm=1)
    store.now_ms += HOUR_MS
    taken(4)
    store.forget()
    hours = [
        (whole_amounts(row.usage.used), whole_amounts(row.usage.through_children))
        for row in usage_hours(store.tables, "team")
    ]
    assert hours == [
        ({"rpm": 4, "tpm": 5}, {"rpm": 2}),
        ({"rpm": 1, "tpm": 0}, {}),
        ({"rpm": 4, "tpm": 5}, {"rpm": 4}),
    ]


def test_a_late_credit_of_a_cascade_takes_back_both(store):
    credit = Settlement("team", "gpt-4", configured(RPM), {"rpm": -2000}, frozenset({"rpm"}))
    buckets.settle(store.tables, NS, (credit,), lambda: store.now_ms)
    (row,) = usage_hours(store.tables, "team")
    assert (row.usage.used, row.usage.through_children) == ({"rpm": -2000}, {"rpm": -2000})


def test_a_refused_call_is_no_usage(store):
    store.take(configured(RPM), rpm=10)
    store.now_ms += HOUR_MS
    store.take(configured(RPM), rpm=11)
    assert store.used() == {(NOW // HOUR_MS, "rpm"): 10}


def test_acquires_are_counted_and_more_tokens_within_one_are_not(store):
    in_force = configured(RPM)
    store.charge(wanted(in_force, rpm=1))
    store.charge(wanted(in_force, rpm=1), is_acquire=False)
    (row,) = usage_hours(store.tables, "user-1")
    assert (row.usage.used, row.usage.admitted) == ({"rpm": 2000}, 1)


def test_usage_of_limits_of_calls_is_shown_under_their_plain_name(store):
    stored = configured(RPM)
    store.take(stored, rpm=2)
    store.take(brought(Limit("rpm", 100, 1, 1), beside=stored), rpm=50)
    assert store.used() == {(NOW // HOUR_MS, "rpm"): 52}


def test_what_a_removed_bucket_has_used_stays(store):
    store.take(configured(RPM), rpm=3)
    (row,) = store.tables.entity_buckets(NS, "user-1")
    buckets.drop(store.tables, row)
    store.take(configured(RPM), rpm=2)
    assert store.used() == {(NOW // HOUR_MS, "rpm"): 5}


# --- forgetting


def test_a_bucket_is_forgotten_when_it_has_expired_and_is_full(store):
    in_force = configured(RPM, ttl=7)
    store.take(in_force, rpm=10)
    assert store.image().expires_ms == NOW + 70_000
    store.now_ms += 69_999
    store.forget()
    assert store.image() is not None
    store.now_ms += 1
    store.forget()
    assert store.image() is None
    assert store.used() == {(NOW // HOUR_MS, "rpm"): 10}


def test_a_bucket_in_debt_is_not_forgotten_before_it_is_full(store):
    in_force = configured(RPM, ttl=7)
    store.take(in_force, rpm=10)
    store.settle(in_force, rpm=500_000)
    full_ms = full_at_ms(store.image())
    assert full_ms == NOW + 510_000
    store.now_ms = full_ms - 1
    store.forget()
    assert store.image() is not None
    store.now_ms = full_ms
    store.forget()
    assert store.image() is None


@pytest.mark.parametrize("source", [ConfigSource.ENTITY, ConfigSource.ENTITY_DEFAULT])
def test_buckets_on_limits_of_their_own_are_never_forgotten(store, source):
    store.take(configured(RPM, source=source, ttl=7), rpm=1)
    store.now_ms += 1000 * DAY_MS
    store.forget()
    assert store.image() is not None


def test_a_bucket_that_is_used_stays(store):
    in_force = configured(RPM, ttl=7)
    for _ in range(50):
        store.take(in_force, rpm=1)
        store.now_ms += 35_000
        store.forget()
        assert store.image() is not None


def test_a_bucket_that_was_removed_and_made_again_at_once_is_counted_once(store):
    in_force = configured(RPM, ttl=7)
    store.take(in_force, rpm=3)
    (row,) = store.tables.entity_buckets(NS, "user-1")
    buckets.drop(store.tables, row)
    store.take(in_force, rpm=2)
    store.now_ms += DAY_MS
    store.forget()
    assert store.image() is None
    assert store.used() == {(NOW // HOUR_MS, "rpm"): 5}


def test_old_history_is_forgotten(store):
    in_force = configured(RPM)
    store.take(in_force, rpm=1)
    buckets.reset(store.tables, NS, store.change())
    store.now_ms += 89 * DAY_MS
    store.take(in_force, rpm=2)
    store.forget()
    assert len(store.used()) == 2
    assert len(store.tables.audit(NS, "user-1", None, 100)) == 1
    store.now_ms += 2 * DAY_MS
    store.forget()
    assert list(store.used().values()) == [2]
    assert store.tables.audit(NS, "user-1", None, 100) == []

"""One limit of a bucket as it is shown, from a state and a moment."""

import math

import pytest

from tests.support.limit_states import NOW, QUOTA, quota_state, state
from zae_limiter import Limit
from zae_limiter_ops.views.limit_view import LimitView, views_of_bucket


def test_a_level_rises_with_time():
    row = LimitView.at(state(tokens=0), NOW + 30_000)
    assert (row.level, row.used_percent) == (30, 50)
    assert LimitView.at(state(tokens=0), NOW + 90_000).level == 60


def test_only_an_empty_bucket_is_used_by_100_percent():
    almost = LimitView.at(state(tokens=1, limit=Limit.per_minute("tpm", 1000)), NOW)
    assert almost.used_percent == 99
    assert LimitView.at(state(tokens=-6), NOW).used_percent == 110


@pytest.mark.parametrize(
    ("values", "condition"),
    [
        ({}, "ok"),
        ({"tokens": 10}, "close"),
        ({"tokens": 0, "rejected": 3, "asked": 1}, "limited"),
        ({"tokens": 10, "rejected": 3, "asked": 5}, "close"),
        ({"tokens": -1}, "debt"),
        ({"paused_until_ms": NOW + 1000}, "paused"),
        ({"paused_until_ms": NOW - 1000}, "ok"),
    ],
)
def test_the_condition_of_a_limit_in_a_word(values, condition):
    row = LimitView.at(state(**values), NOW)
    assert row.condition == condition
    assert row.is_limited == (condition in ("limited", "debt", "paused"))


def test_the_wait_is_for_the_largest_rejected_amount():
    row = LimitView.at(state(tokens=10, rejected=1, asked=30), NOW)
    assert row.fits_after_seconds == 20
    assert row.retry_at == "2026-01-01T09:15:50Z" or row.retry_at.startswith("2026-01-01T09:15:50")
    never = LimitView.at(state(tokens=10, rejected=1, asked=61), NOW)
    assert math.isinf(never.fits_after_seconds)
    assert never.retry_at is None


def test_rejections_of_an_earlier_hour_are_gone():
    row = LimitView.at(state(tokens=0, rejected=3, asked=1), NOW + 3_600_000)
    assert (row.rejected, row.asked, row.is_limited) == (0, 0, False)


def test_slots_return_when_a_call_ends_and_at_the_latest_when_all_have_expired():
    limit = Limit.concurrent("parallel", 5, lease_ttl=60)
    full = LimitView.at(state("a", 0, limit, rejected=1, asked=3, holds_expire_ms=NOW + 5000), NOW)
    assert full.fits_after_seconds == 1  # the time after which callers ask again
    assert full.full_after_seconds == 60  # the first expiry returns one slot
    free = LimitView.at(state("b", 5, limit), NOW)
    assert (free.fits_after_seconds, free.full_after_seconds) == (0, 0)


def test_a_quota_does_not_refill_before_the_next_window():
    of_quota = quota_state(200_000, QUOTA, used=700, held=100)
    for seconds in (0, 59):
        row = LimitView.at(of_quota, NOW + seconds * 1000)
        assert (row.level, row.used, row.held, row.used_percent) == (200, 700, 100, 80)
        assert row.full_after_seconds == 60 - seconds
        assert row.condition == "close"
        assert f"{row.window_end:%H:%M %Z}" == "09:16 UTC"
    over = LimitView.at(of_quota, NOW + 60_000)
    assert (over.level, over.used, over.held, over.used_percent) == (1000, 0, 0, 0)
    assert (over.full_after_seconds, over.window_end, over.in_flight) == (0, None, 0)


def test_a_quota_is_exhausted_only_within_its_window():
    drained = LimitView.at(quota_state(200_000, QUOTA), NOW, drain_milli=10_000.0)
    assert drained.empty_after_seconds == 20  # no refill makes it later
    assert (
        LimitView.at(quota_state(200_000, QUOTA), NOW, drain_milli=1000.0).empty_after_seconds
        is None
    )


def test_a_topped_up_quota_is_not_used_below_zero():
    row = LimitView.at(quota_state(1_500_000, QUOTA, used=0, held=0), NOW)
    assert (row.level, row.used_percent, row.condition) == (1500, 0, "ok")


def test_an_amount_above_the_quota_fits_while_a_top_up_lasts():
    topped_up = quota_state(1_500_000, QUOTA, used=0, held=0, rejected=1, asked=1200)
    assert LimitView.at(topped_up, NOW).fits_after_seconds == 0
    over = LimitView.at(topped_up, NOW + 60_000)
    assert math.isinf(over.fits_after_seconds)


def test_a_threshold_is_shown_until_the_window_ends():
    row = LimitView.at(quota_state(100_000, QUOTA, used=900, held=0, raised=80), NOW)
    assert row.raised == 80
    assert LimitView.at(row.state, NOW + 60_000).raised is None


def test_a_level_at_the_read_is_what_commands_show():
    slots = Limit.concurrent("parallel", 5)
    views = views_of_bucket([state(tokens=10, rejected=2, asked=30), state(tokens=0, limit=slots)])
    assert [view.level for view in views] == [10, 0]
    assert [view.retry_after_seconds for view in views] == [0, 1]
    assert [view.fits_after(5) for view in views] == [0, 1]
    assert [view.fits_after(61) for view in views] == [math.inf, math.inf]


def test_a_second_limit_of_a_name_was_passed_by_calls():
    views = views_of_bucket([state(), state(limit=Limit.per_minute("rpm", 5)), state(limit=QUOTA)])
    assert [view.from_call for view in views] == [False, True, False]

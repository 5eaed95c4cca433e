"""Headers of a response, in each style."""

import math
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from zae_limiter import Limit, LimitStatus, RateLimitExceeded, ValidationError
from zae_limiter.headers import go_duration, rate_limit_headers

NOW_MS = 1_800_000_000_500
RPM, TPM = Limit.per_minute("rpm", 60), Limit.custom("gpt-4.tokens", 1000, 500, 60)


def status(limit, available, *, requested=1, wait=0.0, entity="user-1"):
    exceeded = available < requested
    return LimitStatus(entity, "api", limit.name, limit, available, requested, exceeded, wait)


LEFT = [status(RPM, 45), status(TPM, 999)]


def test_ietf_names_each_policy_and_what_is_left_of_it():
    assert rate_limit_headers(LEFT, now_ms=NOW_MS) == {
        "RateLimit-Policy": '"rpm";q=60;w=60, "gpt-4.tokens";q=500;w=60;zae-burst=1000',
        "RateLimit": '"rpm";r=45;t=15, "gpt-4.tokens";r=999;t=1',  # 0.12 s, rounded up
    }


def test_x_ratelimit_shows_the_limit_with_the_smallest_share_left():
    assert rate_limit_headers(LEFT, "x-ratelimit", now_ms=NOW_MS) == {
        "X-RateLimit-Limit": "60",
        "X-RateLimit-Remaining": "45",
        "X-RateLimit-Reset": "1800000016",
    }
    assert "X-RateLimit-Reset" not in rate_limit_headers(LEFT, "x-ratelimit", now_ms=None)


def test_openai_has_requests_and_tokens_by_the_last_part_of_the_name():
    other = Limit.per_hour("images", 5)
    tighter = Limit.per_day("rpd", 1000)
    found = rate_limit_headers(
        [*LEFT, status(other, 0), status(tighter, 1)], "openai", now_ms=NOW_MS
    )
    assert found == {
        "x-ratelimit-limit-requests": "1000",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "23h58m34s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "999",
        "x-ratelimit-reset-tokens": "120ms",
    }
    assert rate_limit_headers([status(other, 0)], "openai", now_ms=NOW_MS) == {}


@pytest.mark.parametrize("style", ["ietf", "x-ratelimit", "openai"])
def test_without_limits_there_are_no_headers(style):
    assert rate_limit_headers([], style, now_ms=NOW_MS) == {}


@pytest.mark.parametrize("style", ["", "IETF", None, 3, ["ietf"]])
def test_another_style_is_refused(style):
    with pytest.raises(ValidationError, match="ietf, x-ratelimit, openai"):
        rate_limit_headers(LEFT, style, now_ms=NOW_MS)


def test_of_child_and_parent_the_smaller_rest_is_shown():
    parent = Limit.per_minute("rpm", 600)
    both = [status(RPM, 30), status(parent, 20, entity="team")]
    found = rate_limit_headers(both, now_ms=NOW_MS)
    assert found["RateLimit"] == '"rpm";r=20;t=58'
    assert found["RateLimit-Policy"] == '"rpm";q=600;w=60'


def test_a_rejection_says_when_to_retry():
    rejected = RateLimitExceeded(
        [status(RPM, 0, wait=0.25), status(TPM, -30, wait=3.6)], at_ms=NOW_MS
    )
    assert rejected.headers() == {
        "RateLimit-Policy": '"rpm";q=60;w=60, "gpt-4.tokens";q=500;w=60;zae-burst=1000',
        "RateLimit": '"rpm";r=0;t=1, "gpt-4.tokens";r=0;t=4',
        "Retry-After": "4",
    }
    assert rejected.headers("x-ratelimit") == {
        "X-RateLimit-Limit": "1000",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "1800000125",
        "Retry-After": "4",
    }
    assert rejected.headers("openai")["Retry-After"] == "4"
    assert pickle.loads(pickle.dumps(rejected)).headers() == rejected.headers()


def test_what_can_never_fit_is_to_be_retried_in_a_day():
    rejected = RateLimitExceeded([status(RPM, 60, requested=61, wait=math.inf)])
    assert rejected.headers()["RateLimit"] == '"rpm";r=60;t=86400'
    assert rejected.headers()["Retry-After"] == "86400"


def test_numbers_stay_within_a_structured_field():
    huge = Limit.custom("rpm", 10**15, 10**15, 1)
    found = rate_limit_headers([status(huge, 10**15)], now_ms=NOW_MS)
    assert found["RateLimit"] == '"rpm";r=999999999999999;t=0'
    assert found["RateLimit-Policy"] == '"rpm";q=999999999999999;w=1'


def quota_status(limit, available, start, end):
    return LimitStatus(
        "team",
        "api",
        limit.name,
        limit,
        available,
        1,
        exceeded=available < 1,
        retry_after_seconds=0.0,
        window_start=start,
        window_end=end,
    )


def test_money_is_shown_in_millionths_so_that_a_rest_is_not_nothing():
    start, end = datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 2, 1, tzinfo=UTC)
    budget = Limit.budget("usd", "20.00", per="month")
    half = quota_status(budget, Decimal("0.50"), start, end)
    found = rate_limit_headers([half], now_ms=NOW_MS)
    assert found["RateLimit-Policy"] == f'"usd";q=20000000;qu="micro-USD";w={31 * 86_400}'
    assert found["RateLimit"].startswith('"usd";r=500000;t=')
    largest = Limit.budget("eur", 10**9, currency="EUR", per="month")
    found = rate_limit_headers([quota_status(largest, Decimal(-3), start, end)], now_ms=NOW_MS)
    assert found["RateLimit-Policy"].startswith('"eur";q=999999999999999;qu="micro-EUR";')
    assert found["RateLimit"].startswith('"eur";r=0;')


@pytest.mark.parametrize("style", ["x-ratelimit", "openai"])
def test_styles_without_units_leave_money_out(style):
    budget = Limit.budget("tokens", "20.00", per="month")
    poor = quota_status(budget, Decimal("0.01"), None, None)
    assert rate_limit_headers([poor], style, now_ms=NOW_MS) == {}
    assert rate_limit_headers([poor, *LEFT], style, now_ms=NOW_MS) == rate_limit_headers(
        LEFT, style, now_ms=NOW_MS
    )


def test_the_window_of_a_quota_has_its_real_length():
    monthly = Limit.quota("tokens", 100, per="month", zone="Europe/Berlin")
    berlin = ZoneInfo("Europe/Berlin")
    start, end = datetime(2026, 2, 1, tzinfo=berlin), datetime(2026, 3, 1, tzinfo=berlin)
    [policy] = _policies(quota_status(monthly, 100, start, end))
    assert policy == f'"tokens";q=100;w={28 * 86_400}'
    start, end = datetime(2026, 3, 1, tzinfo=berlin), datetime(2026, 4, 1, tzinfo=berlin)
    [policy] = _policies(quota_status(monthly, 100, start, end))
    assert policy == f'"tokens";q=100;w={31 * 86_400 - 3600}'  # one hour of March is skipped
    session = Limit.quota("session", 100, after_first_use="5h")
    [policy] = _policies(quota_status(session, 100, None, None))
    assert policy == '"session";q=100;w=18000'


def _policies(*statuses):
    return rate_limit_headers(statuses, now_ms=NOW_MS)["RateLimit-Policy"].split(", ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0001, "1ms"),
        (0.012, "12ms"),
        (0.9999, "1s"),
        (1, "1s"),
        (1.001, "2s"),
        (59.5, "1m0s"),
        (360, "6m0s"),
        (3630, "1h0m30s"),
        (90_000, "25h0m0s"),
    ],
)
def test_durations_are_written_as_openai_writes_them(seconds, text):
    assert go_duration(seconds) == text

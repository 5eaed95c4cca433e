"""A bucket is shown under the limits that its next acquire finds, with the units of its numbers."""

import pytest

from tests.ops.cli.stores import dynamodb_first
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter_ops.views.in_force import LimitsInForce


@pytest.fixture
def limiter(opened):
    opened.set_resource_defaults("gpt-5", [Limit.budget("usd", "5.00", per="month")])
    limiter = SyncRateLimiter(opened)
    with limiter.acquire("key-1", "gpt-5", {"usd": "4.50"}):
        pass
    return limiter


@dynamodb_first
def test_a_raised_budget_is_shown_alike_everywhere(cli, limiter):
    cli("resource", "set-defaults", "gpt-5", "-l", "usd:50USD/month@UTC")
    [listed] = cli("budget", "list", "--output", "json").json["budgets"]
    assert (listed["used"], listed["left"], listed["amount"]) == ("4.50", "45.50", "50.00")
    assert listed["limit"] == "usd:50USD/month@UTC"
    [bucket] = cli("bucket", "list", "-r", "gpt-5", "--output", "json").json["buckets"]
    [shown] = cli("bucket", "show", "key-1", "gpt-5", "--output", "json").json["buckets"]
    for limit in (*bucket["limits"], shown):
        assert (limit["level_billionths"], limit["capacity"]) == (45_500_000_000, "50.00")
    assert shown["limits_changed"] is True
    assert "45.50" in cli("explain", "key-1", "gpt-5").out
    assert (
        cli("bucket", "list", "-r", "gpt-5", "--near", "50", "--output", "json").json["buckets"]
        == []
    )


@dynamodb_first
def test_a_long_listing_finds_the_limits_of_single_entities(cli, limiter, opened):
    for entity_id in ("key-2", "key-3", "key-4"):
        with limiter.acquire(entity_id, "gpt-5", {"usd": "1.00"}):
            pass
    cli("entity", "set-limits", "key-2", "-r", "gpt-5", "-l", "usd:7USD/month@UTC")
    cli("entity", "set-limits", "key-3", "-l", "usd:8USD/month@UTC")
    found = cli("budget", "list", "--output", "json").json["budgets"]
    shown = {each["entity_id"]: each["left"] for each in found}
    assert shown == {"key-1": "0.50", "key-2": "6.00", "key-3": "7.00", "key-4": "4.00"}
    opened.invalidate_config_cache()
    states, _ = opened.list_buckets(resource="gpt-5")
    long = LimitsInForce(few=0).applied(opened, states)  # as after the first buckets of a listing
    assert {state.entity_id: str(state.available) for state in long} == shown


@dynamodb_first
def test_exact_numbers_of_money_are_billionths_and_those_of_tokens_thousandths(cli, opened):
    opened.set_resource_defaults(
        "gpt-5", [Limit.budget("usd", "5.00", per="month"), Limit.per_day("tpd", 100)]
    )
    with SyncRateLimiter(opened).acquire("key-1", "gpt-5", {"usd": "6e-9", "tpd": 2}):
        pass
    [bucket] = cli("bucket", "list", "-r", "gpt-5", "--output", "json").json["buckets"]
    shown = cli("bucket", "show", "key-1", "--output", "json").json["buckets"]
    for limits in (bucket["limits"], shown):
        money, tokens = sorted(limits, key=lambda each: each["limit_name"], reverse=True)
        assert (money["level_milli"], money["debt_milli"], money["consumed_milli"]) == (None,) * 3
        assert (money["level_billionths"], money["debt_billionths"]) == (4_999_999_994, 0)
        assert money["consumed_billionths"] == 6
        assert (tokens["level_billionths"], tokens["debt_billionths"]) == (None, None)
        assert 98_000 <= tokens["level_milli"] < 99_000
        assert (tokens["consumed_milli"], tokens["consumed_billionths"]) == (2000, None)


@dynamodb_first
def test_a_soft_limit_makes_nobody_wait(cli, opened):
    soft = [
        Limit.per_day("rpd", 2, soft=True),
        Limit.quota("tpm", 10, per="month", soft=True),
    ]
    opened.set_resource_defaults("gpt-5", soft)
    with SyncRateLimiter(opened).acquire("key-1", "gpt-5", {"rpd": 7, "tpm": 35}):
        pass
    [bucket] = cli("bucket", "list", "-r", "gpt-5", "--output", "json").json["buckets"]
    for limit in bucket["limits"]:
        assert limit["retry_after_seconds"] == 0
        assert limit["level_milli"] < 0
    for found in (cli("bucket", "list", "-r", "gpt-5"), cli("bucket", "show", "key-1")):
        rows = [line for line in found.out.splitlines() if "rpd" in line or " tpm " in line]
        assert all("now" in row.split() for row in rows[:2])
        assert "is a debt" not in found.err


@dynamodb_first
def test_a_topped_up_budget_is_not_used_below_zero(cli, limiter, opened):
    opened.top_up("key-1", "gpt-5", {"usd": "5.50"})
    [bucket] = cli("bucket", "list", "-r", "gpt-5", "--output", "json").json["buckets"]
    [limit] = bucket["limits"]
    assert (limit["level_billionths"], limit["used_pct"]) == (6_000_000_000, 0)
    assert " 0%" in cli("bucket", "list", "-r", "gpt-5").out

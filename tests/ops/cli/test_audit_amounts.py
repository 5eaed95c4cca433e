"""The audit log shows what resets and top-ups added, in tokens and in currency units."""

import pytest

from tests.ops.cli.stores import sqlite_first
from zae_limiter import Limit, SyncRateLimiter


@pytest.fixture
def topped_up(opened):
    """A bucket with a budget, which is used, topped up, and then reset."""
    limits = [Limit.budget("usd", "5000.00", per="month"), Limit.per_day("rpd", 2000)]
    opened.set_resource_defaults("gpt-5", limits)
    with SyncRateLimiter(opened).acquire("key-1", "gpt-5", {"usd": "4500.50", "rpd": 1500}):
        pass
    opened.top_up("key-1", "gpt-5", {"usd": "1250.25"})


@sqlite_first
@pytest.mark.usefixtures("topped_up")
def test_the_table_and_json_show_money_in_currency_units(cli):
    asked = cli("bucket", "reset", "key-1", "gpt-5")
    assert "usd from 1,749.75 to 5,000.00" in asked.err
    assert cli("bucket", "reset", "key-1", "gpt-5", "--yes").code == 0
    reset, top_up = cli("audit", "list", "-e", "key-1", "--output", "json").json["events"][:2]
    assert top_up["details"] == {"amounts": {"usd": "1250.25"}, "added_money": {"usd": "1250.25"}}
    assert reset["details"]["forgiven_money"] == {"usd": "3250.25"}
    assert reset["details"]["forgiven_milli"].keys() == {"rpd"}
    table = cli("audit", "list", "-e", "key-1").out
    assert "added usd 1,250.25" in table
    assert "asked for" not in table
    assert "usd 3,250.25" in table

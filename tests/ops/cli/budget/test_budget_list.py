"""budget list tells how much of each budget is left, and how long it lasts."""

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.ops.cli.stores import sqlite_first
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.models.bucket import BucketState
from zae_limiter_ops.views.budgets import Budget
from zae_limiter_ops.views.limit_view import LimitView

USD = Limit.budget("usd", "100.00", per="month")
SPENT = {"key-a": "12.50", "key-b": "99.999999999", "key-c": "0.000000001"}


@pytest.fixture
def billed(opened):
    """Budgets on 'gpt-5', one of them overdrawn, and a bucket without a budget."""
    opened.set_resource_defaults("gpt-5", [Limit.per_minute("tpm", 100), USD])
    limiter = SyncRateLimiter(opened)
    for entity_id, amount in SPENT.items():
        with limiter.acquire(entity_id, "gpt-5", {"usd": amount}):
            pass
    with limiter.acquire("key-d", "gpt-5", {"usd": "1"}) as lease:
        lease.settle(usd="130.5")
    return limiter


def listed(page):
    return {each["entity_id"]: each for each in page["budgets"]}


@sqlite_first
@pytest.mark.usefixtures("billed")
def test_budgets_show_used_held_and_left_with_their_unit(cli):
    found = listed(cli("budget", "list", "--output", "json").json)
    assert sorted(found) == ["key-a", "key-b", "key-c", "key-d"]
    first = found["key-a"]
    assert (first["used"], first["held"], first["left"]) == ("12.50", "0.00", "87.50")
    assert (first["amount"], first["currency"], first["limit"]) == (
        "100.00",
        "USD",
        "usd:100USD/month@UTC",
    )
    assert found["key-b"]["left"] == "0.000000001"
    assert (found["key-d"]["left"], found["key-d"]["spent"]) == ("-30.50", True)
    table = cli("budget", "list")
    (line,) = (line for line in table.out.splitlines() if line.startswith("key-d"))
    assert line.split()[:8] == [
        "key-d", "gpt-5", "usd", "130.50", "0.00", "-30.50", "100.00", "USD",
    ]  # fmt: skip
    assert line.split()[-1] == "spent"


@sqlite_first
@pytest.mark.usefixtures("billed")
def test_csv_has_all_digits_and_negative_numbers(cli):
    found = cli("budget", "list", "--output", "csv")
    rows = {row["entity_id"]: row for row in csv.DictReader(io.StringIO(found.out))}
    assert rows["key-c"]["used"] == "0.000000001"
    assert rows["key-d"]["left"] == "-30.50"


@sqlite_first
@pytest.mark.usefixtures("billed")
def test_budgets_come_in_pages_and_can_be_selected(cli):
    entity_ids, cursor = [], []
    while cursor != ["--cursor", None]:
        page = cli("budget", "list", "--limit", "1", *cursor, "--output", "json").json
        entity_ids += [each["entity_id"] for each in page["budgets"]]
        cursor = ["--cursor", page["next_cursor"]]
    assert sorted(entity_ids) == ["key-a", "key-b", "key-c", "key-d"]
    assert list(listed(cli("budget", "list", "-e", "key-c", "--output", "json").json)) == ["key-c"]
    assert (
        len(cli("budget", "list", "-r", "gpt-5", "--all", "--output", "json").json["budgets"]) == 4
    )
    nothing = cli("budget", "list", "-r", "gpt-4")
    assert "no budget was charged" in nothing.err


@sqlite_first
@pytest.mark.usefixtures("billed")
def test_the_exit_code_tells_that_a_budget_is_spent(cli):
    assert cli("budget", "list", "-e", "key-a", "--exit-code").code == 0
    assert cli("budget", "list", "-e", "key-d", "--exit-code").code == 3


@sqlite_first
@pytest.mark.usefixtures("billed")
def test_bucket_show_and_explain_speak_of_the_window(cli):
    shown = cli("bucket", "show", "key-a", "gpt-5").out
    assert "usd: 87.50 of 100.00 USD left this month (UTC), 12.50 used, 0.00 held" in shown
    assert "next window " in shown
    told = cli("explain", "key-b", "gpt-5", "-c", "usd=0.5").out
    assert "99.999999999 used" in told
    assert cli("explain", "key-a", "gpt-5", "--output", "json").json["consume"] == {
        "tpm": 1,
        "usd": "0.000000001",
    }


@sqlite_first
@pytest.mark.usefixtures("billed")
def test_usage_shows_money_with_its_unit(cli):
    table = cli("usage", "list", "--resource", "gpt-5").out
    assert "usd (USD)" in table.splitlines()[0]
    assert "0.000000001" in table
    page = cli("usage", "list", "--resource", "gpt-5", "-e", "key-c", "--output", "json").json
    assert page["snapshots"][0]["counters"] == {"tpm": 0, "usd": "0.000000001"}
    assert page["snapshots"][0]["currencies"] == {"usd": "USD"}
    summary = cli("usage", "summary", "--resource", "gpt-5", "--output", "json").json
    assert summary["total"]["usd"] == "243.00"
    top = cli("usage", "top", "--by", "usd", "-r", "gpt-5", "--output", "csv").out
    rows = csv.DictReader(io.StringIO(top))
    assert [row["usd (USD)"] for row in rows] == ["130.50", "99.999999999", "12.50", "0.000000001"]
    html = cli("usage", "list", "--resource", "gpt-5", "--output", "html").out
    assert "usd: net USD per hour, 243.00 in all" in html


# --- the rate of spending

DAY = 86_400_000
START = datetime(2026, 11, 1, tzinfo=UTC)
END = datetime(2026, 12, 1, tzinfo=UTC)


def budget(days, used, held="0"):
    spent = Decimal(used) + Decimal(held)
    left = int((100 - spent) * 10**9)
    now_ms = int(START.timestamp() * 1000) + int(days * DAY)
    amount = USD.capacity
    state = BucketState(
        "key", "model", "usd", left, now_ms, amount, amount, 30 * DAY,
        terms=USD, used=Decimal(used), held=Decimal(held), window_start=START, window_end=END,
    )  # fmt: skip
    return Budget(LimitView.at(state, now_ms), "default")


def test_a_budget_is_spent_when_its_rate_has_used_the_rest():
    half = budget(10, "50")
    assert half.per_day == Decimal("5.00")
    assert half.spent_at == datetime(2026, 11, 21, tzinfo=UTC)
    assert half.elapsed_share == pytest.approx(1 / 3)
    assert budget(10, "40", "10").spent_at == half.spent_at, "held amounts count"


def test_a_budget_that_outlives_its_window_lasts():
    assert budget(10, "33").spent_at is None
    assert budget(10, "0").spent_at is None
    assert budget(0, "0").spent_at is None
    assert budget(29, "0.000000001").spent_at is None


def test_a_spent_budget_is_spent_now():
    assert budget(10, "100").is_spent
    assert budget(10, "120").spent_at == datetime(2026, 11, 11, tzinfo=UTC)


def test_the_first_call_of_a_window_is_no_flood():
    assert budget(0, "1").per_day == Decimal("24.00"), "as if it were spent in an hour"

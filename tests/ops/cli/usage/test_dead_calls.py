"""Every report says the same of a call that has died: it has used nothing, here and in its team."""

import csv
import io
import time

import pytest

from tests.ops.cli.stores import dynamodb_first, empty_store
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

EARLIER_MS = 10 * 60_000  # what a call began to hold then has expired by now


@pytest.fixture
def team(engine, tmp_path):
    """Yield the URL of a store in which a key of a team has spent 0.10 USD, and a call has died."""
    folder = tmp_path / "team"
    folder.mkdir()
    with empty_store(engine, folder) as url:
        builder = SyncRepository.builder().url(url).provision("table")
        builder.clock(lambda: time.time_ns() // 1_000_000 - EARLIER_MS)
        with builder.register_missing_namespace().build() as repository:
            budget = Limit.budget("usd", "10.00", per="year", hold_ttl=60)
            repository.set_system_defaults([budget])
            repository.create_entity("team")
            repository.create_entity("key-1", parent_id="team", cascade=True)
            limiter = SyncRateLimiter(repository)
            with limiter.acquire("key-1", "gpt-4", {"usd": "0.10"}):
                pass
            limiter.acquire("key-1", "gpt-4", {"usd": "0.825"}).__enter__()
        yield url


def rows(found):
    return {row["entity_id"]: row for row in csv.DictReader(io.StringIO(found.out))}


@dynamodb_first
def test_reports_of_usage_leave_out_what_a_dead_call_held(cli, team):
    whole = cli("usage", "summary", "--output", "json", "--url", team).json
    assert (whole["total"], whole["through_children"]) == ({"usd": "0.10"}, {"usd": "0.10"})
    for entity_id, through in (("team", "0.10"), ("key-1", None)):
        asked = ("usage", "summary", "-e", entity_id, "--output", "json", "--url", team)
        found = cli(*asked).json
        assert found["total"] == {"usd": "0.10"}
        assert found["through_children"].get("usd") == through
    listed = rows(cli("usage", "list", "--output", "csv", "--url", team))
    assert {name: row["usd (USD)"] for name, row in listed.items()} == {
        "team": "0.10",
        "key-1": "0.10",
    }
    assert listed["team"]["usd (USD)_through_children"] == "0.10"
    top = cli("usage", "top", "--by", "usd", "--output", "json", "--url", team).json
    assert [each["counters"]["usd"] for each in top["consumers"]] == ["0.10"]
    assert [each["counters"]["usd"] for each in top["parents"]] == ["0.10"]


@dynamodb_first
def test_the_next_call_changes_no_report_but_by_its_cost(cli, team):
    with SyncRepository.open(url=team) as repository:
        limiter = SyncRateLimiter(repository)
        with limiter.acquire("key-1", "gpt-4", {"usd": "0.05"}):
            pass  # returns what the dead call held
    whole = cli("usage", "summary", "--output", "json", "--url", team).json
    assert (whole["total"], whole["through_children"]) == ({"usd": "0.15"}, {"usd": "0.15"})

"""What is used without having been registered is listed, and what happened anywhere is shown."""

import pytest

from tests.ops.cli.stores import empty_store, sqlite_first
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

RPM = Limit.per_minute("rpm", 100)


@pytest.fixture
def url(engine, tmp_path):
    """A store after the README's example: acquires with limits of the call, nothing else."""
    with empty_store(engine, tmp_path) as url:
        with SyncRepository.open(url=url) as repository:
            limiter = SyncRateLimiter(repository)
            for resource in ("gpt-4", "gpt-5"):
                with limiter.acquire("user-123", resource, {"rpm": 1}, [RPM]):
                    pass
        yield url


@sqlite_first
def test_entities_in_use_are_listed_and_marked(cli):
    (entity,) = cli("entity", "list", "--output", "json").json["entities"]
    assert (entity["entity_id"], entity["created_at"]) == ("user-123", "")
    found = cli("entity", "list")
    assert found.out.splitlines()[2].split() == [
        *("user-123", "no", "in", "use,", "not", "registered")
    ]
    cli("entity", "create", "user-123")
    assert "not registered" not in cli("entity", "list").out


@sqlite_first
def test_resources_in_use_are_listed_and_marked(cli):
    cli("resource", "set-defaults", "gpt-5", "-l", "rpm:5")
    cli("entity", "set-limits", "user-9", "-r", "claude", "-l", "rpm:5")
    rows = [line.split(maxsplit=1) for line in cli("resource", "list").out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["claude", "gpt-4", "gpt-5"]
    assert [row[1] for row in rows[:2]] == ["limits of entities only", "in use, not registered"]
    data = cli("resource", "list", "--output", "json").json["resources"]
    assert [(each["resource"], each["registered"]) for each in data] == [
        ("claude", True),
        ("gpt-4", False),
        ("gpt-5", True),
    ]


@sqlite_first
def test_the_audit_log_shows_all_subjects_of_the_namespace(cli):
    cli("bucket", "reset", "user-123", "gpt-4", "--yes", "--principal", "ops")
    cli("bucket", "top-up", "user-123", "gpt-5", "-a", "rpm=50")
    events = cli("audit", "list", "-N", "default", "--output", "json").json["events"]
    assert [(event["action"], event["entity_id"]) for event in events] == [
        ("bucket_topped_up", "user-123"),
        ("bucket_reset", "user-123"),
        ("namespace_registered", "$NAMESPACE:default"),
    ]
    assert events[1]["details"]["forgiven_milli"].keys() == {"rpm"}
    text = cli("audit", "list").out
    assert "on gpt-4: forgiven rpm 0." in text or "on gpt-4: forgiven rpm 1" in text
    assert "(asked for rpm 50)" in text

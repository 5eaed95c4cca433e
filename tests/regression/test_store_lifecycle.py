"""Purging, deleting, closing; and that nobody holds a piece of the store."""

import sqlite3
from contextlib import closing

import pytest

from zae_limiter import (
    InfrastructureError,
    Limit,
    NamespaceNotFoundError,
    RateLimiter,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

RPM = [Limit.per_minute("rpm", 10)]


def take(repo, entity_id="user", **settings):
    with SyncRateLimiter(repo).acquire(entity_id, "api", {"rpm": 1}, **settings):
        pass


def rows(path):
    """How many rows the file holds, in all tables together."""
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return sum(
            connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for (name,) in names.fetchall()
        )


@pytest.fixture
def tenant(repo, clock):
    """A namespace with limits, whose client stays open."""
    repo.register_namespace("tenant")
    scope = repo.namespace("tenant")
    scope.set_system_defaults(RPM)
    scope.create_entity("user")
    take(scope)
    return scope


# --- purge


def test_what_an_open_client_writes_after_a_purge_can_be_purged(repo, tenant):
    tenant_id = repo.delete_namespace("tenant")
    assert repo.purge_namespace(tenant_id) > 0
    tenant.set_system_defaults(RPM)
    take(tenant)
    tenant.put_provisioner_state({"managed": True})
    assert repo.purge_namespace(tenant_id) > 0
    assert tenant.get_system_defaults() == ([], None)
    assert tenant.get_buckets("user") == []
    assert tenant.get_provisioner_state() is None
    with pytest.raises(NamespaceNotFoundError):
        repo.purge_namespace(tenant_id)


def test_a_purge_tells_how_many_rows_went_whoever_wrote_them(sqlite_url, path, clock):
    with SyncRepository.open(url=sqlite_url, clock=clock) as repo:
        repo.register_namespace("tenant")
        tenant = repo.namespace("tenant")
        tenant_id = repo.delete_namespace("tenant")
        repo.purge_namespace(tenant_id)
        left = rows(path)
        tenant.set_system_defaults(RPM)
        take(tenant)
        written = rows(path) - left
        assert repo.purge_namespace(tenant_id) == written
        assert rows(path) == left


def test_a_namespace_that_never_was_cannot_be_purged(repo):
    for unknown in ("nonsense", "_"):
        with pytest.raises(NamespaceNotFoundError):
            repo.purge_namespace(unknown)


# --- delete_table


def test_deleting_the_table_removes_everything(sqlite_url, path, clock):
    with SyncRepository.open("tenant", url=sqlite_url, clock=clock) as repo:
        repo.set_system_defaults(RPM)
        repo.create_entity("user")
        take(repo)
        repo.set_version_record({"version": 1})
        repo.put_provisioner_state({"managed": True})
        clock.advance(hours=1)
        take(repo)
        repo.register_namespace("gone")
        repo.delete_namespace("gone")
        repo.delete_table()
        assert rows(path) == 0


def test_deleting_the_table_removes_what_was_written_after_a_purge(sqlite_url, path, clock):
    with SyncRepository.open(url=sqlite_url, clock=clock) as repo:
        repo.register_namespace("tenant")
        tenant = repo.namespace("tenant")
        repo.purge_namespace(repo.delete_namespace("tenant"))
        tenant.set_system_defaults(RPM)
        take(tenant)
        repo.delete_table()
        assert rows(path) == 0


def test_after_the_table_was_deleted_no_limits_and_no_history_are_left(repo):
    repo.set_system_defaults(RPM)
    repo.create_entity("user")
    take(repo)
    repo.set_version_record({"version": 1})
    repo.delete_table()
    assert repo.get_version_record() is None
    assert repo.list_namespaces() == []
    assert repo.get_audit_events("$NAMESPACE:default") == []
    assert repo.get_audit_events("user") == []
    assert repo.resolve_limits("user", "api") == (None, None, None)


# --- what is handed out


def test_metadata_that_was_handed_in_or_out_can_be_changed_without_harm(repo):
    metadata = {"tier": "gold"}
    created = repo.create_entity("user", parent_id="team", metadata=metadata)
    metadata["tier"] = "changed"
    created.metadata["tier"] = "changed"
    repo.get_entity("user").metadata["tier"] = "changed"
    repo.get_children("team")[0].metadata["tier"] = "changed"
    assert repo.get_entity("user").metadata == {"tier": "gold"}


def test_the_audit_log_cannot_be_changed_through_what_was_handed_in_or_out(repo):
    created = repo.create_entity("user", metadata={"tier": "gold"})
    created.metadata["tier"] = "changed"
    repo.get_audit_events("user")[0].details["metadata"]["tier"] = "changed"
    assert repo.get_audit_events("user")[0].details["metadata"] == {"tier": "gold"}
    repo.get_audit_events("user")[0].details.clear()
    assert repo.get_audit_events("user")[0].details["metadata"] == {"tier": "gold"}


def test_documents_that_were_handed_in_or_out_can_be_changed_without_harm(repo):
    document = {"managed": {"api": ["rpm"]}}
    repo.put_provisioner_state(document)
    document["managed"]["api"].append("changed")
    repo.get_provisioner_state()["managed"]["api"].append("changed")
    assert repo.get_provisioner_state() == {"managed": {"api": ["rpm"]}}


def test_usage_that_was_handed_out_can_be_changed_without_harm(repo, clock):
    repo.set_system_defaults(RPM)
    take(repo)
    clock.advance(hours=1)
    take(repo)
    for _ in range(2):
        found, _ = repo.get_usage_snapshots(entity_id="user", window_type="hourly")
        assert [each.counters for each in found] == [{"rpm": 1}, {"rpm": 1}]
        for each in found:
            each.counters["rpm"] = 999


# --- close


def test_closing_a_scoped_repository_leaves_the_store_open(repo, tenant):
    with tenant:
        pass
    repo.set_system_defaults(RPM)
    take(repo)
    take(tenant)


def test_closing_a_limiter_leaves_the_repository_open(repo, clock):
    repo.set_system_defaults(RPM)
    with SyncRateLimiter(repo, clock=clock) as limiter:
        limiter.repository.close()
    take(repo)


def test_a_closed_repository_refuses_to_work(url):
    repo = SyncRepository.open(url=url)
    repo.set_system_defaults(RPM)
    scope = repo.namespace("default")
    repo.close()
    for call in (repo.ping, repo.list_namespaces, lambda: take(repo), lambda: take(scope)):
        with pytest.raises(InfrastructureError, match="closed"):
            call()
    with pytest.raises(InfrastructureError, match="closed"):
        take(repo, on_unavailable="allow")  # a mistake is no outage
    repo.close()


async def test_a_closed_repository_refuses_the_work_of_tasks(url):
    repo = await Repository.open(url=url)
    await repo.set_system_defaults(RPM)
    await repo.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await repo.ping()
    with pytest.raises(InfrastructureError, match="closed"):
        async with RateLimiter(repo).acquire("user", "api", {"rpm": 1}):
            pass
    await repo.close()


def test_a_named_memory_store_lives_on_with_its_other_users(tmp_path):
    first = SyncRepository.open(url=f"memory://{tmp_path.name}")
    second = SyncRepository.open(url=f"memory://{tmp_path.name}")
    first.set_system_defaults(RPM)
    first.close()
    take(second)
    with pytest.raises(InfrastructureError, match="closed"):
        take(first)

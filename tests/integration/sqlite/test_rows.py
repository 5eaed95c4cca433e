"""What the tables of a file hold: everything is counted, expires and is removed as promised."""

import sqlite3
from contextlib import closing

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

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


def test_a_purge_tells_how_many_rows_it_has_removed(sqlite_url, path, clock):
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


def test_deleting_the_table_leaves_no_row(sqlite_url, path, clock):
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


def test_a_scoped_repository_keeps_buckets_as_long_as_its_multiplier_says(sqlite_url, path, clock):
    with SyncRepository.open(url=sqlite_url, clock=clock) as repo:
        repo.set_system_defaults(RPM)
        scopes = {
            multiplier: repo.namespace("default", bucket_ttl_multiplier=multiplier)
            for multiplier in (0, 3, 20)
        }
        for multiplier, scope in [(7, repo), *scopes.items(), *reversed(scopes.items())]:
            forget_buckets(path)
            with SyncRateLimiter(scope).acquire("user", "api", {"rpm": 1}):
                pass
            expected = multiplier * 60_000 + clock() if multiplier else None
            assert expiry(path, "user") == expected


def forget_buckets(path):
    """Without the repository's knowledge, so that no cache is emptied."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM bucket")


def expiry(path, entity_id):
    with closing(sqlite3.connect(path)) as connection:
        statement = "SELECT expires_ms FROM bucket WHERE entity_id = ?"
        return connection.execute(statement, (entity_id,)).fetchone()[0]

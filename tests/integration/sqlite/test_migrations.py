"""Files of earlier versions are brought to the schema of this one when they are opened."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from zae_limiter import IncompatibleSchemaError, SyncRateLimiter, SyncRepository
from zae_limiter.embedded.sqlite.schema import MIGRATIONS

OLD_FILE = Path(__file__).parent / "data" / "schema_2.sql"  # as version 1.0.0rc1 left it
HOUR_LATER = {"hours": 1}


@pytest.fixture
def old_file(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD_FILE.read_text())
    return path


def table_definitions(path):
    with closing(sqlite3.connect(path)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'").fetchall()
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        columns = {
            name: connection.execute(f"PRAGMA table_info({name})").fetchall()
            for (name,) in tables.fetchall()
        }
        return version, sorted(names), columns


def test_an_old_file_becomes_what_a_new_one_is(old_file, url, tmp_path):
    SyncRepository.open(url=url).close()
    SyncRepository.open(url=f"sqlite:///{tmp_path}/new.db").close()
    assert table_definitions(old_file) == table_definitions(tmp_path / "new.db")
    assert table_definitions(old_file)[0] == len(MIGRATIONS)


def test_what_it_holds_stays_and_is_used(old_file, url, clock):
    clock.advance(**HOUR_LATER)
    with SyncRepository.open(url=url, clock=clock) as repository:
        assert repository.list_resources() == ["gpt-4", "gpt-5"]
        assert repository.get_entity("user-1").metadata == {"team": "red"}
        assert [limit.capacity for limit in repository.get_limits("user-1", "gpt-4")] == [100]
        assert len(repository.get_audit_events("user-1")) == 2
        limiter = SyncRateLimiter(repository)
        assert limiter.available("user-1", "gpt-4") == {"rpm": 99}
        with limiter.acquire("user-1", "gpt-4", {"rpm": 2}):
            pass
        used = repository.get_usage_summary("user-1", "gpt-4").total
        assert used == {"rpm": 6}


def test_it_is_migrated_once(old_file, url):
    for _ in range(2):
        with SyncRepository.open(url=url) as repository:
            assert "gpt-4" in repository.list_resources()


def test_a_migration_that_fails_leaves_the_file_as_it_was(old_file, url):
    with closing(sqlite3.connect(old_file)) as connection:
        connection.execute(
            "CREATE TABLE resource_in_use (other TEXT)"
        )  # in the way of a later step
    before = table_definitions(old_file)
    with pytest.raises(Exception, match="resource_in_use"):
        SyncRepository.open(url=url)
    assert table_definitions(old_file) == before


def test_an_older_program_is_told_to_update(old_file, url):
    SyncRepository.open(url=url).close()
    with closing(sqlite3.connect(old_file)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(IncompatibleSchemaError, match="update zae-limiter to open"):
        SyncRepository.open(url=url)

"""Which migrations a table needs, and what its version record says meanwhile."""

from zae_limiter.dynamodb import table
from zae_limiter.dynamodb.migrations import MIGRATIONS, Migration, pending
from zae_limiter.items import version_record

STEPS = [Migration(version, "", lambda item: []) for version in (2, 3, 4)]


def test_a_table_needs_the_migrations_after_its_version():
    assert pending(STEPS, 1) == STEPS
    assert pending(STEPS, 3) == STEPS[2:]
    assert pending(STEPS, 4) == []


def test_the_last_migration_leads_to_the_version_of_this_client():
    assert [migration.version for migration in MIGRATIONS] == list(
        range(table.FIRST_VERSION + 1, version_record.SCHEMA_VERSION + 1)
    )


def test_the_record_keeps_what_else_it_says():
    older = version_record.SCHEMA_VERSION - 1
    record = {"schema_version": older, "client_version": "0.9.0", "usage_retention_days": 5}
    during = table.record_during_migration(record, older)
    assert table.version_of(during) == older
    after = table.record_after_migration(during)
    assert (table.version_of(after), after["usage_retention_days"]) == (
        version_record.SCHEMA_VERSION,
        5,
    )
    assert table.unfinished_migration(after, "t") is None
    version_record.check_version_record(during, "t")

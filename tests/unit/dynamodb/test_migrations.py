"""What a migration makes of single items, without a table."""

import pytest

from zae_limiter import schema
from zae_limiter.dynamodb import migrations, table, version_record
from zae_limiter.dynamodb.items import bucket, keys
from zae_limiter.dynamodb.items.attributes import s
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.dynamodb.migrations import MIGRATIONS, PartitionedIndexes, pending

OLD = {
    Key("ns/ENTITY#user-1", "#META"): "user-1",
    Key("ns/ENTITY#user-1", "#CONFIG#gpt-4"): "user-1",
    Key("ns/AUDIT#$RESOURCE:gpt-4", "#AUDIT#1"): "$RESOURCE:gpt-4",
    Key("ns/RESOURCE#gpt-4", "#CONFIG"): "ns/RESOURCE#gpt-4#CONFIG",
    Key("ns/SYSTEM#", "#CONFIG"): "ns/SYSTEM##CONFIG",
}


def values(update):
    """The attributes that an update sets, by name, and those that it requires."""
    body = update.action()
    names, given = body["ExpressionAttributeNames"], body["ExpressionAttributeValues"]
    sets = dict(part.split(" = ") for part in body["UpdateExpression"][4:].split(", "))
    required = dict(part.split(" = ") for part in body["ConditionExpression"].split(" AND "))
    return (
        {names[name]: given[value] for name, value in sets.items()},
        {names[name]: given[value] for name, value in required.items()},
    )


@pytest.mark.parametrize(("key", "hashed"), OLD.items(), ids=str)
def test_an_item_gets_the_partition_of_its_entity_or_key(key, hashed):
    (update,) = PartitionedIndexes()({**key.attributes, "GSI4PK": s("ns"), "other": s("kept")})
    changed, required = values(update)
    assert changed == {"GSI4PK": s(schema.gsi4_pk_namespace("ns", hashed))}
    assert required == {"GSI4PK": s("ns")}


def test_a_bucket_gets_both_keys_and_its_resource_is_registered_once():
    place = ("ns", "user-1", "gpt-4", 3)
    new = {**bucket.key(*place), **bucket.index_keys(*place)}
    old = {**new, "GSI2PK": s("ns/RESOURCE#gpt-4"), "GSI4PK": s("ns")}
    rewrite = PartitionedIndexes()
    update, registration = rewrite(old)
    changed, required = values(update)
    assert changed == {name: new[name] for name in ("GSI2PK", "GSI4PK")}
    assert required == {name: old[name] for name in ("GSI2PK", "GSI4PK")}
    assert registration.key == keys.resources_in_use("ns").attributes
    assert len(rewrite(old)) == 1
    assert rewrite(new) == []


def test_an_hour_of_usage_gets_both_keys():
    key = keys.usage("ns", "user-1", "gpt-4", "2026-01-01T13")
    old = {**key.attributes, "GSI2PK": s("ns/RESOURCE#gpt-4"), "GSI4PK": s("ns")}
    (update,) = PartitionedIndexes()(old)
    assert values(update)[0] == {
        "GSI2PK": s(schema.gsi2_pk_resource("ns", "gpt-4", "user-1")),
        "GSI4PK": s(schema.gsi4_pk_namespace("ns", "user-1")),
    }


def test_an_item_in_no_index_stays_in_none():
    assert PartitionedIndexes()(Key("ns/SYSTEM#", "#CONFIG").attributes) == []


def test_the_last_migration_leads_to_the_version_of_this_client():
    assert [migration.version for migration in MIGRATIONS] == list(
        range(table.FIRST_VERSION + 1, version_record.SCHEMA_VERSION + 1)
    )
    assert pending(table.FIRST_VERSION) == list(migrations.MIGRATIONS)
    assert pending(version_record.SCHEMA_VERSION) == []


def test_the_record_keeps_what_else_it_says():
    record = {"schema_version": 1, "client_version": "1.0.0rc1", "usage_retention_days": 5}
    during = table.record_during_migration(record, 1)
    assert table.version_of(during) == 1
    after = table.record_after_migration(during)
    assert (table.version_of(after), after["usage_retention_days"]) == (
        version_record.SCHEMA_VERSION,
        5,
    )
    assert table.unfinished_migration(after, "t") is None
    version_record.check_version_record(during, "t")

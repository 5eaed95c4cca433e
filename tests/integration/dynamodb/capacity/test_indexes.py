"""An index entry that changes is paid for like another write: none may change on an acquire."""

import pytest

from tests.integration.dynamodb.capacity.world import USER


@pytest.fixture
def table(boto, endpoint):
    """The description of a table, and its items, seen by other means."""
    client = boto(endpoint)

    class Table:
        def indexes(self, stack):
            description = client.describe_table(TableName=stack)["Table"]
            return description["GlobalSecondaryIndexes"]

        def bucket(self, stack):
            items = client.scan(TableName=stack)["Items"]
            [found] = [each for each in items if "/BUCKET#" in each["PK"]["S"]]
            return found

    return Table()


def projected(index, item):
    """The attributes of an item that an index holds; nothing if it does not hold the item."""
    keys = {key["AttributeName"] for key in index["KeySchema"]}
    if not keys <= item.keys():
        return set()
    projection = index["Projection"]
    if projection["ProjectionType"] == "ALL":
        return set(item)
    return keys | {"PK", "SK"} | set(projection.get("NonKeyAttributes", ()))


async def test_no_index_holds_what_an_acquire_changes(configured, clock, table):
    client = await configured.client()
    await client.take(rpm=1, tpm=100)
    before = table.bucket(configured.table)
    clock.advance(days=8)  # so that its TTL is set anew
    async with client.acquire(rpm=1, tpm=100) as lease:
        await lease.adjust(tpm=50)
    after = table.bucket(configured.table)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {"t_rpm", "c_rpm", "t_tpm", "c_tpm", "wc", "op", "ttl", "h", "b0"} <= changed
    holding = {}
    for index in table.indexes(configured.table):
        holding[index["IndexName"]] = projected(index, after)
    assert {name for name, held in holding.items() if held} == {"GSI2", "GSI3", "GSI4"}
    assert all(changed.isdisjoint(held) for held in holding.values())


async def test_buckets_of_children_are_in_no_index_that_holds_everything(family, table):
    client = await family.client()
    await client.take(rpm=1)
    every = [
        index
        for index in table.indexes(family.table)
        if index["Projection"]["ProjectionType"] != "KEYS_ONLY"
    ]
    assert [index["IndexName"] for index in every] == ["GSI1"]
    await family.admin.delete_entity(USER)
    assert projected(every[0], table.bucket(family.table)) == set()

"""One write unit is 1 KB: a bucket must stay well below, however its owner is called."""

import string

import pytest

from tests.integration.dynamodb.capacity.sizes import item_bytes, number_bytes
from tests.integration.dynamodb.capacity.world import world_of
from tests.support.dynamodb.trees import AsyncTree
from zae_limiter import Limit
from zae_limiter.testing import FakeClock

IN_2049 = 2_493_000_000_123  # ms; balances count from 2020, so that they have grown by then
ENTITY, PARENT, RESOURCE = "e" * 40, "p" * 40, "r" * 40
LARGE = 10_000_000  # tokens a minute
CONSUMED = "123456789123"  # millitokens
COUNTED = "1234567891"  # writes
OF_HOUR = "600000000000"  # millitokens: 10 million a minute
ADMITTED = "2880000"  # 800 a second


@pytest.fixture
def clock():
    return FakeClock(IN_2049)


@pytest.fixture
async def world(stack, proxy, endpoint, clock):
    async with world_of(AsyncTree(), stack, proxy, endpoint, clock) as world:
        yield world


@pytest.fixture
def bucket_of(world, boto, endpoint, clock):
    """The bucket of a long and busy life with these limits, in its second hour."""

    async def bucket_of(*limits, entity_id=ENTITY):
        admin = world.admin
        if await admin.get_entity(ENTITY) is None:
            await admin.create_entity(ENTITY, parent_id=PARENT, cascade=True)
        await admin.set_system_defaults(limits)
        limiter = world.tree.limiter(admin)
        for _ in range(3):  # so that no number is round
            clock.advance(ms=12_347)
            async with limiter.acquire(ENTITY, RESOURCE, {limit.name: 7919 for limit in limits}):
                pass
        clock.advance(hours=1)
        async with limiter.acquire(ENTITY, RESOURCE, {limit.name: 7919 for limit in limits}):
            pass
        items = boto(endpoint).scan(TableName=world.table)["Items"]
        [item] = [each for each in items if f"/BUCKET#{entity_id}" in each["PK"]["S"]]
        assert "ph" in item
        return {**item, **_grown(item)}

    return bucket_of


def _grown(item):
    """Counters as they are after years."""
    counters = {name: {"N": CONSUMED} for name in item if name.startswith("c_") or name[0] == "b"}
    of_hour = {name: {"N": OF_HOUR} for name in item if name[0] in "kuv" and name[1:].isdecimal()}
    admitted = {name: {"N": ADMITTED} for name in ("ac", "ua", "rj", "ur", "uw", "ux")}
    return {**counters, **of_hour, **admitted, "wc": {"N": COUNTED}, "cv": {"N": "4321"}}


@pytest.mark.parametrize(
    ("number", "size"),
    [("0", 2), ("1", 2), ("12", 2), ("123", 3), ("-1", 3), ("-123", 4), ("123456789123", 7)],
)
def test_numbers_are_counted_as_documented(number, size):
    assert number_bytes(number) == size


async def test_two_limits_and_long_names(bucket_of):
    item = await bucket_of(Limit.per_minute("rpm", LARGE), Limit.per_minute("tpm", LARGE))
    assert item["parent_id"] == {"S": PARENT}
    assert item_bytes(item) < 800


async def test_two_limits_and_refusals_by_a_parent_on_another_resource(bucket_of):
    item = await bucket_of(Limit.per_minute("rpm", LARGE), Limit.per_minute("tpm", LARGE))
    for rejections in ("rq", "uq"):
        item[rejections] = {"S": f'0=7919;[2493000000,12345,["usd","{RESOURCE}","{PARENT}"]]'}
    assert item_bytes(item) < 1024


@pytest.mark.each_value_once
@pytest.mark.parametrize("count", [4, 5])  # with five, the item has no ids of earlier writes
@pytest.mark.parametrize("entity_id", [ENTITY, PARENT], ids=["child", "parent"])
async def test_five_limits_and_long_names(bucket_of, entity_id, count):
    names = [letter * 8 for letter in string.ascii_lowercase[:count]]
    limits = [Limit.per_minute(name, LARGE) for name in names]
    item = await bucket_of(*limits, entity_id=entity_id)
    assert {f"t_{name}" for name in names} <= item.keys()
    assert ("k3" in item) is (entity_id == PARENT)
    assert ("w3" in item) is (count == 4)
    assert item_bytes(item) <= 1024


async def test_a_refund_to_five_limits_keeps_the_id_of_the_last_write_only(
    bucket_of, world, boto, endpoint
):
    names = [letter * 8 for letter in string.ascii_lowercase[:5]]
    await bucket_of(*[Limit.per_minute(name, LARGE) for name in names])
    for limiter in (world.tree.limiter(world.admin), world.tree.limiter(await world.open())):
        async with limiter.acquire(ENTITY, RESOURCE, dict.fromkeys(names, 7919)) as lease:
            await lease.adjust(**dict.fromkeys(names, -1000))
    scanned = boto(endpoint).scan(TableName=world.table)["Items"]
    items = [each for each in scanned if "/BUCKET#" in each["PK"]["S"]]
    assert len(items) == 2
    assert not any("w1" in item for item in items)


async def test_a_fifth_limit_takes_the_ids_of_earlier_writes_away(bucket_of):
    names = [letter * 8 for letter in string.ascii_lowercase[:5]]
    limits = [Limit.per_minute(name, LARGE) for name in names]
    assert "w3" in await bucket_of(*limits[:4])
    item = await bucket_of(*limits)
    assert f"t_{names[4]}" in item
    assert not {"w1", "w2", "w3"} & item.keys()
    assert item_bytes(item) <= 1024


async def test_five_limits_with_bursts(bucket_of):
    names = [letter * 8 for letter in string.ascii_lowercase[:5]]
    limits = [Limit.per_minute(name, LARGE, burst=12_500_000) for name in names]
    assert item_bytes(await bucket_of(*limits)) <= 1024

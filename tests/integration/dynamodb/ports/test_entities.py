"""Entities: races, lost answers, and deletions too large for one transaction."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.dynamodb.ports.world import NOW_MS, NS, limits, set_limits
from tests.support.dynamodb.usage_rows import stored_rows
from tests.support.hours import hour_of
from zae_limiter.admission.usage import BucketHour
from zae_limiter.exceptions import EntityExistsError, PermissionDenied, ValidationError
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import config_writes, keys
from zae_limiter.items.stored.attributes import n
from zae_limiter.items.stored.registries import resource_count
from zae_limiter.models.config import ConfigLevel
from zae_limiter.models.entity import Entity

MANY = 150


async def create(ports, entity_id, **fields):
    await ports.entities.create(NS, Entity(entity_id, **fields), NOW_MS, "me")


async def delete(ports, entity_id):
    return await ports.entities.delete(NS, entity_id, NOW_MS, "me")


def bucket(entity_id, resource, shard=0, shards=1):
    return {
        bucket_item.SHARDS: n(shards),
        bucket_item.GENERATION: n(7),
        **keys.bucket(NS, entity_id, resource, shard).attributes,
        **bucket_item.index_keys(NS, entity_id, resource, shard),
    }


def config(entity_id, resource):
    return config_writes.encode(NS, ConfigLevel(entity_id, resource), limits(1), "r")


def registered(resources, others=0):
    """The registry when one entity, and some others, have limits on the resources."""
    counts = {f"r_{resource}": {"N": str(1 + others)} for resource in resources}
    key = keys.entity_config_resources(NS)
    return {**key.attributes, **keys.namespace_index(NS, key), **counts}


def of_entity(raw, entity_id):
    return [
        item
        for item in raw.all()
        if item["PK"]["S"].startswith((f"{NS}/ENTITY#{entity_id}", f"{NS}/BUCKET#{entity_id}#"))
    ]


# --- creating


async def test_of_many_creations_one_succeeds(ports):
    outcomes = await asyncio.gather(
        *(create(ports, "user", name=str(number)) for number in range(20)), return_exceptions=True
    )
    (winner,) = [number for number, outcome in enumerate(outcomes) if outcome is None]
    assert sum(isinstance(outcome, EntityExistsError) for outcome in outcomes) == 19
    assert (await ports.entities.get(NS, "user")).name == str(winner)
    (event,) = await ports.audit.events(NS, "user", None, 100)
    assert event.details["name"] == str(winner)


def test_of_many_threads_that_create_the_same_one_succeeds(sync_ports):
    def is_created(number):
        try:
            sync_ports.entities.create(NS, Entity("user", name=str(number)), NOW_MS, None)
        except EntityExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(is_created, range(20))) == 1
    assert len(sync_ports.audit.events(NS, "user", None, 100)) == 1


@pytest.mark.fast("error_after", "late")
@pytest.mark.parametrize("kind", ["lose_answer", "error_after", "cut_answer", "late"])
async def test_an_entity_whose_answer_was_lost_is_not_taken_for_another_s(proxied, proxy, kind):
    with proxy.fault(kind, operation="TransactWriteItems", times=1, delay_ms=50):
        await create(proxied, "user")
    await asyncio.sleep(0.1)
    assert len(await proxied.audit.events(NS, "user", None, 10)) == 1


async def test_any_metadata_is_read_back(ports):
    metadata = {"": "", "a": "", "ü": "\x00\n", "PK": "x", "long": "y" * 256}
    await create(ports, "user", metadata=metadata)
    assert (await ports.entities.get(NS, "user")).metadata == metadata
    (event,) = await ports.audit.events(NS, "user", None, 1)
    assert event.details["metadata"] == metadata


async def test_metadata_that_no_item_can_hold_is_refused(ports):
    metadata = {f"{number:0256}": "x" * 256 for number in range(800)}
    with pytest.raises(ValidationError) as caught:
        await create(ports, "user", metadata=metadata)
    assert caught.value.field == "metadata"
    assert await ports.entities.get(NS, "user") is None


async def test_children_are_listed_over_several_pages(ports):
    metadata = {f"{number}": "x" * 256 for number in range(40)}
    names = [f"child-{number:03}" for number in range(250)]
    for start in range(0, len(names), 25):
        await asyncio.gather(
            *(
                create(ports, name, parent_id="team", metadata=metadata)
                for name in names[start : start + 25]
            )
        )
    await create(ports, "other", parent_id="team-2")
    found = await ports.entities.children(NS, "team")
    assert [child.id for child in found] == names
    assert found[0].metadata == metadata


# --- deleting


async def test_a_deletion_takes_limits_buckets_and_nothing_else(ports, proxied, proxy, raw):
    await create(ports, "user", parent_id="team")
    for resource in ("api", "_default_"):
        await set_limits(ports.configs, ("user", resource), limits(1))
    await set_limits(ports.configs, ("other", "api"), limits(1))
    row = BucketHour("user", "api", hour_of(NOW_MS // 3_600_000, {"rpm": 3}, 2))
    raw.put(*stored_rows(NS, [row]))
    raw.put(bucket("user", "gpt"), *(bucket("user", "api", shard, 4) for shard in range(4)))
    raw.put(bucket("user-1", "api"), bucket("other", "api"))
    with proxy.measure() as seen:
        assert await delete(proxied, "user")
    assert seen.operations["TransactWriteItems"] == 1
    (left,) = [item for item in of_entity(raw, "user") if "user-1" not in item["PK"]["S"]]
    assert left["SK"]["S"].startswith("#USAGE#")
    assert raw.get(keys.bucket(NS, "user-1", "api"))
    assert raw.get(keys.bucket(NS, "other", "api"))
    assert await ports.entities.children(NS, "team") == []
    assert resource_count(raw.get(keys.entity_config_resources(NS)), "api") == 1
    assert await ports.configs.resources_with_entity_configs(NS) == ["api"]
    event = (await ports.audit.events(NS, "user", None, 1))[0]
    assert (event.action, event.principal) == ("entity_deleted", "me")
    assert event.details == {"limits_of": ["_default_", "api"], "buckets_of": ["api", "gpt"]}
    assert (await ports.configs.snapshot(NS, "user", "api", fresh=True)).version == 4
    assert proxied.witness.entities == [(NS, "user", None)]
    assert proxied.witness.buckets == [(NS, "user", "api", None), (NS, "user", "gpt", None)]


async def test_a_bucket_that_the_index_does_not_know_yet_is_deleted_with_its_limits(ports, raw):
    await set_limits(ports.configs, ("user", "api"), limits(1))
    unlisted = {name: bucket("user", "api")[name] for name in ("PK", "SK", "n", "g")}
    raw.put(unlisted)
    assert await delete(ports, "user")
    assert of_entity(raw, "user") == []


async def test_an_entity_that_only_has_buckets_is_deleted_once(ports, raw):
    raw.put(bucket("user", "api"))
    found = await asyncio.gather(*(delete(ports, "user") for _ in range(10)))
    assert sum(found) == 1
    assert len(await ports.audit.events(NS, "user", None, 10)) == 1
    assert not await delete(ports, "nobody")


async def test_of_many_deletions_one_succeeds(ports, raw):
    await create(ports, "user")
    await set_limits(ports.configs, ("user", "api"), limits(1))
    await set_limits(ports.configs, ("other", "api"), limits(1))
    assert sum(await asyncio.gather(*(delete(ports, "user") for _ in range(10)))) == 1
    assert resource_count(raw.get(keys.entity_config_resources(NS)), "api") == 1


async def large(ports, raw, *, is_created):
    """More limits and buckets than fit into one transaction."""
    resources = [f"r-{number:03}" for number in range(MANY)]
    if is_created:
        await create(ports, "user")
    raw.put(*(config("user", resource) for resource in resources))
    raw.put(*(bucket("user", resource) for resource in resources), registered(resources, others=1))
    return resources


@pytest.mark.parametrize("is_created", [True, False])
async def test_a_large_entity_is_deleted_whole(ports, raw, is_created):
    resources = await large(ports, raw, is_created=is_created)
    assert await delete(ports, "user")
    assert of_entity(raw, "user") == []
    event = (await ports.audit.events(NS, "user", None, 1))[0]
    assert event.details == {"limits_of": resources, "buckets_of": resources}
    registry = raw.get(keys.entity_config_resources(NS))
    assert {resource_count(registry, resource) for resource in resources} == {1}


@pytest.mark.fast("True-0", "True-2")
@pytest.mark.parametrize(
    ("is_created", "done"),
    [
        *((True, 0), (False, 1), (True, 2), (False, 3)),
        *(pytest.param(done % 2 == 1, done, marks=pytest.mark.slow) for done in range(4)),
    ],
)
async def test_a_deletion_that_was_interrupted_is_taken_up_by_the_next(
    ports, proxied, proxy, raw, is_created, done
):
    resources = await large(ports, raw, is_created=is_created)
    before = len(await ports.audit.events(NS, "user", None, 10))
    with (
        proxy.fault("deny", operation="TransactWriteItems", skip=done),
        pytest.raises(PermissionDenied),
    ):
        await delete(proxied, "user")
    assert len(await ports.audit.events(NS, "user", None, 10)) == before
    assert (await ports.entities.get(NS, "user") is not None) == is_created
    assert await delete(proxied, "user")
    assert of_entity(raw, "user") == []
    assert len(await ports.audit.events(NS, "user", None, 10)) == before + 1
    registry = raw.get(keys.entity_config_resources(NS))
    assert {resource_count(registry, resource) for resource in resources} == {1}
    assert not await delete(proxied, "user")


async def test_a_deletion_whose_answer_was_lost_has_been_made_once(proxied, proxy):
    await create(proxied, "user")
    with proxy.fault("lose_answer", operation="TransactWriteItems", times=1):
        assert await delete(proxied, "user")
    assert len(await proxied.audit.events(NS, "user", None, 10)) == 2


async def test_limits_that_are_set_during_a_deletion_are_counted(ports, raw):
    for _ in range(10):
        await create(ports, "user")
        await asyncio.gather(
            delete(ports, "user"),
            *(set_limits(ports.configs, ("user", f"r-{i}"), limits(1)) for i in range(5)),
        )
        registry = raw.get(keys.entity_config_resources(NS))
        for i in range(5):
            stored = await ports.configs.get(NS, "user", f"r-{i}")
            assert resource_count(registry, f"r-{i}") == (stored is not None)
        await delete(ports, "user")

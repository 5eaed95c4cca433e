"""A table as version 1.0.0rc1 made it, brought to the schema of this version."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from tests.integration.dynamodb.ports.world import Raw
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import (
    IncompatibleSchemaError,
    Limit,
    MigrationReport,
    PermissionDenied,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.migrating import Migrator
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.dynamodb.items import keys, system
from zae_limiter.dynamodb.items.attributes import s
from zae_limiter.dynamodb.version_record import SCHEMA_VERSION
from zae_limiter.models.entity import Namespace
from zae_limiter.testing import FakeClock

OLD_ITEMS = json.loads((Path(__file__).parent / "data" / "schema_1.json").read_text())
REGISTERED = 4  # resources in use: claude, gpt-4, gpt-5 of one namespace, api of the other
RPM, TPM = Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)
# Of one write alone.
MASKED = {"event_id", "rev", "op", "details", "ttl"}
PAGE = 5


@pytest.fixture
def stack(credentials, endpoint, boto):
    """A table with the items of the older version."""
    with empty_table(endpoint) as name:
        Raw(boto(endpoint), name).put(*OLD_ITEMS)
        yield name


@pytest.fixture
def raw(stack, endpoint, boto):
    return Raw(boto(endpoint), stack)


@pytest.fixture
def migrator(stack, endpoint):
    """Make runners that read a few items at a time, each with a client of its own."""
    clients = []

    def make(url=None):
        client = DynamoClient(stack, endpoint_url=url or endpoint, request_timeout=2)
        clients.append(client)
        return Migrator(client, Parallel(), PAGE)

    yield make
    for client in clients:
        asyncio.run(client.close())


def open_sync(stack, endpoint, namespace=None, **settings):
    return SyncRepository.open(namespace, url=store_url(stack, endpoint), **settings)


def builder(stack, endpoint):
    return SyncRepository.builder().url(store_url(stack, endpoint))


def by_key(items):
    """Items by key, without what is random; an audit event by its subject and action."""
    found = {}
    for item in items:
        sort_key = item["SK"]["S"]
        if sort_key.startswith("#AUDIT#"):
            sort_key = f"#AUDIT#{item['action']['S']} {item.get('resource')}"
        rest = {name: value for name, value in item.items() if name not in {*MASKED, "PK", "SK"}}
        found[item["PK"]["S"], sort_key] = rest
    return found


def made_by_this_version(endpoint, raw):
    """Fill a table with what the older version did, under the same namespace ids."""
    clock = FakeClock()
    ids = {name: item["namespace_id"]["S"] for item in OLD_ITEMS if (name := namespace_of(item))}
    ids["gone"] = next(
        item["SK"]["S"].removeprefix("#NSID#")
        for item in OLD_ITEMS
        if item.get("namespace") == s("gone")
    )
    for name, namespace_id in ids.items():
        created = "2026-01-01T00:00:00Z" if name == "default" else "2026-01-01T00:00:30Z"
        namespace = Namespace(namespace_id, name, "active", created)
        raw.put(system.encode_by_name(namespace), system.encode_by_id(namespace))
    with open_sync(raw.table, endpoint, clock=clock) as repository:
        fill(repository, clock)
        repository.delete_namespace("gone")
    with open_sync(raw.table, endpoint, "tenant", clock=clock) as repository:
        repository.set_resource_defaults("api", [RPM])
        repository.create_entity("user-1")
        take(repository, "user-1", "api", 1)


def namespace_of(item):
    sort_key = item["SK"]["S"]
    is_by_name = sort_key.startswith("#NAMESPACE#")
    return sort_key.removeprefix("#NAMESPACE#") if is_by_name else None


def fill(repository, clock):
    repository.set_system_defaults([RPM])
    repository.set_resource_defaults("gpt-4", [RPM, TPM], "ops")
    repository.create_entity("project", name="Project")
    repository.create_entity(
        "user-1", name="Ann", parent_id="project", cascade=True, metadata={"team": "red"}
    )
    repository.create_entity("user-2", parent_id="project")
    repository.set_limits("user-1", [RPM], "gpt-4")
    repository.set_limits("user-1", [RPM])
    repository.put_provisioner_state({"managed": ["gpt-4"]})
    for entity_id, resource in (
        ("user-1", "gpt-4"),
        ("user-2", "gpt-4"),
        ("stranger", "gpt-5"),
        ("user-2", "claude"),
    ):
        take(repository, entity_id, resource, 3)
    clock.advance(seconds=30)
    take(repository, "stranger", "gpt-5", 1)
    repository.reset_bucket("user-2", "claude")


def take(repository, entity_id, resource, rpm):
    with SyncRateLimiter(repository).acquire(entity_id, resource, {"rpm": rpm}):
        pass


# --- before


def test_a_table_of_the_older_version_is_refused_with_what_to_run(stack, endpoint, raw):
    before = raw.all()
    with pytest.raises(IncompatibleSchemaError) as caught:
        open_sync(stack, endpoint)
    assert (caught.value.found, caught.value.supported) == (1, SCHEMA_VERSION)
    assert f"zae-limiter upgrade --name {stack}" in str(caught.value)
    assert raw.all() == before


def test_a_dry_run_counts_and_writes_nothing(stack, endpoint, raw):
    report = builder(stack, endpoint).migrate(dry_run=True)
    assert report == MigrationReport(1, SCHEMA_VERSION, 40, 40 + REGISTERED, True)
    assert raw.all() == by_sort(OLD_ITEMS)


def by_sort(items):
    return sorted(items, key=lambda item: (item["PK"]["S"], item["SK"]["S"]))


# --- the whole


def test_a_migrated_table_is_what_this_version_makes(stack, endpoint, raw, boto):
    report = builder(stack, endpoint).migrate()
    # The version record is rewritten before the others.
    assert (report.from_version, report.to_version) == (1, SCHEMA_VERSION)
    assert report.changed == 39 + REGISTERED
    with empty_table(endpoint) as other:
        other_raw = Raw(boto(endpoint), other)
        made_by_this_version(endpoint, other_raw)
        migrated, made = by_key(raw.all()), by_key(other_raw.all())
    for key in list(made):
        if key[1].startswith("#USAGE#"):
            del made[key]
    # Both namespaces were registered by hand, without an event.
    registered = [key for key in migrated if key[1].startswith("#AUDIT#namespace_registered")]
    for key in registered:
        del migrated[key]
    assert migrated.keys() == made.keys()
    for key, item in migrated.items():
        indexed = {name: value for name, value in made[key].items() if name.startswith("GSI")}
        assert {name: item[name] for name in item if name.startswith("GSI")} == indexed, key
        if key[1] != "#STATE":
            # The stored events name no author; clients of this version always do.
            assert item | {"principal": None} == made[key] | {"principal": None}
    assert all(text.startswith(prefix) for prefix, text in index_keys(raw.all()))


def index_keys(items):
    for item in items:
        for name in ("GSI1PK", "GSI2PK", "GSI3PK", "GSI4PK"):
            if name in item:
                yield item["PK"]["S"].partition("/")[0] + "/", item[name]["S"]


def test_every_listing_finds_what_the_older_version_stored(stack, endpoint):
    builder(stack, endpoint).migrate()
    with open_sync(stack, endpoint, clock=FakeClock()) as repository:
        entities, _ = repository.list_entities()
        assert {entity.id for entity in entities} == {"project", "user-1", "user-2", "stranger"}
        assert repository.list_resources() == ["claude", "gpt-4", "gpt-5"]
        states, cursor = repository.list_buckets()
        assert (len({(state.entity_id, state.resource) for state in states}), cursor) == (5, None)
        assert {state.entity_id for state in repository.get_resource_buckets("gpt-4")} == {
            *("project", "user-1", "user-2")
        }
        assert len(repository.get_audit_events()) == 9
        assert repository.get_version_record()["schema_version"] == SCHEMA_VERSION


def test_buckets_keep_their_level_and_can_be_charged(stack, endpoint):
    builder(stack, endpoint).migrate()
    with open_sync(stack, endpoint, clock=FakeClock()) as repository:
        limiter = SyncRateLimiter(repository)
        assert limiter.available("user-1", "gpt-4")["rpm"] == 97
        take(repository, "user-1", "gpt-4", 7)
        assert limiter.available("user-1", "gpt-4")["rpm"] == 90


def test_a_migrated_namespace_is_purged_whole(stack, endpoint, raw):
    builder(stack, endpoint).migrate()
    with open_sync(stack, endpoint) as repository:
        namespace_id = repository.get_namespace("tenant").namespace_id
        assert raw.of(namespace_id)
        repository.delete_namespace("tenant")
        repository.purge_namespace(namespace_id)
    assert raw.of(namespace_id) == []


def test_a_second_run_has_nothing_to_do(stack, endpoint, raw, proxy):
    builder(stack, endpoint).migrate()
    before = raw.all()
    with proxy.measure() as seen:
        report = builder(stack, proxy.url).migrate()
    assert report == MigrationReport(SCHEMA_VERSION, SCHEMA_VERSION, 0, 0, False)
    assert (seen.wcu, raw.all()) == (0, before)


async def test_it_also_runs_in_tasks(stack, endpoint):
    steps = []
    migration = Repository.builder().url(store_url(stack, endpoint))
    report = await migration.migrate(on_progress=steps.append)
    assert report.to_version == SCHEMA_VERSION
    assert [step.read for step in steps] == [report.read]


def test_an_embedded_store_is_migrated_when_it_is_opened():
    with pytest.raises(ValidationError, match="when it is opened"):
        SyncRepository.builder().url("memory://").migrate()


# --- interrupted


class Killed(Exception):
    pass


async def test_a_run_that_was_killed_is_resumed(stack, migrator, raw):
    seen = []

    def die(progress):
        seen.append(progress)
        if len(seen) == 3:
            raise Killed

    with pytest.raises(Killed):
        await migrator().run(on_progress=die)
    left = await migrator().run(dry_run=True)
    report = await migrator().run(on_progress=seen.append)
    assert report.from_version == 1
    # What the runs have written themselves may be read, too: place, resources in use.
    assert left.read <= report.read <= left.read + 1 + REGISTERED
    assert left.read <= 42 - 3 * PAGE
    assert [step.read for step in seen[:3]] == [PAGE, 2 * PAGE, 3 * PAGE]
    assert all(text.startswith(prefix) for prefix, text in index_keys(raw.all()))
    assert (await migrator().run()).read == 0
    assert raw.get(keys.record("_", "migration")) is None


@pytest.mark.parametrize("skip", [1, 4, 11, 17])
async def test_one_that_failed_between_two_writes_is_resumed(migrator, proxy, raw, skip):
    with proxy.fault("deny", skip=skip), pytest.raises(PermissionDenied):
        await migrator(proxy.url).run()
    await migrator().run()
    fresh = raw.all()
    assert all(text.startswith(prefix) for prefix, text in index_keys(fresh))
    resources = {key["PK"]["S"]: key for key in fresh if key["SK"]["S"] == "#RESOURCES_IN_USE"}
    assert sum(name.startswith("r_") for item in resources.values() for name in item) == REGISTERED


async def test_clients_of_this_version_are_warned_meanwhile(stack, endpoint, migrator, caplog):
    def die(progress):
        raise Killed

    with pytest.raises(Killed):
        await migrator().run(on_progress=die)
    with caplog.at_level(logging.WARNING, logger="zae_limiter"):
        async with Repository.open(url=store_url(stack, endpoint)) as repository:
            record = await repository.get_version_record()
    assert (record["schema_version"], record["migrating_from"]) == (SCHEMA_VERSION, 1)
    assert "resume it: zae-limiter upgrade" in caplog.text


async def test_a_client_of_the_older_version_is_refused_from_the_beginning(migrator, raw):
    """It compares the number of the record with its own, which is 1."""
    records = []
    await migrator().run(on_progress=lambda progress: records.append(version_record(raw)))
    assert {record["schema_version"] for record in records} == {SCHEMA_VERSION}


def version_record(raw):
    return json.loads(raw.get(keys.record("_", "version"))["document"]["S"])


# --- several at once


async def test_several_runners_at_once_end_with_the_same(migrator, raw, stack, endpoint):
    reports = await asyncio.gather(*(migrator().run() for _ in range(4)))
    assert {report.from_version for report in reports} == {1}
    assert all(text.startswith(prefix) for prefix, text in index_keys(raw.all()))
    assert "migrating_from" not in version_record(raw)
    async with Repository.open(url=store_url(stack, endpoint)) as repository:
        assert await repository.list_resources() == ["claude", "gpt-4", "gpt-5"]


async def test_items_that_are_deleted_meanwhile_stay_deleted(migrator, raw, proxy):
    """Between the read of a page and its writes."""
    victim = next(item for item in OLD_ITEMS if "/BUCKET#stranger#" in item["PK"]["S"])
    key = {"PK": victim["PK"], "SK": victim["SK"]}

    def delete(exchange):
        if exchange.operation == "UpdateItem" and exchange.body["Key"] == key:
            raw.boto.delete_item(TableName=raw.table, Key=key)
        return False

    with proxy.fault("deny", when=delete):
        await migrator(proxy.url).run()
    assert victim["PK"]["S"] not in {item["PK"]["S"] for item in raw.all()}


async def test_a_table_that_does_not_answer_ends_the_run(migrator, proxy):
    runner = migrator(proxy.url)
    with proxy.refusing(), pytest.raises(RateLimiterUnavailable):
        await runner.run()

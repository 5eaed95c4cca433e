"""Migrations are run, resumed and repeated, by a migration that only these tests have."""

import asyncio
import json
import logging

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
from zae_limiter.dynamodb.migrations import Migration
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update import ItemUpdate
from zae_limiter.items.version_record import SCHEMA_VERSION
from zae_limiter.runtime.parallel import Parallel
from zae_limiter.testing import FakeClock

OLDER = SCHEMA_VERSION - 1
PAGE = 5
RENAMED = {"label": "name", "usual": "limit_names"}  # attributes of the older schema, and today's
VERSION_KEY = keys.record("_", "version")


def rewrite(item):
    """Give the attributes of an item their present names, in an update for each."""
    updates = []
    for old, new in RENAMED.items():
        if old in item:
            update = ItemUpdate(Key.of(item))
            update.equal(old, item[old])
            update.set(new, item[old])
            update.remove(old)
            updates.append(update)
    return updates


def aged(item):
    """Return an item of today in the form of the older schema."""
    older = {new: old for old, new in RENAMED.items()}
    return {older.get(name, name): value for name, value in item.items()}


MIGRATION = Migration(SCHEMA_VERSION, "attributes have other names", rewrite)


@pytest.fixture
def raw(credentials, endpoint, boto):
    """A table as this version makes it."""
    with empty_table(endpoint) as name:
        with open_sync(name, endpoint, clock=FakeClock()) as repository:
            fill(repository)
        yield Raw(boto(endpoint), name)


@pytest.fixture
def made(raw):
    """The items as this version makes them; the table has them in the form of the older schema."""
    items = raw.all()
    raw.put(*map(aged, items))
    put_version_record(raw, schema_version=OLDER)
    return items


@pytest.fixture
def stack(raw, made):
    return raw.table


@pytest.fixture
def migrator(stack, endpoint):
    """Make runners that read a few items at a time, each with a client of its own."""
    clients = []

    def make(url=None):
        client = DynamoClient(stack, endpoint_url=url or endpoint, request_timeout=2)
        clients.append(client)
        return Migrator(client, Parallel(), [MIGRATION], PAGE)

    yield make
    for client in clients:
        asyncio.run(client.close())


def open_sync(stack, endpoint, namespace=None, **settings):
    return SyncRepository.open(namespace, url=store_url(stack, endpoint), **settings)


def builder(stack, endpoint):
    return SyncRepository.builder().url(store_url(stack, endpoint))


def fill(repository):
    rpm, tpm = Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)
    repository.set_system_defaults([rpm])
    repository.set_resource_defaults("gpt-4", [rpm, tpm])
    for number in range(6):
        repository.create_entity(f"user-{number}", name=f"User {number}")
        repository.set_limits(f"user-{number}", [rpm, tpm], "gpt-4")
    for entity_id in ("user-1", "stranger"):
        with SyncRateLimiter(repository).acquire(entity_id, "gpt-4", {"rpm": 3}):
            pass


def version_record(raw):
    return json.loads(raw.get(VERSION_KEY)["document"]["S"])


def put_version_record(raw, **changes):
    item = raw.get(VERSION_KEY)
    document = {**version_record(raw), **changes}
    raw.put({**item, "document": {"S": json.dumps(document)}})


def without_record(items):
    return [item for item in items if Key.of(item) != VERSION_KEY]


def changes_of(items):
    """Return the number of updates that items in the form of the older schema need."""
    return sum(len(rewrite(aged(item))) for item in items)


# --- before


def test_a_table_of_the_older_version_is_refused_with_what_to_run(stack, endpoint, raw):
    before = raw.all()
    with pytest.raises(IncompatibleSchemaError) as caught:
        open_sync(stack, endpoint)
    assert (caught.value.found, caught.value.supported) == (OLDER, SCHEMA_VERSION)
    assert f"zae-limiter upgrade --name {stack}" in str(caught.value)
    assert raw.all() == before


async def test_a_dry_run_counts_and_writes_nothing(migrator, raw, made):
    before = raw.all()
    report = await migrator().run(dry_run=True)
    expected = MigrationReport(OLDER, SCHEMA_VERSION, len(made), changes_of(made), True)
    assert report == expected
    assert report.changed > 0
    assert raw.all() == before


# --- the whole


async def test_a_migrated_table_is_what_this_version_makes(migrator, raw, made):
    report = await migrator().run()
    assert (report.from_version, report.to_version) == (OLDER, SCHEMA_VERSION)
    assert report.changed == changes_of(made)
    assert without_record(raw.all()) == without_record(made)
    assert version_record(raw)["schema_version"] == SCHEMA_VERSION


async def test_clients_open_a_migrated_table(migrator, stack, endpoint):
    await migrator().run()
    async with Repository.open(url=store_url(stack, endpoint), clock=FakeClock()) as repository:
        assert (await repository.get_entity("user-1")).name == "User 1"
        assert [limit.name for limit in await repository.get_limits("user-1", "gpt-4")] == [
            *("rpm", "tpm")
        ]


async def test_a_second_run_has_nothing_to_do(migrator, raw, proxy):
    await migrator().run()
    before = raw.all()
    with proxy.measure() as seen:
        report = await migrator(proxy.url).run()
    assert report == MigrationReport(SCHEMA_VERSION, SCHEMA_VERSION, 0, 0, False)
    assert (seen.wcu, raw.all()) == (0, before)


def test_a_table_of_this_version_needs_no_migration(raw, endpoint):
    before = raw.all()
    report = builder(raw.table, endpoint).migrate()
    assert report == MigrationReport(SCHEMA_VERSION, SCHEMA_VERSION, 0, 0, False)
    assert raw.all() == before


async def test_builders_of_tasks_migrate_too(raw, endpoint):
    report = await Repository.builder().url(store_url(raw.table, endpoint)).migrate()
    assert report == MigrationReport(SCHEMA_VERSION, SCHEMA_VERSION, 0, 0, False)


def test_a_newer_table_is_not_migrated(raw, endpoint):
    put_version_record(raw, schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(IncompatibleSchemaError, match="update zae-limiter"):
        builder(raw.table, endpoint).migrate()


def test_an_embedded_store_is_migrated_when_it_is_opened():
    with pytest.raises(ValidationError, match="when it is opened"):
        SyncRepository.builder().url("memory://").migrate()


# --- interrupted


class Killed(Exception):
    pass


async def test_a_run_that_was_killed_is_resumed(migrator, raw, made):
    seen = []

    def die(progress):
        seen.append(progress)
        if len(seen) == 3:
            raise Killed

    with pytest.raises(Killed):
        await migrator().run(on_progress=die)
    left = await migrator().run(dry_run=True)
    report = await migrator().run(on_progress=seen.append)
    assert report.from_version == OLDER
    # The record of the migration's place is an item that the resumed run may read.
    assert left.read <= report.read <= left.read + 1
    assert left.read <= len(made) + 1 - 3 * PAGE
    assert [step.read for step in seen[:3]] == [PAGE, 2 * PAGE, 3 * PAGE]
    assert without_record(raw.all()) == without_record(made)
    assert (await migrator().run()).read == 0
    assert raw.get(keys.record("_", "migration")) is None


@pytest.mark.parametrize("skip", [1, 4, 11, 17])
async def test_one_that_failed_between_two_writes_is_resumed(migrator, proxy, raw, made, skip):
    with proxy.fault("deny", skip=skip), pytest.raises(PermissionDenied):
        await migrator(proxy.url).run()
    await migrator().run()
    assert without_record(raw.all()) == without_record(made)


async def test_clients_of_this_version_are_warned_meanwhile(stack, endpoint, migrator, caplog):
    def die(progress):
        raise Killed

    with pytest.raises(Killed):
        await migrator().run(on_progress=die)
    with caplog.at_level(logging.WARNING, logger="zae_limiter"):
        async with Repository.open(url=store_url(stack, endpoint)) as repository:
            record = await repository.get_version_record()
    assert (record["schema_version"], record["migrating_from"]) == (SCHEMA_VERSION, OLDER)
    assert "resume it: zae-limiter upgrade" in caplog.text


async def test_a_client_of_the_older_version_is_refused_from_the_beginning(migrator, raw):
    """It compares the number of the record with its own."""
    records = []
    await migrator().run(on_progress=lambda progress: records.append(version_record(raw)))
    assert {record["schema_version"] for record in records} == {SCHEMA_VERSION}


# --- several at once


async def test_several_runners_at_once_end_with_the_same(migrator, raw, made):
    reports = await asyncio.gather(*(migrator().run() for _ in range(4)))
    assert {report.from_version for report in reports} == {OLDER}
    assert without_record(raw.all()) == without_record(made)
    assert "migrating_from" not in version_record(raw)


async def test_items_that_are_deleted_meanwhile_stay_deleted(migrator, raw, made, proxy):
    """Between the read of a page and its writes."""
    victim = next(Key.of(item) for item in made if item.get("name") == {"S": "User 2"})

    def delete(exchange):
        if exchange.operation == "UpdateItem" and exchange.body["Key"] == victim.attributes:
            raw.boto.delete_item(TableName=raw.table, Key=victim.attributes)
        return False

    with proxy.fault("deny", when=delete):
        await migrator(proxy.url).run()
    assert raw.get(victim) is None


async def test_a_table_that_does_not_answer_ends_the_run(migrator, proxy):
    runner = migrator(proxy.url)
    with proxy.refusing(), pytest.raises(RateLimiterUnavailable):
        await runner.run()

"""Tables of another program or another version: recognised, and left exactly as they are."""

import asyncio
import pickle
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from tests.support.dynamodb import other_forms as forms
from tests.support.dynamodb.tables import temporary_table
from tests.support.dynamodb.waiting import until
from zae_limiter import (
    ForeignTableError,
    IncompatibleSchemaError,
    Repository,
    SyncRepository,
)
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.dynamodb.foreign import is_ours
from zae_limiter.items.version_record import SCHEMA_VERSION

# The content of a table, and what the error says about it.
FOREIGN = {
    "a bucket of the project reference": (
        [forms.bucket("user-1", "gpt-4")],
        "no version record, and its item 'a7x3kq/BUCKET#user-1#gpt-4#0 #STATE' has the attributes",
        "composite",
    ),
    "a namespace of the project reference": (
        forms.namespaces()[:1],
        "no version record",
        "composite",
    ),
    "limits of the project reference": (
        [forms.config("RESOURCE#gpt-4", **forms.limits(rpm=(10, 10, 60)))],
        "l_rpm_cp, l_rpm_ra",
        "composite",
    ),
    "a flat version record": (
        [forms.version()],
        "'_/SYSTEM# #VERSION' has the attributes lambda_version, schema_version, and no 'document'",
        "composite",
    ),
    "a version record that is not JSON": (
        [forms.item("_/SYSTEM#", "#VERSION", document="{")],
        "has a 'document' that cannot be read",
        "composite",
    ),
    "a version record of a list": (
        [forms.item("_/SYSTEM#", "#VERSION", document="[1]")],
        "has a 'document' that cannot be read",
        "composite",
    ),
    "a version record of a number": (
        [forms.item("_/SYSTEM#", "#VERSION", document=1)],
        "has a 'document' that cannot be read",
        "composite",
    ),
    "a version record without a schema": (
        [forms.item("_/SYSTEM#", "#VERSION", document='{"version": "0.8.0"}')],
        "has a 'document' whose 'schema_version' is no whole number: None",
        "composite",
    ),
    "a version record with a schema of another kind": (
        [forms.item("_/SYSTEM#", "#VERSION", document='{"schema_version": "0.8.0"}')],
        "has a 'document' whose 'schema_version' is no whole number: '0.8.0'",
        "composite",
    ),
    "a version record under a namespace": (
        [forms.version("a7x3kq/SYSTEM#")],
        "no version record",
        "composite",
    ),
    "the older form": (
        [forms.old_entity("key-1"), forms.item("SYSTEM#", "#VERSION", version="0.1")],
        "no version record",
        "per-limit",
    ),
    "another program": (
        [forms.item("user/17", "profile", GSI4PK="user/ALL#x", email="a@b")],
        "its item 'user/17 profile' has the attributes GSI4PK, email",
        None,
    ),
    "bare keys": ([forms.item("x", "y")], "has no attributes", None),
}


@pytest.fixture(params=FOREIGN)
def foreign(request, unique_name):
    """A table, and what is to be said about it."""
    items, found, form = FOREIGN[request.param]
    with forms.table_of(unique_name, items):
        before = forms.content(unique_name)
        yield unique_name, found, form
        assert forms.content(unique_name) == before


def check(error, foreign):
    name, found, form = foreign
    assert (error.table, error.form) == (name, form)
    message = str(error)
    assert message.startswith(f"table {name!r} is not one of this version of zae-limiter: ")
    assert found in message
    assert "; nothing was changed; choose another stack" in message
    export = f"zae-limiter limits export --from-table {name} --form {form}"
    assert (export in message) is (form is not None)
    assert "delete" not in message
    assert "damaged" not in message


@pytest.mark.each_value_once
@pytest.mark.parametrize("provision", ["stack", "table", "never"])
async def test_a_foreign_table_is_not_opened(foreign, endpoint, provision):
    with pytest.raises(ForeignTableError) as caught:
        await Repository.open(
            stack=foreign[0], endpoint_url=endpoint, provision=provision, namespace="tenant"
        )
    check(caught.value, foreign)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


async def test_nor_by_the_builder(foreign, endpoint):
    builder = Repository.builder().stack(foreign[0]).endpoint_url(endpoint)
    with pytest.raises(ForeignTableError) as caught:
        await builder.register_missing_namespace().usage_retention_days(3).build()
    check(caught.value, foreign)


def test_nor_by_threads(foreign, endpoint):
    with pytest.raises(ForeignTableError) as caught:
        SyncRepository.open(stack=foreign[0], endpoint_url=endpoint)
    check(caught.value, foreign)


@pytest.mark.each_value_once
@pytest.mark.parametrize("dry_run", [True, False])
async def test_nor_is_it_migrated(foreign, endpoint, dry_run):
    builder = Repository.builder().stack(foreign[0]).endpoint_url(endpoint)
    with pytest.raises(ForeignTableError) as caught:
        await builder.migrate(dry_run=dry_run)
    check(caught.value, foreign)


async def test_nor_is_it_taken_for_the_table_that_was_to_be_made(foreign, endpoint):
    """Its TTL stays off."""
    with pytest.warns(DeprecationWarning, match="constructing"):
        repository = Repository(foreign[0], endpoint_url=endpoint)
    for make in (repository.create_table, repository.create_stack, repository.delete_stack):
        with pytest.raises(ForeignTableError) as caught:
            await make()
        check(caught.value, foreign)
    with pytest.raises(ForeignTableError) as caught:
        await repository.get_status()
    check(caught.value, foreign)


def test_other_keys_are_named(table, endpoint):
    with pytest.raises(ForeignTableError, match="its keys are not the texts PK and SK") as caught:
        SyncRepository.open(stack=table, endpoint_url=endpoint, provision="table")
    assert caught.value.form is None
    assert "nothing was changed; choose another stack" in str(caught.value)


async def test_a_newer_schema_is_no_foreign_table(endpoint, unique_name):
    record = forms.item("_/SYSTEM#", "#VERSION", document='{"schema_version": 99}')
    with forms.table_of(unique_name, [record]):
        before = forms.content(unique_name)
        builder = Repository.builder().stack(unique_name).endpoint_url(endpoint)
        for use in (builder.build, builder.migrate, lambda: builder.migrate(dry_run=True)):
            with pytest.raises(IncompatibleSchemaError, match=r"schema 99, .*nothing was changed"):
                await use()
        assert forms.content(unique_name) == before


# --- tables that are fine


def test_an_empty_table_is_opened(endpoint):
    with (
        temporary_table() as name,
        SyncRepository.open(stack=name, endpoint_url=endpoint) as repository,
    ):
        assert repository.get_version_record()["schema_version"] == SCHEMA_VERSION


def test_a_table_of_ours_that_has_lost_its_record_is_opened(endpoint):
    with temporary_table() as name:
        with SyncRepository.open(stack=name, endpoint_url=endpoint) as repository:
            repository.create_entity("key-1")
        with closing(DynamoClient(name, endpoint_url=endpoint)) as client:
            key = {"PK": {"S": "_/SYSTEM#"}, "SK": {"S": "#VERSION"}}
            client.call("DeleteItem", {"Key": key})
        with SyncRepository.open(stack=name, endpoint_url=endpoint) as repository:
            assert repository.get_entity("key-1") is not None
            assert repository.get_version_record()["schema_version"] == SCHEMA_VERSION


def test_every_item_that_we_write_is_recognised(world_with_everything):
    items = forms.content(world_with_everything)["items"]
    kinds = {each["SK"]["S"].split("#")[1] for each in items}
    assert kinds >= {
        "STATE",
        "META",
        "CONFIG",
        "RESOURCES",
        "AUDIT",
        "NAMESPACE",
        "NSID",
        "VERSION",
    }
    assert [each for each in items if not is_ours(each)] == []


@pytest.fixture
def world_with_everything(endpoint):
    from zae_limiter import Limit, SyncRateLimiter
    from zae_limiter_ops.manifest import LimitsManifest

    manifest = LimitsManifest.from_yaml("system: {limits: {rpm: 60}}\nentities: {a: {parent: b}}")
    with temporary_table() as name:
        with SyncRepository.open(stack=name, endpoint_url=endpoint) as repository:
            repository.create_entity("project")
            repository.create_entity("key", parent_id="project", cascade=True)
            repository.set_resource_defaults("api", [Limit.per_minute("rpm", 10)])
            repository.set_limits("key", [Limit.per_minute("rpm", 5)], "api")
            repository.provisioner().apply(manifest)
            with SyncRateLimiter(repository).acquire("key", "api", {"rpm": 1}):
                pass
            _leave_half_purged(repository, "tenant")
        yield name


def _leave_half_purged(repository, namespace):
    """Begin a purge that another process has to end: the mark stands in an item of its own."""
    namespace_id = repository.register_namespace(namespace)
    repository.delete_namespace(namespace)
    repository._context.engine.namespaces.begin_purge(namespace_id)  # noqa: SLF001


def test_threads_may_open_an_empty_table_at_once(endpoint):
    ids, errors, ready = [], [], threading.Barrier(8)

    def use(name):
        try:
            ready.wait()
            with SyncRepository.open(stack=name, endpoint_url=endpoint) as repository:
                ids.append(repository.namespace_id)
        except Exception as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    with temporary_table() as name:
        threads = [threading.Thread(target=use, args=(name,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert len(set(ids)) == 1


async def test_a_record_that_another_client_has_just_written_counts(proxy, endpoint):
    """One client finds no record; before it looks for items, another has opened the table."""
    with temporary_table() as name:
        with proxy.fault("throttle", operation="Scan") as fault:
            late = asyncio.create_task(Repository.open(stack=name, endpoint_url=proxy.url))
            await until(lambda: fault.used)
            builder = Repository.builder().stack(name).endpoint_url(endpoint)
            first = await builder.usage_retention_days(3).build()
        second = await late
        async with first, second:
            assert first.namespace_id == second.namespace_id
            assert (await second.get_version_record())["usage_retention_days"] == 3


# --- permissions


def test_without_scan_an_empty_table_is_opened(proxy):
    with temporary_table() as name, proxy.fault("deny", operation="Scan") as fault:
        SyncRepository.open(stack=name, endpoint_url=proxy.url).close()
    assert fault.used


def test_without_scan_a_table_in_use_is_still_recognised(proxy, unique_name):
    items = [*forms.namespaces(), forms.bucket("user-1", "gpt-4")]
    with (
        forms.table_of(unique_name, items),
        proxy.fault("deny", operation="Scan"),
        pytest.raises(ForeignTableError, match="_/SYSTEM# #NAMESPACE#default"),
    ):
        SyncRepository.open(stack=unique_name, endpoint_url=proxy.url)


# --- cost


def test_only_a_table_without_a_record_costs_one_more_read(proxy):
    with temporary_table() as name:
        with proxy.measure() as first:
            SyncRepository.open(stack=name, endpoint_url=proxy.url).close()
        with proxy.measure() as second:
            SyncRepository.open(stack=name, endpoint_url=proxy.url).close()
    assert first.operations["Scan"] == 1
    assert (second.operations, second.rcu, second.wcu) == ({"GetItem": 2}, 2, 0)


def test_a_table_of_ours_without_a_record_costs_one_more_read_each_time(proxy):
    """A client that must not provision anything writes no record."""
    with temporary_table() as name:
        opening = {"stack": name, "endpoint_url": proxy.url, "provision": "never"}
        SyncRepository.open(**opening).close()
        with proxy.measure() as seen:
            SyncRepository.open(**opening).close()
    assert (seen.operations, seen.rcu, seen.wcu) == ({"GetItem": 2, "Scan": 1}, 3, 0)


def test_processes_may_open_an_empty_table_at_once(endpoint):
    program = (
        "import sys; from zae_limiter import SyncRepository\n"
        "with SyncRepository.open(stack=sys.argv[1], endpoint_url=sys.argv[2]) as repository:\n"
        "    print(repository.namespace_id, repository.get_version_record()['schema_version'])\n"
    )
    with temporary_table() as name:
        command = [sys.executable, "-c", program, name, endpoint]
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        said = [process.communicate(timeout=60) for process in processes]
    assert [errors for _, errors in said if errors] == []
    ((namespace_id, schema),) = {tuple(out.split()) for out, _ in said}
    assert namespace_id
    assert schema == str(SCHEMA_VERSION)


def test_a_refusal_costs_two_reads(proxy, unique_name):
    with (
        forms.table_of(unique_name, [forms.bucket("user-1", "gpt-4")]),
        proxy.measure() as seen,
        pytest.raises(ForeignTableError),
    ):
        SyncRepository.open(stack=unique_name, endpoint_url=proxy.url)
    assert (seen.operations, seen.rcu, seen.wcu) == ({"GetItem": 1, "Scan": 1}, 2, 0)

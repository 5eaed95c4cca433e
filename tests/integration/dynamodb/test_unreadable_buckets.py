"""An item in our table that has another form than buckets have: what is said, and its reset."""

from contextlib import closing

import pytest

from tests.dashboard.conftest import Client
from tests.dashboard.test_pages import eventually
from tests.ops.cli.inprocess import CommandLine
from tests.support.dynamodb import other_forms as forms
from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import IncompatibleSchemaError, Limit, SyncRateLimiter, SyncRepository, schema
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter_dashboard.server import DashboardServer
from zae_limiter_dashboard.settings import DashboardSettings
from zae_limiter_ops.views.advice import GivenOptions


@pytest.fixture
def url(endpoint):
    """A store whose bucket of key-1 on gpt-4 is an item of another form."""
    with temporary_table() as stack:
        url = store_url(stack, endpoint)
        with SyncRepository.open(url=url) as repository:
            repository.set_system_defaults([Limit.per_minute("rpm", 10)])
            key = schema.pk_bucket(repository.namespace_id, "key-1", "gpt-4", 0), schema.sk_state()
        with closing(DynamoClient(stack, endpoint_url=endpoint)) as client:
            client.call("PutItem", {"Item": forms.item(*key, b_rpm_tk=5000, rf=17)})
        yield url


def test_the_error_names_the_bucket_and_the_command(url):
    with SyncRepository.open(url=url) as repository:
        with pytest.raises(IncompatibleSchemaError) as caught:
            repository.get_buckets("key-1", "gpt-4")
        with pytest.raises(IncompatibleSchemaError):
            SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpm": 1}).__enter__()
    text = str(caught.value)
    assert text.startswith("the store has an unknown form of bucket, '")
    assert "BUCKET#key-1#gpt-4#0', this version reads" in text
    assert "zae-limiter bucket reset ENTITY RESOURCE" in text


def test_a_reset_replaces_it_by_a_full_bucket(url):
    with SyncRepository.open(url=url) as repository:
        repository.reset_bucket("key-1", "gpt-4", principal="ops")
        [event] = repository.get_audit_events("key-1")
        assert (event.action, event.principal) == ("bucket_reset", "ops")
        assert event.details == {"replaced": "1 in a form that could not be read"}
        limiter = SyncRateLimiter(repository)
        with limiter.acquire("key-1", "gpt-4", {"rpm": 10}):
            pass
        assert limiter.available("key-1", "gpt-4") == {"rpm": 0}


def test_the_command_replaces_it_after_a_question(url, capsys):
    command = CommandLine(capsys, url)
    refused = command("bucket", "reset", "key-1", "gpt-4", "--url", url)
    assert refused.code == 2
    assert "unknown form of bucket" in refused.err
    done = command("bucket", "reset", "key-1", "gpt-4", "--yes", "--url", url)
    assert done.code == 0, done.err
    assert command("explain", "key-1", "gpt-4", "--url", url).code == 0
    assert "replaced=" in command("audit", "list", "--entity-id", "key-1", "--url", url).out


@pytest.fixture
def mixed(endpoint):
    """A store with a readable and an unreadable bucket of one entity, as the indexes list them."""
    with temporary_table() as stack:
        url = store_url(stack, endpoint)
        with SyncRepository.open(url=url) as repository:
            repository.set_system_defaults([Limit.per_minute("rpm", 10)])
            limiter = SyncRateLimiter(repository)
            for entity_id, resource in (("key-1", "gpt-4"), ("key-1", "gpt-5"), ("key-2", "gpt-4")):
                with limiter.acquire(entity_id, resource, {"rpm": 7}):
                    pass
            key = schema.pk_bucket(repository.namespace_id, "key-1", "gpt-4", 0), schema.sk_state()
        with closing(DynamoClient(stack, endpoint_url=endpoint)) as client:
            pk, sk = ({"S": each} for each in key)
            item = client.call("GetItem", {"Key": {"PK": pk, "SK": sk}})["Item"]
            indexed = {name: item[name] for name in item if name.startswith("GSI")}
            client.call("PutItem", {"Item": forms.item(*key, b_rpm_tk=5000, rf=17, **indexed)})
        yield url


def listed(command, url, *args):
    found = command("bucket", "list", *args, "--output", "json", "--url", url)
    assert found.code == 0, found.err
    return [(each["entity_id"], each["resource"]) for each in found.json["buckets"]]


@pytest.mark.parametrize("filters", [(), ("--near", "1")])
def test_a_listing_names_it_and_lists_the_others(mixed, capsys, caplog, filters):
    command = CommandLine(capsys, mixed)
    assert sorted(listed(command, mixed, *filters)) == [("key-1", "gpt-5"), ("key-2", "gpt-4")]
    assert "the bucket of 'key-1' on 'gpt-4' is not listed" in caplog.text
    assert "zae-limiter bucket reset ENTITY RESOURCE" in caplog.text
    assert listed(command, mixed, "-r", "gpt-4", *filters) == [("key-2", "gpt-4")]
    assert listed(command, mixed, "-e", "key-1", *filters) == [("key-1", "gpt-5")]


def test_a_reset_of_all_resources_replaces_it_and_fills_the_others(mixed, capsys):
    command = CommandLine(capsys, mixed)
    refused = command("bucket", "reset", "key-1", "--all-resources", "--url", mixed)
    assert refused.code == 2
    assert "This replaces the bucket of 'key-1' on 'gpt-4' by a full one" in refused.err
    done = command("bucket", "reset", "key-1", "--all-resources", "--yes", "--url", mixed)
    assert done.code == 0, done.err
    with SyncRepository.open(url=mixed) as repository:
        limiter = SyncRateLimiter(repository)
        assert limiter.available("key-1", "gpt-4") == {"rpm": 10}
        assert limiter.available("key-1", "gpt-5") == {"rpm": 10}
        events = repository.get_audit_events("key-1")
    assert [(each.action, each.resource) for each in events] == [
        ("bucket_reset", "gpt-5"),
        ("bucket_reset", "gpt-4"),
    ]


def test_the_page_names_it_and_shows_the_others(mixed):
    server = DashboardServer(
        lambda: SyncRepository.open(url=mixed), DashboardSettings(port=0), GivenOptions(), "default"
    )
    thread = server.start()
    client = Client(server.url)
    client.sign_in()
    command = "zae-limiter bucket reset key-1 gpt-4"
    for path, query in (("overview", {}), ("resource", {"name": "gpt-4"})):
        text = eventually(lambda: client.page(path, **query), lambda text: command in text)  # noqa: B023
        assert command in text, path
    assert "key-2" in text
    status, _, text = client.get("/n/default/entity?id=key-1")
    assert status == 503
    assert "This version cannot read what is stored" in text
    assert "the store has an unknown form of bucket" in text
    server.stop()
    thread.join(20)

"""An item in our table that has another form than buckets have: what is said, and its reset."""

from contextlib import closing

import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.support.dynamodb import other_forms as forms
from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import IncompatibleSchemaError, Limit, SyncRateLimiter, SyncRepository, schema
from zae_limiter._sync.engines.dynamodb.client import DynamoClient


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

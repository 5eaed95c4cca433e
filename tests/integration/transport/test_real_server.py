"""The client on a DynamoDB-compatible server."""

import pytest

from tests.integration.transport.trees import AsyncClient, SyncClient
from tests.support.dynamodb import DynamoServer, Proxy, shared_endpoint
from zae_limiter.clock import ServerClock
from zae_limiter.exceptions import InfrastructureNotFoundError
from zae_limiter.store_errors import ConditionFailed, NotSent
from zae_limiter.transport.errors import Refused, TransactionCanceled

SCHEMA = {
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
KEY = {"PK": {"S": "ключ ☃"}}
ADD = {
    "Key": KEY,
    "UpdateExpression": "ADD n :one",
    "ExpressionAttributeValues": {":one": {"N": "1"}},
    "ReturnValues": "ALL_NEW",
}
IF_NEGATIVE = {
    "Key": KEY,
    "UpdateExpression": "ADD n :one",
    "ConditionExpression": "n < :zero",
    "ExpressionAttributeValues": {":one": {"N": "1"}, ":zero": {"N": "0"}},
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}


@pytest.fixture
def client(open_client, unique_name):
    client = open_client(shared_endpoint(), unique_name, request_timeout=20)
    client.call("CreateTable", SCHEMA)
    yield client
    client.call("DeleteTable", {})


def test_items_are_written_and_read(client):
    assert client.call("UpdateItem", ADD)["Attributes"] == {**KEY, "n": {"N": "1"}}
    assert client.call("GetItem", {"Key": KEY})["Item"]["n"] == {"N": "1"}
    assert client.call("GetItem", {"Key": {"PK": {"S": "none"}}}) == {}


def test_conditions_and_transactions_bring_the_item(client):
    client.call("UpdateItem", ADD)
    item = {**KEY, "n": {"N": "1"}}
    with pytest.raises(ConditionFailed) as failed:
        client.call("UpdateItem", IF_NEGATIVE)
    assert failed.value.item == item
    update = {"Update": {**IF_NEGATIVE, "TableName": client.table}}
    with pytest.raises(TransactionCanceled) as cancelled:
        client.call("TransactWriteItems", {"TransactItems": [update]})
    (reason,) = cancelled.value.reasons
    assert (reason.code, reason.item) == ("ConditionalCheckFailed", item)


def test_errors_have_names(client, open_client):
    with pytest.raises(Refused) as refused:
        client.call("CreateTable", SCHEMA)
    assert refused.value.code == "ResourceInUseException"
    with pytest.raises(Refused) as refused:
        client.call("UpdateItem", {**ADD, "UpdateExpression": "nonsense"})
    assert refused.value.code == "ValidationException"
    with pytest.raises(InfrastructureNotFoundError, match="no-such-table-here"):
        open_client(shared_endpoint(), "no-such-table-here").call("GetItem", {"Key": KEY})


def test_two_hundred_at_once_are_all_counted(client):
    answers = client.call_many("UpdateItem", [ADD] * 200)
    counts = sorted(int(answer["Attributes"]["n"]["N"]) for answer in answers)
    assert counts == list(range(1, 201))


def test_a_large_item_comes_back_whole(client):
    item = {**KEY, "text": {"S": "☃" * 120_000}}
    client.call("PutItem", {"Item": item})
    assert client.call("GetItem", {"Key": KEY})["Item"] == item


def test_a_restarted_server_is_found_again(open_client, unique_name):
    with DynamoServer() as server:
        client = open_client(server.url, unique_name)
        client.call("CreateTable", SCHEMA)
        server.kill()
        with pytest.raises(NotSent):
            client.call("UpdateItem", ADD)
        server.restart()
        client.call("CreateTable", SCHEMA)
        assert client.call("UpdateItem", ADD)["Attributes"]["n"] == {"N": "1"}


@pytest.mark.parametrize("kind", [AsyncClient, SyncClient])
@pytest.mark.parametrize("off_s", [-3600, 3600])
def test_the_servers_clock_is_heard_through_a_proxy(kind, off_s, unique_name):
    with Proxy(shared_endpoint()) as proxy:
        proxy.link.date_offset_s = off_s
        clock, host = ServerClock(), ServerClock()
        client = kind(unique_name, endpoint_url=proxy.url, server_clock=clock)
        for _ in range(2):  # a first Date that is far off needs a second one that agrees
            client.call("ListTables", {})
        client.close()
    assert abs(clock() - host() - 1000 * off_s) < 1500

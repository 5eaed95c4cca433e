"""The evaluator that the policies are proved with: parts of requests, and what IAM says to them."""

import copy
import json

import pytest

from tests.support.dynamodb.recording import Recorded
from tests.support.permissions import open_to_others
from tests.support.policies import TABLE, Access, accesses, allows
from zae_limiter_ops.infra.statements import policy_documents

POLICIES = policy_documents()
OWN, FOREIGN, REGISTRY = "own-1/x", "other-1/x", "_/SYSTEM#"


def key(partition):
    return {"PK": {"S": partition}, "SK": {"S": "#"}}


def access(call, *partitions, resource=TABLE):
    return Access(call, resource, frozenset(partitions))


@pytest.mark.parametrize(
    ("operation", "body", "rights"),
    [
        (
            "TransactWriteItems",
            {
                "TransactItems": [
                    {"Put": {"Item": key("a/1")}},
                    {"Update": {"Key": key("b/1")}},
                    {"Delete": {"Key": key("c/1")}},
                    {"ConditionCheck": {"Key": key("d/1")}},
                ]
            },
            [
                access("PutItem", "a/1"),
                access("UpdateItem", "b/1"),
                access("DeleteItem", "c/1"),
                access("ConditionCheckItem", "d/1"),
            ],
        ),
        (
            "TransactGetItems",
            {"TransactItems": [{"Get": {"Key": key("a/1")}}, {"Get": {"Key": key("b/1")}}]},
            [access("GetItem", "a/1"), access("GetItem", "b/1")],
        ),
        (
            "BatchGetItem",
            {"RequestItems": {"t": {"Keys": [key("a/1"), key("b/1")]}}},
            [access("BatchGetItem", "a/1", "b/1")],
        ),
        (
            "BatchWriteItem",
            {
                "RequestItems": {
                    "t": [
                        {"PutRequest": {"Item": key("a/1")}},
                        {"DeleteRequest": {"Key": key("b/1")}},
                    ]
                }
            },
            [access("BatchWriteItem", "a/1", "b/1")],
        ),
        (
            "Query",
            {
                "IndexName": "GSI3",
                "KeyConditionExpression": "GSI3PK = :pk AND begins_with(GSI3SK, :sk)",
                "ExpressionAttributeValues": {":pk": {"S": "a/1"}, ":sk": {"S": "b/1"}},
            },
            [access("Query", "a/1", resource="GSI3")],
        ),
        ("Scan", {}, [access("Scan")]),
        ("Scan", {"IndexName": "GSI1"}, [access("Scan", resource="GSI1")]),
    ],
)
def test_a_request_is_authorised_by_its_parts(operation, body, rights):
    assert list(accesses(operation, body)) == rights


@pytest.mark.parametrize(
    ("right", "permitted"),
    [
        (access("UpdateItem", OWN), True),
        (access("UpdateItem", FOREIGN), False),
        (access("BatchGetItem", OWN, FOREIGN), False),
        (access("GetItem", REGISTRY), True),
        (access("BatchGetItem", OWN, REGISTRY), False),
        (access("UpdateItem", REGISTRY), False),
        (access("Query", OWN, resource="GSI2"), True),
        (access("Query", FOREIGN, resource="GSI2"), False),
        (access("GetItem", OWN, resource="GSI2"), False),
        (access("UpdateItem", "own-11/x"), False),
        (access("UpdateItem", "own-1"), False),
        (access("Scan"), False),
    ],
)
def test_a_tenant_is_judged_by_all_keys_of_a_request(right, permitted):
    assert allows(POLICIES["ns-full"], right, "own-1") is permitted


def test_a_condition_on_keys_does_not_hold_back_a_call_without_any():
    """As in IAM, where "for all values" is true of none: such calls must not be listed at all."""
    document = copy.deepcopy(POLICIES["ns-read"])
    document["Statement"][0]["Action"].append("dynamodb:Scan")
    assert allows(document, access("Scan"), "own-1")


def test_a_policy_without_its_condition_is_open_to_others():
    body = json.dumps({"Key": key(OWN)}).encode()
    request = Recorded("GetItem", body, "get_entity")
    assert open_to_others([request], POLICIES) == []
    documents = copy.deepcopy(POLICIES)
    for statement in documents["ns-read"]["Statement"]:
        statement.pop("Condition")
    (report,) = open_to_others([request], documents)
    assert report.endswith("is permitted by ns-read to a tenant of another namespace")

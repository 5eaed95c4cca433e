"""Each rule of DynamoDB that requests are checked against finds a planted violation."""

import json

import pytest

from tests.support.aws_rules.rules import analyse, violations, violations_of_encoded

KEY = {"PK": {"S": "ns/ENTITY#a"}, "SK": {"S": "#META"}}
ONE = {"N": "1"}
UPDATE = {
    "TableName": "table",
    "Key": KEY,
    "UpdateExpression": "SET #0=:0,#1=if_not_exists(#1,:0) ADD #2 :1 REMOVE #3",
    "ConditionExpression": "#0>=:1 AND (attribute_not_exists(PK) OR #1=:1)",
    "ExpressionAttributeNames": {"#0": "a", "#1": "b", "#2": "c", "#3": "GSI2PK"},
    "ExpressionAttributeValues": {":0": {"S": ""}, ":1": ONE},
    "ReturnValues": "ALL_NEW",
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}
PUT = {"TableName": "table", "Item": {**KEY, "value": ONE}}
QUERY = {
    "TableName": "table",
    "IndexName": "GSI4",
    "KeyConditionExpression": "GSI4PK = :pk AND SK BETWEEN :first AND :last",
    "ExpressionAttributeValues": {":pk": {"S": "a"}, ":first": {"S": "b"}, ":last": {"S": "c"}},
    "Limit": 10,
}


def encoded(body):
    """As the limiter encodes requests."""
    return json.dumps(body, separators=(",", ":")).encode()


def other(number):
    return {"PK": {"S": f"ns/{number}"}, "SK": {"S": "#META"}}


def without(body, name):
    return {key: value for key, value in body.items() if key != name}


def transaction(*actions, token="token"):
    return {"TransactItems": list(actions), "ClientRequestToken": token}


def batch_get(*keys):
    return {"RequestItems": {"table": {"Keys": list(keys)}}}


def batch_write(*items):
    return {"RequestItems": {"table": [{"PutRequest": {"Item": item}} for item in items]}}


def named(count):
    """Conditions with so many comparisons, which have one AND less."""
    return " AND ".join(["#0=:1"] * count)


def updating(expression, **names):
    return {
        **UPDATE,
        "UpdateExpression": expression,
        "ConditionExpression": "attribute_exists(PK)",
        "ExpressionAttributeNames": {f"#{short}": name for short, name in names.items()},
        "ExpressionAttributeValues": {":1": ONE},
    }


ACTION = without(without(UPDATE, "ReturnValues"), "TableName")
PERMITTED = [
    ("UpdateItem", UPDATE),
    ("PutItem", PUT),
    ("Query", QUERY),
    ("GetItem", {"TableName": "table", "Key": KEY, "ConsistentRead": True}),
    ("TransactWriteItems", transaction({"Update": ACTION}, {"Put": {"Item": other(1)}})),
    ("TransactWriteItems", transaction(*({"Put": {"Item": other(n)}} for n in range(100)))),
    ("BatchGetItem", batch_get(*(other(number) for number in range(100)))),
    ("BatchWriteItem", batch_write(*(other(number) for number in range(25)))),
    ("UpdateItem", {**UPDATE, "ConditionExpression": named(149) + " AND #1=:0"}),
    ("DescribeTable", {"TableName": "table"}),
]
BIG = {"S": "x" * (400 * 1024)}
PLANTED = [
    ("more than 4096", "UpdateItem", {**UPDATE, "ConditionExpression": "#0=:1" + " " * 4092}),
    ("301 operators", "UpdateItem", {**UPDATE, "ConditionExpression": named(151)}),
    ("operators", "UpdateItem", updating("SET #0=:1" + "+:1" * 301, **{"0": "a"})),
    ("not used", "UpdateItem", updating("SET #0=:1", **{"0": "a", "1": "b"})),
    ("not used", "Query", {**QUERY, "KeyConditionExpression": "GSI4PK = :pk"}),
    ("not defined", "UpdateItem", {**UPDATE, "ConditionExpression": "#0>=:9 AND #1=:1"}),
    ("not defined", "UpdateItem", without(UPDATE, "ExpressionAttributeNames")),
    ("there are none", "GetItem", {"Key": KEY, "ExpressionAttributeNames": {}}),
    ("no placeholder", "UpdateItem", updating("SET #a-b=:1", **{"a-b": "a"})),
    ("without a placeholder", "UpdateItem", updating("SET status=:1 REMOVE #0", **{"0": "a"})),
    ("without a placeholder", "Query", {**QUERY, "FilterExpression": "year = :last"}),
    ("overlap", "UpdateItem", updating("SET #0=:1 REMOVE #1", **{"0": "a", "1": "a"})),
    ("overlap", "UpdateItem", updating("SET #0=:1,#0.#1=:1", **{"0": "a", "1": "b"})),
    ("overlap", "UpdateItem", updating("SET #0[1]=:1 ADD #0 :1", **{"0": "a"})),
    ("part of the key", "UpdateItem", updating("SET #0=:1", **{"0": "SK"})),
    (
        "a clause occurs twice",
        "UpdateItem",
        updating("SET #0=:1 SET #1=:1", **{"0": "a", "1": "b"}),
    ),
    ("no part of an", "UpdateItem", {**UPDATE, "ConditionExpression": "#0>=:1 && #1=:0"}),
    ("is empty", "UpdateItem", {**UPDATE, "ConditionExpression": ""}),
    ("redundant", "UpdateItem", {**UPDATE, "ConditionExpression": "((#0=:1)) OR #1=:0"}),
    ("100 operands", "Query", {**QUERY, "FilterExpression": f"PK IN ({',:pk' * 101})"}),
    ("2049 bytes", "GetItem", {"Key": {**KEY, "PK": {"S": "x" * 2049}}}),
    ("1025 bytes", "GetItem", {"Key": {**KEY, "SK": {"S": "x" * 1025}}}),
    ("0 bytes", "GetItem", {"Key": {**KEY, "SK": {"S": ""}}}),
    ("no string", "GetItem", {"Key": {**KEY, "SK": ONE}}),
    ("the key has", "GetItem", {"Key": {**KEY, "other": {"S": "a"}}}),
    ("0 bytes", "PutItem", {"Item": {**KEY, "GSI2PK": {"S": ""}}}),
    ("1025 bytes", "PutItem", {"Item": {**KEY, "GSI3SK": {"S": "x" * 1025}}}),
    ("0 bytes", "UpdateItem", {**UPDATE, "UpdateExpression": "SET #3=:0,#1=:1,#2=:1"}),
    ("has no key", "PutItem", {"Item": {"value": ONE}}),
    ("more than 409600", "PutItem", {"Item": {**KEY, "value": BIG}}),
    ("may have", "UpdateItem", {**UPDATE, "ExpressionAttributeValues": {":0": BIG, ":1": BIG}}),
    ("types", "PutItem", {"Item": {**KEY, "value": {"S": "a", "N": "1"}}}),
    ("38 digits", "PutItem", {"Item": {**KEY, "value": {"N": "1" * 39}}}),
    ("no number", "PutItem", {"Item": {**KEY, "value": {"N": "NaN"}}}),
    ("a set is empty", "PutItem", {"Item": {**KEY, "value": {"SS": []}}}),
    ("no string", "PutItem", {"Item": {**KEY, "value": {"S": 5}}}),
    ("ReturnValues cannot", "PutItem", {**PUT, "ReturnValues": "ALL_NEW"}),
    ("neither NONE", "PutItem", {**PUT, "ReturnValuesOnConditionCheckFailure": "ALL_NEW"}),
    ("below 1", "Query", {**QUERY, "Limit": 0}),
    ("name of the table", "PutItem", {**PUT, "TableName": "t"}),
    ("0 actions", "TransactWriteItems", transaction()),
    (
        "101 actions",
        "TransactWriteItems",
        transaction(*({"Delete": {"Key": other(number)}} for number in range(101))),
    ),
    (
        "same item",
        "TransactWriteItems",
        transaction({"Delete": {"Key": KEY}}, {"Put": {"Item": KEY}}),
    ),
    ("37 characters", "TransactWriteItems", transaction({"Put": {"Item": KEY}}, token="x" * 37)),
    ("ReturnValues", "TransactWriteItems", transaction({"Update": UPDATE})),
    ("no condition", "TransactWriteItems", transaction({"ConditionCheck": {"Key": KEY}})),
    ("no expression", "TransactWriteItems", transaction({"Update": {"Key": KEY}})),
    (
        "more than 4194304",
        "TransactWriteItems",
        transaction(
            *({"Put": {"Item": {**other(n), "v": {"S": "x" * 400_000}}}} for n in range(11))
        ),
    ),
    ("0 keys", "BatchGetItem", batch_get()),
    ("101 keys", "BatchGetItem", batch_get(*(other(number) for number in range(101)))),
    ("same item", "BatchGetItem", batch_get(KEY, KEY)),
    ("26 writes", "BatchWriteItem", batch_write(*(other(number) for number in range(26)))),
    ("same item", "BatchWriteItem", batch_write(KEY, KEY)),
    ("no number", "BatchWriteItem", batch_write({**KEY, "value": {"N": ""}})),
    (
        "more than 2097152",
        "UpdateItem",
        {**UPDATE, "ExpressionAttributeValues": {":0": {"S": "x" * (2 * 1024 * 1024)}, ":1": ONE}},
    ),
]


@pytest.mark.parametrize(("operation", "body"), PERMITTED)
def test_what_dynamodb_permits_breaks_no_rule(operation, body):
    assert violations(operation, body) == []
    assert violations_of_encoded(operation, encoded(body)) == []


@pytest.mark.parametrize(("words", "operation", "body"), PLANTED)
def test_a_planted_violation_is_found(words, operation, body):
    found = violations(operation, body)
    assert any(words in each for each in found), found
    assert violations_of_encoded(operation, encoded(body)) == found
    if operation == "TransactWriteItems":
        return
    # the same inside a transaction
    kinds = {"UpdateItem": "Update", "PutItem": "Put"}
    if operation in kinds and "ReturnValues" not in words and "table" not in words:
        found = violations("TransactWriteItems", transaction({kinds[operation]: body}))
        assert any(words in each for each in found), found


@pytest.mark.parametrize(
    ("plain", "broken"),
    [
        ({"S": "text"}, {"S": "x" * 1025}),
        ({"S": "text"}, {"S": ""}),
        ({"S": "text"}, {"N": "1"}),
    ],
)
def test_a_value_that_breaks_a_rule_is_found_after_others_that_break_none(plain, broken):
    for value in ("a", "b"):
        body = {"TableName": value * 3, "Key": {**KEY, "SK": plain}}
        assert violations_of_encoded("GetItem", encoded(body)) == []
        assert violations_of_encoded("GetItem", encoded({**body, "Key": {**KEY, "SK": broken}}))


@pytest.mark.parametrize(
    ("expression", "operators"),
    [
        ("#0=:1", 1),
        ("#0=:1 AND #1<:1", 3),
        ("NOT attribute_exists(PK) OR #0<>:1", 4),
        ("#0 BETWEEN :1 AND :2 AND begins_with(SK,:3)", 3),
        ("size(#0)>=:1", 2),
    ],
)
def test_operators_of_a_condition_are_counted(expression, operators):
    assert analyse(expression).operators == operators


@pytest.mark.parametrize(
    ("expression", "operators", "written"),
    [
        ("SET #0=:1,#1=#2-if_not_exists(#3,:1) ADD #4 :1 REMOVE #5,#6", 2, "#0 #1 #4 #5 #6"),
        ("SET #0=:1+:2", 1, "#0"),
        ("REMOVE #0.#1[2]", 0, "#0.#1[2]"),
    ],
)
def test_operators_and_paths_of_an_update_are_counted(expression, operators, written):
    analysis = analyse(expression, is_update=True)
    assert analysis.operators == operators
    assert analysis.written == tuple(written.split())

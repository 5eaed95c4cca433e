"""The form of a request shows its expressions and types, and nothing else."""

from tests.support.aws_rules.forms import form_of
from tests.support.aws_rules.rules import violations

SECRET = "secret"


def key(number):
    return {"PK": {"S": f"{SECRET}/ENTITY#{number}"}, "SK": {"S": f"#{SECRET}"}}


def update(**more):
    return {
        "TableName": SECRET,
        "Key": key(0),
        "UpdateExpression": "SET #0=:0 ADD #1 :1",
        "ExpressionAttributeNames": {"#0": f"t_{SECRET}", "#1": "GSI2PK"},
        "ExpressionAttributeValues": {":0": {"S": SECRET}, ":1": {"N": "987654"}},
        **more,
    }


REQUESTS = {
    "UpdateItem": update(),
    "PutItem": {"Item": {**key(0), SECRET: {"M": {SECRET: {"L": [{"S": SECRET}]}}}}},
    "TransactWriteItems": {
        "TransactItems": [{"Update": update(Key=key(1))}, {"Put": {"Item": key(2)}}],
        "ClientRequestToken": SECRET,
    },
    "BatchGetItem": {"RequestItems": {SECRET: {"Keys": [key(1), key(2)]}}},
    "BatchWriteItem": {"RequestItems": {SECRET: [{"DeleteRequest": {"Key": key(1)}}]}},
    "Query": {
        "KeyConditionExpression": "PK = :pk",
        "ExpressionAttributeValues": {":pk": {"S": SECRET}},
        "ExclusiveStartKey": key(3),
    },
}


def test_nothing_of_a_user_is_in_a_form():
    for operation, body in REQUESTS.items():
        form = form_of(operation, body)
        assert SECRET not in form.text
        assert "987654" not in form.text


def test_a_form_is_a_request_that_keeps_the_rules():
    for operation, body in REQUESTS.items():
        form = form_of(operation, body)
        assert violations(operation, {"TableName": SECRET, **form.body}) == []


def test_requests_of_one_kind_have_one_form():
    values = {":0": {"S": "other"}, ":1": {"N": "-1"}}
    other = update(Key=key(7), ExpressionAttributeValues=values)
    assert form_of("UpdateItem", update()) == form_of("UpdateItem", other)
    assert form_of("UpdateItem", update()) != form_of("UpdateItem", update(ReturnValues="ALL_NEW"))

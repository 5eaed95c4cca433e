"""The in-memory model of a table answers as the local server does."""

import random

import pytest

from tests.support.aws_rules import watch
from tests.support.dynamodb.model import ModelTable, Refusal
from tests.support.dynamodb.shared import shared_endpoint
from tests.support.dynamodb.tables import empty_table
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.store_errors import ConditionFailed
from zae_limiter.transport.errors import Refused, TransactionCanceled

NUMBERS, TEXTS = ("a", "b", "c", "d"), ("o", "p")
ROUNDS, STEPS = 12, 60


@pytest.fixture
def server():
    with empty_table() as table:
        client = DynamoClient(table, endpoint_url=shared_endpoint(), request_timeout=10)
        yield client
        client.close()


class Random:
    """Random requests of the forms that the package renders, and some that are wrong."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def key(self):
        choice = self.chance.choice
        return {"PK": {"S": f"ns/{choice('xy')}"}, "SK": {"S": choice(("#1", "#2", "#3"))}}

    def number(self):
        return {"N": str(self.chance.choice((-(10**16), -3, -1, 0, 1, 2, 5, 10**17)))}

    def text(self):
        return {"S": self.chance.choice(("", "m", "mn", "z#1"))}

    def attribute(self):
        return self.chance.choice(NUMBERS + TEXTS)

    def item(self):
        item = self.key()
        for name in NUMBERS:
            if self.chance.random() < 0.6:
                item[name] = self.number()
        for name in TEXTS:
            if self.chance.random() < 0.6:
                item[name] = self.text()
        if self.chance.random() < 0.7:
            item |= {"GSI2PK": {"S": "ns/R#api"}, "GSI2SK": {"S": f"B#{self.chance.randrange(9)}"}}
        if self.chance.random() < 0.7:
            item["GSI4PK"] = {"S": "ns"}
        return item


class Rendering:
    """One expression with placeholders."""

    def __init__(self, source):
        self.source, self.chance = source, source.chance
        self.names, self.values = {}, {}

    def name(self, attribute):
        for placeholder, name in self.names.items():
            if name == attribute:
                return placeholder
        placeholder = f"#{len(self.names)}"
        self.names[placeholder] = attribute
        return placeholder

    def value(self, value):
        placeholder = f":{len(self.values)}"
        self.values[placeholder] = value
        return placeholder

    def value_for(self, attribute):
        source = self.source
        return self.value(source.text() if attribute in TEXTS else source.number())

    def condition(self, depth=2):
        parts = [self.part(depth) for _ in range(self.chance.choice((1, 1, 2, 3)))]
        return self.chance.choice((" AND ", " AND ", " OR ")).join(parts)

    def part(self, depth):
        kind = self.chance.randrange(9)
        attribute = self.source.attribute()
        if kind == 0 and depth:
            return f"({self.condition(depth - 1)})"
        if kind == 1:
            return f"attribute_exists({self.name(attribute)})"
        if kind == 2:
            return f"attribute_not_exists({self.name(attribute)})"
        if kind == 3:
            return self.chance.choice(("attribute_exists(PK)", "attribute_not_exists(PK)"))
        sign = self.chance.choice(("=", "<", "<=", ">", ">=", "=", "<>"))
        return f"{self.name(attribute)} {sign} {self.value_for(attribute)}"

    def update(self, *, wrong=0.03):
        names = list(NUMBERS + TEXTS)
        self.chance.shuffle(names)
        sets, adds, removes = [], [], []
        for name in names[: self.chance.randint(1, 5)]:
            how = self.chance.randrange(8)
            if how == 0:
                removes.append(self.name(name))
            elif name in NUMBERS and how <= 2:
                adds.append(f"{self.name(name)} {self.value(self.source.number())}")
            else:
                sets.append(f"{self.name(name)} = {self.operand(name, how)}")
        if self.chance.random() < wrong:
            sets.append(f"{self.name(names[0])} = {self.value_for(names[0])}")
        clauses = (("SET", sets), ("ADD", adds), ("REMOVE", removes))
        return " ".join(f"{word} {', '.join(parts)}" for word, parts in clauses if parts)

    def operand(self, name, how):
        if name in TEXTS:
            if how == 3:
                return f"if_not_exists({self.name(name)}, {self.value_for(name)})"
            return self.value_for(name)
        other = self.chance.choice(NUMBERS)
        if how == 3:
            return f"if_not_exists({self.name(other)}, {self.value_for(other)})"
        if how == 4:
            sign = self.chance.choice("+-")
            default = self.value({"N": "0"})
            return f"{self.name(name)} {sign} if_not_exists({self.name(other)}, {default})"
        if how == 5:
            return self.name(other)
        return self.value_for(name)

    def fields(self, **expressions):
        body = dict(expressions)
        if self.names:
            body["ExpressionAttributeNames"] = self.names
        if self.values:
            body["ExpressionAttributeValues"] = self.values
        if "ConditionExpression" in body and self.chance.random() < 0.8:
            body["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return body


def random_request(source):
    chance, rendering = source.chance, Rendering(source)
    conditions = {"ConditionExpression": rendering.condition()} if chance.random() < 0.7 else {}
    kind = chance.randrange(12)
    if kind <= 5:
        update = rendering.update()
        returned = {"ReturnValues": chance.choice(("ALL_NEW", "ALL_NEW", "UPDATED_OLD", "NONE"))}
        fields = rendering.fields(UpdateExpression=update, **conditions)
        return "UpdateItem", {"Key": source.key(), **fields, **returned}
    if kind == 6:
        return "PutItem", {"Item": source.item(), **rendering.fields(**conditions)}
    if kind == 7:
        return "DeleteItem", {"Key": source.key(), **rendering.fields(**conditions)}
    if kind == 8:
        return "GetItem", {"Key": source.key(), "ConsistentRead": True}
    if kind == 9:
        return "Query", random_query(source)
    return "TransactWriteItems", {"TransactItems": random_actions(source)}


def random_query(source):
    chance = source.chance
    body = {"ScanIndexForward": chance.random() < 0.7}
    if chance.random() < 0.5:
        body["Limit"] = chance.randint(1, 3)
    how = chance.randrange(3)
    if how == 0:
        condition, values = "PK = :pk", {":pk": {"S": "ns/x"}}
        body["ConsistentRead"] = True
        if chance.random() < 0.5:
            condition += " AND SK BETWEEN :first AND :last"
            values |= {":first": {"S": "#1"}, ":last": {"S": "#2"}}
    elif how == 1:
        body["IndexName"] = "GSI2"
        condition, values = "GSI2PK = :pk", {":pk": {"S": "ns/R#api"}}
        if chance.random() < 0.5:
            condition += " AND begins_with(GSI2SK, :first)"
            values[":first"] = {"S": f"B#{chance.randrange(9)}"}
        elif chance.random() < 0.5:
            condition += " AND GSI2SK > :first"
            values[":first"] = {"S": f"B#{chance.randrange(9)}"}
    else:
        body["IndexName"] = "GSI4"
        condition, values = "GSI4PK = :pk", {":pk": {"S": "ns"}}
        if chance.random() < 0.5:
            body["FilterExpression"] = "SK = :one OR SK = :two"
            values |= {":one": {"S": "#1"}, ":two": {"S": "#3"}}
    return {**body, "KeyConditionExpression": condition, "ExpressionAttributeValues": values}


def random_actions(source):
    actions, seen = [], set()
    for _ in range(source.chance.randint(1, 3)):
        rendering = Rendering(source)
        item = source.item()
        key = {name: item[name] for name in ("PK", "SK")}
        if str(key) in seen:
            continue
        seen.add(str(key))
        condition = {"ConditionExpression": rendering.condition()}
        kind = source.chance.choice(("Update", "Put", "Delete", "ConditionCheck"))
        if kind == "Update":
            update = rendering.update(wrong=0)  # which the server does not notice
            body = {"Key": key, **rendering.fields(UpdateExpression=update, **condition)}
        else:
            place = {"Item": item} if kind == "Put" else {"Key": key}
            body = {**place, **rendering.fields(**condition)}
        actions.append({kind: body})
    return actions


def answer_of_model(table, operation, body):
    if operation == "TransactWriteItems":
        body = {**body, "ClientRequestToken": None}
    try:
        return normal(operation, table.call(operation, body, 0.0))
    except Refusal as refusal:
        if refusal.code == "TransactionCanceledException":
            reasons = refusal.content["reasons"]
            return refusal.code, [(each["Code"], each.get("Item")) for each in reasons]
        return refusal.code, refusal.content.get("item")


def answer_of_server(client, operation, body):
    if operation == "TransactWriteItems":
        named = [
            {kind: {"TableName": client.table, **action[kind]} for kind in action}
            for action in body["TransactItems"]
        ]
        body = {"TransactItems": named}
    try:
        return normal(operation, client.call(operation, body))
    except ConditionFailed as failed:
        return "ConditionalCheckFailedException", failed.item
    except TransactionCanceled as canceled:
        reasons = [(reason.code, reason.item) for reason in canceled.reasons]
        return "TransactionCanceledException", reasons
    except Refused as refused:
        return refused.code, None


def normal(operation, answer):
    if operation == "Query":
        cursor = answer.get("LastEvaluatedKey")
        if cursor is not None and not answer["Items"]:
            cursor = "somewhere"
        return {"Items": answer["Items"], "LastEvaluatedKey": cursor}
    return {name: answer.get(name) for name in ("Attributes", "Item")}


def is_ambiguous(operation, body):
    """Entries of an index with the same sort key have no order."""
    return operation == "Query" and "IndexName" in body


def same(operation, body, one, other):
    if not is_ambiguous(operation, body) or not isinstance(one, dict):
        return one == other
    if "Limit" in body:
        return len(one["Items"]) == len(other["Items"]) or "FilterExpression" in body
    return sorted(map(str, one["Items"])) == sorted(map(str, other["Items"])) or sorted(
        sorted(map(str, item.items())) for item in one["Items"]
    ) == sorted(sorted(map(str, item.items())) for item in other["Items"])


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_requests_are_answered_as_by_the_server(server, seed):
    source, table = Random(seed), ModelTable()
    for step in range(STEPS):
        operation, body = random_request(source)
        with watch.unwatched():  # some requests are wrong on purpose
            expected = answer_of_server(server, operation, body)
        answer = answer_of_model(table, operation, body)
        assert same(operation, body, answer, expected), (step, operation, body, answer, expected)

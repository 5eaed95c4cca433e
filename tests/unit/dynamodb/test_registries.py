from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.items.stored import keys, registries
from zae_limiter.items.stored.attributes import n

KEY = keys.entity_config_resources("ns")


def registry(**counts):
    return {**KEY.attributes, **{f"r_{name}": n(count) for name, count in counts.items()}}


def test_resources_that_count_are_listed_in_order():
    assert registries.registered_resources(registry(b=2, a=1, gone=0)) == ["a", "b"]
    assert registries.registered_resources(None) == []
    assert registries.resource_count(None, "a") == 0


def test_the_last_count_removes_the_attribute():
    action = registries.uncount_resources(
        KEY, registry(last=1, shared=3), ["last", "shared", "unknown"]
    )
    assert action is not None
    body = body_of(action)
    names, values = body["ExpressionAttributeNames"], body["ExpressionAttributeValues"]
    assert sorted(names.values()) == ["r_last", "r_shared"]
    change = body["UpdateExpression"]
    for placeholder, name in names.items():
        change = change.replace(placeholder, name)
    assert change.endswith("REMOVE r_last")
    assert change.startswith("ADD r_shared :")
    assert n(-1) in values.values()
    assert body["ConditionExpression"].count("AND") == 1


def test_what_was_never_counted_is_not_counted_down():
    assert registries.uncount_resources(KEY, None, ["api"]) is None
    assert registries.uncount_resources(KEY, registry(other=1), ["api"]) is None


def test_expressions_stay_within_what_dynamodb_allows():
    many = {f"resource-{number}": 1 + number % 2 for number in range(96)}
    action = registries.uncount_resources(KEY, registry(**many), list(many))
    assert action is not None
    body = body_of(action)
    assert len(body["UpdateExpression"]) < 4096
    assert len(body["ConditionExpression"]) < 4096
    operators = body["ConditionExpression"].count("AND") + len(many)
    assert operators < 300

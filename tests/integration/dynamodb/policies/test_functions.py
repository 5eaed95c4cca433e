"""The roles of the functions permit exactly the calls that the functions make."""

import pytest

from tests.support.dynamodb.streams import bucket_record
from tests.support.dynamodb.usage_rows import bucket_with_hours
from tests.support.policies import TABLE, accesses, granted
from zae_limiter import Limit
from zae_limiter.items.stored.keys import BucketId
from zae_limiter_aggregator import handler as aggregate
from zae_limiter_aggregator.handler import close
from zae_limiter_ops.infra.access import roles
from zae_limiter_provisioner import handler

FIRST = {
    "system": {"limits": {"rpm": 10}, "on_unavailable": "block"},
    "resources": {"api": {"limits": {"rpm": 5}}, "other": {"limits": {"rpm": 5}}},
    "entities": {
        "team": {"cascade": False},
        "user": {"parent": "team", "cascade": True, "limits": {"rpm": 1}},
    },
}
SECOND = {
    "resources": {"api": {"limits": {"rpm": 6}}},
    "entities": {"user": {"parent": "other", "limits": {"rpm": 2}}},
}


@pytest.fixture
def function(world, proxy, monkeypatch):
    """Call the function as Lambda does, with a table behind the proxy."""
    monkeypatch.setenv("TABLE_NAME", world.table)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    def call(action, manifest):
        payload = {"action": action, "manifest": manifest, "namespace": world.namespace}
        answer = handler(payload)
        assert "error" not in answer, answer
        return answer

    return call


async def test_the_provisioner_needs_all_that_its_role_permits_and_nothing_else(
    world, proxy, function
):
    repo = await world.open()
    with proxy.measure() as seen:
        for manifest in (FIRST, SECOND, {"entities": {"last": {}}}):
            function("plan", manifest)
            function("apply", manifest)
            if manifest is FIRST:
                await repo.set_resource_defaults("api", [Limit.per_minute("rpm", 7)])
                assert function("diff", manifest)["drift"]
    assert granted_to("ProvisionerRole") == calls(seen)
    assert namespaces(seen) == {repo.namespace_id, "_"}, "one namespace, and the registry"


async def test_the_aggregator_needs_all_that_its_role_permits_and_nothing_else(
    world, proxy, function
):
    repo = await world.open()
    bucket_id = BucketId(repo.namespace_id, "user", "api")
    item = bucket_with_hours(bucket_id, "0.abc", 12, 5, finished=(9, 4))
    try:
        with proxy.measure() as seen:
            assert aggregate({"Records": [bucket_record(item, 1)]}) == {"batchItemFailures": []}
    finally:
        close()
    assert granted_to("AggregatorRole") == calls(seen)
    assert namespaces(seen) == {repo.namespace_id, "_"}, "the bucket's, and the version record"


def granted_to(role):
    """The calls that a role permits on the table, which its first statement is about."""
    policy = roles()[role]["Properties"]["Policies"][0]
    return granted({"Statement": policy["PolicyDocument"]["Statement"][:1]})


def accessed(seen):
    return [
        access
        for each in seen.requests
        for access in accesses(each.operation.partition(" of ")[0], each.body)
    ]


def calls(seen):
    return {(access.call, access.resource != TABLE) for access in accessed(seen)}


def namespaces(seen):
    return {key.partition("/")[0] for access in accessed(seen) for key in access.keys}

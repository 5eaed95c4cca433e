"""Every request is looked at as it leaves its socket, in both trees."""

import pytest

from tests.support.aws_rules import watch
from zae_limiter import ZAELimiterError
from zae_limiter._async.engines.dynamodb.client import DynamoClient as AsyncClient
from zae_limiter._sync.engines.dynamodb.client import DynamoClient as SyncClient

BROKEN = {"Key": {"PK": {"S": "a" * 2049}, "SK": {"S": "b"}}}
KEPT = {"Key": {"PK": {"S": "a"}, "SK": {"S": "b"}}}


async def test_a_request_of_the_async_tree_that_breaks_a_rule_is_found(stack, endpoint):
    client = AsyncClient(stack, endpoint_url=endpoint)
    await client.call("GetItem", KEPT)
    assert watch.take_violations() == []
    with pytest.raises(ZAELimiterError):
        await client.call("GetItem", BROKEN)
    assert watch.take_violations() == ["GetItem: PK has 2049 bytes, outside of 1 to 2048"]
    await client.close()


def test_a_request_of_the_sync_tree_that_breaks_a_rule_is_found(stack, endpoint):
    client = SyncClient(stack, endpoint_url=endpoint)
    client.call("GetItem", KEPT)
    assert watch.take_violations() == []
    with pytest.raises(ZAELimiterError):
        client.call("GetItem", BROKEN)
    assert watch.take_violations() == ["GetItem: PK has 2049 bytes, outside of 1 to 2048"]
    client.close()

"""What questions about usage cost, and the aggregator."""

import pytest

from tests.integration.dynamodb.capacity.world import API, USER
from tests.support.dynamodb.streams import bucket_record
from zae_limiter_aggregator.handler import close, handler

HOUR_MS = 3_600_000


@pytest.fixture
async def used(configured):
    """A client that has used two hours of a bucket; the first is stored, the second runs."""
    client = await configured.client()
    for _ in range(3):
        await client.take(rpm=1, tpm=100)
        configured.clock.set((configured.clock() // HOUR_MS + 1) * HOUR_MS)
    await client.take(rpm=1, tpm=100)
    return client


async def test_usage_of_an_entity(used, cost_of):
    with cost_of("`get_usage_snapshots` of an entity on a resource, 4 hours"):
        page, _ = await used.repo.get_usage_snapshots(USER, API, window_type="hourly")
    assert len(page) == 4
    with cost_of("`get_usage_snapshots` of an entity, 1 bucket, 4 hours"):
        assert (await used.repo.get_usage_snapshots(USER, window_type="hourly"))[0] == page


async def test_usage_of_a_resource(used, cost_of):
    with cost_of("`get_usage_snapshots` of a resource, 4 hours"):
        page, _ = await used.repo.get_usage_snapshots(resource=API, window_type="hourly")
    assert len(page) == 4
    with cost_of("`get_usage_snapshots` of the namespace, 1 resource, 4 hours"):
        assert (await used.repo.get_usage_snapshots(window_type="hourly"))[0] == page


async def test_the_aggregator(used, configured, proxy, cost_of, monkeypatch):
    monkeypatch.setenv("TABLE_NAME", configured.table)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", proxy.url)
    item = configured.item()
    assert "ph" in item
    handler({"Records": [bucket_record({**item, "ph": {"N": "1"}}, 1)]})  # reads the retention
    with cost_of("aggregator: store and clear a finished hour"):
        assert handler({"Records": [bucket_record(item, 2)]}) == {"batchItemFailures": []}
    assert "ph" not in configured.item()
    close()

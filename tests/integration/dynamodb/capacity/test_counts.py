"""What it costs to store how many acquires were rejected or have waited."""

import pytest

from tests.integration.dynamodb.capacity.world import API, USER

HOUR_MS = 3_600_000
REJECTED = 5


@pytest.fixture
async def client(configured):
    client = await configured.client()
    await client.take(rpm=1, tpm=100)
    return client


async def test_counts_ride_with_the_next_write(client, configured, cost_of):
    for _ in range(REJECTED):
        await client.refusal(rpm=1, tpm=10**6)
    with cost_of("acquire, warm"):
        await client.take(rpm=1)
    assert configured.item()["rj"] == {"N": str(REJECTED)}
    with cost_of("end of a lease"):
        await client.repo.close()


async def test_counts_that_no_write_has_taken_along(client, configured, cost_of):
    for _ in range(REJECTED):
        await client.refusal(rpm=1, tpm=10**6)
    with cost_of("counts of a bucket, stored alone"):
        await client.repo.close()
    item = configured.item()
    assert item["rj"] == {"N": str(REJECTED)}
    assert item["rq"] == {"S": f'1=1000000;[{configured.clock() // 1000},{REJECTED},["tpm"]]'}


async def test_counts_of_a_later_hour(client, configured, cost_of):
    configured.clock.set((configured.clock() // HOUR_MS + 1) * HOUR_MS)
    await client.refusal(rpm=1, tpm=10**6)
    with cost_of("counts of a bucket, stored alone, first write of an hour"):
        await client.repo.close()
    (hour, _), _ = await configured.admin.get_usage_snapshots(USER, API, window_type="hourly")
    assert hour.rejected == 0
    assert configured.item()["rj"] == {"N": "1"}


async def test_counts_of_a_bucket_that_was_never_used(client, configured, cost_of):
    await client.refusal("stranger", rpm=1, tpm=10**6)
    with cost_of("counts of a bucket that was never used"):
        await client.repo.close()

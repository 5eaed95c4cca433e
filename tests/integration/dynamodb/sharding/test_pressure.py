"""The real thing: several processes write to one bucket as fast as they can."""

import json
import subprocess
import sys

import pytest

from tests.support.dynamodb.tables import store_url
from zae_limiter import Limit

PROCESSES, SECONDS = 3, 10


def press(url, namespace):
    """What each of the processes did."""
    command = [sys.executable, "-m", "tests.integration.dynamodb.sharding.pressing"]
    command += [url, namespace, str(SECONDS)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(PROCESSES)]
    return [json.loads(child.communicate(timeout=60)[0]) for child in children]


@pytest.mark.slow
async def test_a_bucket_that_is_written_to_all_the_time_is_split(
    world, endpoint, stack, unique_name
):
    """Needs a machine that makes 800 writes a second; nothing is lost while it is split."""
    client = await world.client()
    await client.repo.set_system_defaults([Limit.per_minute("rpm", 10**7)])
    found = press(store_url(stack, endpoint), unique_name)
    assert sum(each["splits"] for each in found) >= 1
    assert len(world.items()) > 1
    state = await client.repo.get_bucket("user-1", "api", "rpm")
    assert state.total_consumed_milli == 1000 * sum(each["granted"] for each in found)

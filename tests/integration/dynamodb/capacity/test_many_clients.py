"""Several processes on one bucket: each guesses how the others have left it.

A wrong guess is refused and shows how the bucket stands, so it costs a round trip and nothing
else. How often that happens depends on the load.
"""

import random
import re
from collections import Counter
from contextlib import suppress
from functools import partial

import pytest

from tests.integration.dynamodb.capacity.pacing import Pacing
from tests.integration.dynamodb.capacity.world import API, USER, world_of
from tests.support.dynamodb.trees import AsyncTree
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.testing.clock import DEFAULT_START_MS

pytestmark = pytest.mark.real_time

CLIENTS = 8
TURNS = 50  # of each
SLOWDOWN = 2
MOST_TRIES = 1 + 4  # limits + 4


@pytest.fixture
def clock():
    return Pacing(DEFAULT_START_MS, SLOWDOWN)


@pytest.fixture
async def world(stack, proxy, endpoint, clock):
    async with world_of(AsyncTree(), stack, proxy, endpoint, clock) as world:
        yield world


def tries_of_the_admitted(seen):
    """How often each acquire that was granted in the end was written; each write bears its mark."""
    tries = Counter(mark(each) for each in seen.requests)
    granted = {mark(each) for each in seen.requests if each.status == 200}
    return [tries[each] for each in granted]


def mark(exchange):
    body = exchange.body
    names = {name: short for short, name in body["ExpressionAttributeNames"].items()}
    value = re.search(rf"{names['op']}=(:\w+)", body["UpdateExpression"])[1]
    return body["ExpressionAttributeValues"][value]["S"]


async def acquire_at_random(clock, mean_pause_ms, client, chance):
    at_ms = clock()
    for _ in range(TURNS):
        at_ms += chance.expovariate(1 / mean_pause_ms)
        async with clock.turn(at_ms):
            with suppress(RateLimitExceeded):
                await client.take(rpm=1)


@pytest.mark.parametrize(
    ("rate", "load", "most"),
    [
        (10, 0.9, 1.5),
        *(
            pytest.param(10, load, 1.5, marks=pytest.mark.slow)
            for load in (0.1, 0.3, 0.5, 0.7, 1.0, 1.5)
        ),
        (100, 0.6, 1.65),  # more is under way at the same time: about 1.5, where it is worst
    ],
)
async def test_most_acquires_need_one_round_trip_at_any_load(world, proxy, clock, rate, load, most):
    await world.admin.set_limits(USER, [Limit.per_minute("rpm", 60 * rate)])
    clients = [await world.client(config_cache_ttl=366 * 86_400) for _ in range(CLIENTS)]
    for client in clients:
        await client.take(rpm=1)
    if load >= 1:  # the burst has been used up
        left = (await clients[0].limiter.available(USER, API))["rpm"]
        await clients[0].take(rpm=left)
    proxy.link.request_ms = proxy.link.answer_ms = proxy.link.jitter_ms = 1
    pause_ms = 1000 * CLIENTS / (load * rate)
    chances = [random.Random(f"{load} {number}") for number in range(CLIENTS)]
    with proxy.measure() as seen:
        await clock.run(*map(partial(acquire_at_random, clock, pause_ms), clients, chances))
    tries = tries_of_the_admitted(seen)
    mean = sum(tries) / len(tries)
    print(  # noqa: T201 - shown by -s, and if it fails
        f"{rate}/s, load {load:.0%}: {len(tries)} admitted, {mean:.2f} round trips each, at most "
        f"{max(tries)}, {tries.count(1) / len(tries):.0%} in one, overlap {seen.overlap}"
    )
    assert set(seen.operations) == {"UpdateItem"}
    assert seen.overlap > 1 or load < 0.5
    assert max(tries) <= MOST_TRIES
    assert mean <= most

"""Callers that wait for an edge: exactly the amount is admitted, soon after the edge.

The clocks of the clients are real, and moved so that a window ends in a moment.
"""

import asyncio
import time

import pytest
from zae_limiter_contract.stopwatch import SLACK_S, Stopwatch

from tests.support.dynamodb import Proxy, shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository

pytestmark = pytest.mark.real_time

EDGE_MS = 1_800_000_000_000  # of windows of an hour
BEFORE_MS = 1500
SOON_S = 2.0  # this long after the edge, every request that fits is admitted


class Crowd:
    """Callers of several clients, which wait for the next window of an empty quota."""

    def __init__(self, url, clients):
        self.url, self.clients = url, clients
        self.repos = []
        self.entered = []
        self.rejected = 0

    def clock(self):
        return EDGE_MS - BEFORE_MS + round((time.monotonic() - self.began) * 1000)

    async def open(self, amount):
        self.began = time.monotonic()
        for _ in range(self.clients):
            builder = Repository.builder().url(self.url).clock(self.clock).provision("table")
            self.repos.append(await builder.request_timeout(30).build())
        await self.repos[0].set_system_defaults([Limit.quota("tokens", amount, per="hour")])
        async with RateLimiter(self.repos[0]).acquire("team", "api", {"tokens": amount}):
            pass

    async def wait(self, repo, timeout):
        try:
            async with RateLimiter(repo).acquire("team", "api", {"tokens": 1}, timeout=timeout):
                self.entered.append(self.clock())
        except RateLimitExceeded:
            self.rejected += 1

    async def run(self, amount, callers, timeout):
        await self.open(amount)
        try:
            self.began = time.monotonic()
            waits = [self.wait(self.repos[at % self.clients], timeout) for at in range(callers)]
            with Stopwatch() as self.watch:
                await asyncio.gather(*waits)
            return await self.repos[0].get_bucket("team", "api", "tokens")
        finally:
            for repo in self.repos:
                await repo.close()


async def check(url, amount, callers, clients, timeout=8.0):
    crowd = Crowd(url, clients)
    state = await crowd.run(amount, callers, timeout)
    assert len(crowd.entered) == min(amount, callers)
    assert crowd.rejected == callers - len(crowd.entered)
    assert (state.used, state.held) == (len(crowd.entered), 0)
    assert min(crowd.entered) >= EDGE_MS
    last_s = (max(crowd.entered) - EDGE_MS) / 1000
    assert last_s < SOON_S + SLACK_S + crowd.watch.late_s, (last_s, crowd.watch)
    return last_s


@pytest.mark.parametrize("engine", ["memory", "sqlite", "dynamodb"])
async def test_exactly_the_amount_is_admitted_after_an_edge(request, engine):
    url = request.getfixturevalue(f"{engine}_url")
    await check(url, amount=15, callers=20, clients=2, timeout=4.0)


async def test_all_callers_that_fit_are_admitted_soon_after_an_edge(memory_url):
    await check(memory_url, amount=20, callers=20, clients=2)


@pytest.mark.slow
@pytest.mark.parametrize("amount", [150, 1000])
@pytest.mark.parametrize("engine", ["memory", "sqlite", "dynamodb"])
async def test_exactly_the_amount_is_admitted_to_many_callers(
    request, engine, amount, record_property
):
    url = request.getfixturevalue(f"{engine}_url")
    last_s = await check(url, amount, callers=200, clients=5)
    record_property("seconds from the edge to the last admission", last_s)


async def test_the_callers_of_a_process_share_the_writes_after_an_edge(dynamodb_url):
    """The callers of a client take a few writes together, and not two each."""
    with Proxy(shared_endpoint()) as proxy, temporary_table() as table:
        with proxy.measure() as seen:
            await check(store_url(table, proxy.url), amount=100, callers=40, clients=2)
        assert seen.operations["UpdateItem"] <= 40

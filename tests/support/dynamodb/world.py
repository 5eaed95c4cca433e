"""Clients of one table with one clock, and a look at its buckets by other means."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest

from tests.support.dynamodb import stored
from tests.support.dynamodb.shared import shared_endpoint
from tests.support.dynamodb.tables import store_url
from tests.support.dynamodb.trees import AsyncTree, Awaited
from tests.support.dynamodb.waiting import PATIENT_S, answered
from zae_limiter import RateLimiter, RateLimitExceeded
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.testing import FakeClock

USER, PARENT, API = "user-1", "org-1", "api"
LATER_S = PATIENT_S
BUSY_S = 10  # what a busy machine may take to answer; who waits less is connected beforehand
CONNECTIONS = 2  # as many as the buckets of a cascade, which are charged at once


class Failure(Exception):
    """What goes wrong in a block."""


@contextmanager
def failing():
    """What runs in it must fail."""
    with pytest.raises(Failure):
        yield


class Client:
    """One repository with its limiter: what one process of a fleet has."""

    def __init__(self, repo, limiter=None):
        self.repo = repo
        self.limiter = limiter or RateLimiter(repo)

    def acquire(self, entity_id=USER, *, limits=None, on_unavailable=None, **consume):
        return self.limiter.acquire(
            entity_id, API, consume, limits=limits, on_unavailable=on_unavailable
        )

    async def take(self, entity_id=USER, **options):
        """An acquire that must be granted, and what goes on in the background because of it."""
        async with self.acquire(entity_id, **options):
            pass
        await written_later(self.repo)

    async def granted(self, entity_id=USER, **options):
        try:
            await self.take(entity_id, **options)
        except RateLimitExceeded:
            return False
        return True

    async def refusal(self, entity_id=USER, **options):
        with pytest.raises(RateLimitExceeded) as caught:
            await self.take(entity_id, **options)
        return caught.value

    async def owe(self, entity_id=USER, **amounts):
        """An empty acquire that is adjusted: the amount is a debt."""
        async with self.acquire(entity_id) as lease:
            await lease.adjust(**amounts)

    @asynccontextmanager
    async def giving_back(self, entity_id=USER, **amounts):
        """An acquire whose tokens return at the end of the block, as a credit."""
        async with self.acquire(entity_id, **amounts) as lease:
            yield
            await lease.adjust({name: -amount for name, amount in amounts.items()})


class World:
    """A namespace. ``client()`` leads to it directly, or through a proxy of the test.

    Its clock stands still unless one is given.
    """

    def __init__(self, table, endpoint, namespace, *, clock=None, tree=None):
        self.table, self.endpoint, self.namespace = table, endpoint, namespace
        self.clock = FakeClock() if clock is None else clock
        self.tree = tree or AsyncTree()
        # Not by way of a proxy that records: what the test itself asks is no method's call.
        self._raw = DynamoClient(table, endpoint_url=shared_endpoint(), request_timeout=10)
        self._repositories = []

    async def open(self, proxy=None, **settings):
        """A repository that is closed with the world; ``settings`` are those of the builder.

        It is patient: what is late is so because of the machine. A test in which something is lost
        on the way says how long it waits. Its repository has connections when the test begins.
        """
        settings = {"clock": self.clock, "request_timeout": PATIENT_S, **settings}
        url = store_url(self.table, self.endpoint if proxy is None else proxy.url)
        opening = partial(self.tree.build, url=url, namespace=self.namespace, **settings)
        is_hasty = settings["request_timeout"] < BUSY_S
        repo = await (answered(opening) if is_hasty else opening())
        self._repositories.append(repo)
        if is_hasty:
            await answered(lambda: asyncio.gather(*(repo.ping() for _ in range(CONNECTIONS))))
        return repo

    async def client(self, proxy=None, **settings):
        """Every call asks the store unless ``settings`` say otherwise."""
        repo = await self.open(proxy, **{"rejection_cache_ttl": 0, **settings})
        return self.client_of(repo)

    def client_of(self, repo):
        return Client(repo, self.tree.limiter(repo))

    async def clients(self, count, **settings):
        return [await self.client(**settings) for _ in range(count)]

    async def family(self, *, child, parent):
        """A child that cascades, each with limits of its own; returns a client."""
        client = await self.client()
        await client.repo.create_entity(PARENT)
        await client.repo.create_entity(USER, parent_id=PARENT, cascade=True)
        await client.repo.set_limits(USER, child, API)
        await client.repo.set_limits(PARENT, parent, API)
        return client

    async def close(self):
        for repo in self._repositories:
            await repo.close()
        self._raw.close()

    # --- the table, seen from outside

    def item(self, entity_id=USER):
        """A bucket's item; None if there is none."""
        return self._raw.call("GetItem", {"Key": self._key(entity_id), "ConsistentRead": True}).get(
            "Item"
        )

    def expire(self, entity_id=USER):
        """Remove a bucket as the store's own housekeeping does."""
        item = self.item(entity_id)
        assert int(item["ttl"]["N"]) * 1000 <= self.clock(), "the store would keep it"
        self._raw.call("DeleteItem", {"Key": self._key(entity_id)})

    def level(self, limit="rpm", entity_id=USER):
        """Millitokens now."""
        item = self.item(entity_id)
        return stored.level(item, limit, self.clock())

    def spent(self, limit="rpm", entity_id=USER):
        """Net millitokens since the bucket began."""
        return int(self.item(entity_id)[f"c_{limit}"]["N"])

    def admitted(self, entity_id=USER):
        return int(self.item(entity_id)["ac"]["N"])

    def rate(self, limit="rpm"):
        """The parameters under which a limit is stored."""
        return stored.parameters(self.item(), limit)

    def ttl_ms(self, entity_id=USER):
        ttl = self.item(entity_id).get("ttl")
        return None if ttl is None else int(ttl["N"]) * 1000

    def full_at_ms(self, entity_id=USER):
        """The first moment at which nothing is missing in a bucket."""
        item = self.item(entity_id)
        return max(stored.full_at_ms(item, limit) for limit in stored.limits_of(item))

    def _key(self, entity_id, number=0):
        partition = f"{self._repositories[0].namespace_id}/BUCKET#{entity_id}#{API}#{number}"
        return {"PK": {"S": partition}, "SK": {"S": "#STATE"}}


def rate_of(limit):
    """Capacity, refill and period, in millitokens and milliseconds."""
    return limit.capacity_milli, limit.refill_amount_milli, limit.refill_period_ms


async def written_later(repo):
    """Wait until the writes that no caller waits for were made, or have failed."""
    if isinstance(repo, Awaited):
        later = repo.blocking._context.engine._context.later  # noqa: SLF001 - below the API
        await asyncio.to_thread(later.drain, LATER_S)
    else:
        await repo._context.engine._context.later.drain(LATER_S)  # noqa: SLF001 - below the API


async def together(*awaitables):
    """All at once; what they return or raise."""
    return await asyncio.gather(*awaitables, return_exceptions=True)


async def seen(proxy_seen, operation, count=1):
    """Wait until a proxy has got that many requests."""
    async with asyncio.timeout(PATIENT_S):
        while len(proxy_seen.of(operation)) < count:  # noqa: ASYNC110 - another thread sees it
            await asyncio.sleep(0.001)


@asynccontextmanager
async def under_way(proxy, work, *, operation="UpdateItem"):
    """Start ``work``; its write is on its way to the store until the block ends."""
    proxy.link.held_operation = operation
    with proxy.measure() as measured:
        task = asyncio.ensure_future(work)
        try:
            await seen(measured, operation)
            yield task
        finally:
            proxy.link.held_operation = None
            await asyncio.wait([task])

"""Clients of one table with one clock, and a look at its buckets by other means.

Levels are computed here once more, from the stored attributes, so that a mistake of the package
is not repeated by the test that is to find it.
"""

import asyncio
from contextlib import asynccontextmanager, contextmanager

import pytest

from zae_limiter import RateLimiter, RateLimitExceeded, Repository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.testing import FakeClock
from zae_limiter.testing.dynamodb.tables import store_url

USER, PARENT, API = "user-1", "org-1", "api"
EPOCH_MS = 1_577_836_800_000
MILLI = 1000


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
        """An acquire that must be granted."""
        async with self.acquire(entity_id, **options):
            pass

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
        """An empty acquire that is adjusted: a debt, or with a negative amount a credit."""
        async with self.acquire(entity_id) as lease:
            await lease.adjust(**amounts)


class World:
    """A namespace. ``client()`` leads to it directly, or through a proxy of the test."""

    def __init__(self, table, endpoint, namespace):
        self.table, self.endpoint, self.namespace = table, endpoint, namespace
        self.clock = FakeClock()
        self._raw = DynamoClient(table, endpoint_url=endpoint, request_timeout=10)
        self._repositories = []

    async def client(self, proxy=None, **settings):
        """``settings`` are those of the builder; every call asks the store unless they say else."""
        settings = {"clock": self.clock, "rejection_cache_ttl": 0, **settings}
        chosen = Repository.builder().url(
            store_url(self.table, self.endpoint if proxy is None else proxy.url)
        )
        chosen.namespace(self.namespace)
        for name, value in settings.items():
            getattr(chosen, name)(value)
        repo = await chosen.register_missing_namespace().build()
        self._repositories.append(repo)
        return Client(repo)

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
        return min(parameters(item, limit)[0], value_at(item, limit, self.clock()))

    def spent(self, limit="rpm", entity_id=USER):
        """Net millitokens since the bucket began."""
        return int(self.item(entity_id)[f"c_{limit}"]["N"])

    def admitted(self, entity_id=USER):
        return int(self.item(entity_id)["ac"]["N"])

    def rate(self, limit="rpm"):
        """The parameters under which a limit is stored."""
        return parameters(self.item(), limit)

    def ttl_ms(self, entity_id=USER):
        ttl = self.item(entity_id).get("ttl")
        return None if ttl is None else int(ttl["N"]) * 1000

    def full_at_ms(self, entity_id=USER):
        """The first moment at which nothing is missing in a bucket."""
        item = self.item(entity_id)
        return max(full_at_ms(item, limit) for limit in limits_of(item))

    def _key(self, entity_id):
        partition = f"{self._repositories[0].namespace_id}/BUCKET#{entity_id}#{API}#0"
        return {"PK": {"S": partition}, "SK": {"S": "#STATE"}}


def limits_of(item):
    return [name[2:] for name in item if name.startswith("t_")]


def parameters(item, limit):
    """Capacity, refill and period, in millitokens and milliseconds."""
    return tuple(MILLI * int(each) for each in item[f"p_{limit}"]["S"].split(":"))


def rate_of(limit):
    """The same of a limit."""
    return limit.capacity_milli, limit.refill_amount_milli, limit.refill_period_ms


def value_at(item, limit, now_ms):
    """Millitokens that a limit would hold if it had no capacity."""
    _, refill, period = parameters(item, limit)
    return int(item[f"t_{limit}"]["N"]) + (now_ms - EPOCH_MS) * refill // period


def full_at_ms(item, limit):
    capacity, refill, period = parameters(item, limit)
    missing = capacity - int(item[f"t_{limit}"]["N"])
    return EPOCH_MS + -(-missing * period // refill)


async def together(*awaitables):
    """All at once; what they return or raise."""
    return await asyncio.gather(*awaitables, return_exceptions=True)


async def seen(proxy_seen, operation, count=1):
    """Wait until a proxy has got that many requests."""
    async with asyncio.timeout(5):
        while len(proxy_seen.of(operation)) < count:  # noqa: ASYNC110 - another thread sees it
            await asyncio.sleep(0.001)


@asynccontextmanager
async def under_way(proxy, work, *, ms=60, operation="UpdateItem"):
    """Start ``work``; the block runs while its write is on its way to the store."""
    proxy.link.request_ms = ms
    with proxy.measure() as measured:
        task = asyncio.ensure_future(work)
        try:
            await seen(measured, operation)
            yield task
        finally:
            proxy.link.request_ms = 0
            await asyncio.wait([task])

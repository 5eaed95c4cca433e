"""A bucket in several items: clients in both trees, somebody who splits it, a look from outside."""

import asyncio
from fractions import Fraction

from tests.integration.dynamodb.exactness.world import API, USER, Client
from tests.integration.dynamodb.shards.accounts import (
    EPOCH_MS,
    level,
    n_of,
    share,
    whole,
)
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.testing import FakeClock
from zae_limiter.testing.dynamodb.tables import store_url
from zae_limiter.transport.deadline import Deadline

MOST_SHARDS = 64
HUNDRED = Limit.per_minute("rpm", 100)
EVEN = {
    1: (),
    2: (0,),
    4: (0, 0, 1),
    8: (0, 0, 1, 0, 1, 2, 3),
    32: (0, *range(2), *range(4), *range(8), *range(16)),
}
UNEVEN = {
    2: (0,),
    3: (0, 0),
    4: (0, 1, 3),
    8: (0, 0, 0, 0, 0, 1, 1),
    32: (*[0] * 5, *[1] * 4, 3, 3, 3, 2, 2, 2, 7, 7, 6, 6, 5, 5, 4, 4, 9, 10, 11, 12, 13, 14),
}


class World:
    """A namespace with one bucket that matters; its clock stands still unless one is given."""

    def __init__(self, tree, stack, endpoint, namespace, clock=None):
        self.tree, self.stack, self.endpoint, self.namespace = tree, stack, endpoint, namespace
        self.clock = clock or FakeClock()
        self._raw = DynamoClient(stack, endpoint_url=endpoint, request_timeout=10)
        self._repositories = []

    async def begin(self):
        self.admin = await self._opened(Repository.open, self.endpoint, request_timeout=20)
        self.limiter = RateLimiter(self.admin)

    async def client(self, proxy=None, **settings):
        """Knows nothing yet; asks the store each time unless ``settings`` say otherwise."""
        url = self.endpoint if proxy is None else proxy.url
        repo = await self._opened(self.tree.open, url, **settings)
        return Client(repo, self.tree.limiter(repo))

    async def _opened(self, opened, endpoint, **settings):
        settings = {
            "namespace": self.namespace,
            "clock": self.clock,
            "rejection_cache_ttl": 0,
            "request_timeout": 10,
            "provision": "never",
            **settings,
        }
        repo = await opened(url=store_url(self.stack, endpoint), **settings)
        self._repositories.append(repo)
        return repo

    async def close(self):
        for repo in self._repositories:
            await repo.close()
        self._raw.close()

    # --- by somebody else

    async def limits(self, *limits, entity_id=USER):
        await self.admin.set_limits(entity_id, list(limits), API)

    async def use(self, entity_id=USER, **amounts):
        """Make the bucket, or take from it."""
        async with self.limiter.acquire(entity_id, API, amounts):
            pass

    async def split(self, *numbers, entity_id=USER):
        for number in numbers:
            shard = self._shard(number, entity_id)
            assert await self._shaper.split(self._place(entity_id), shard, self.clock, Deadline(10))

    async def merge(self, *numbers, entity_id=USER):
        scope = await self.admin.admission.scope(entity_id, API, None, False, None)
        in_force = scope.charges({})[0].in_force
        for number in numbers:
            shard = self._shard(number, entity_id)
            assert await self._shaper.merge(
                self._place(entity_id), shard, in_force, self.clock, Deadline(10)
            )

    async def merge_all(self, entity_id=USER):
        """The finest first."""
        while len(shards := self.shards(entity_id)) > 1:
            finest = max(shards.values())
            number = min(each for each, n in shards.items() if n == finest)
            await self.merge(number, entity_id=entity_id)

    def _shard(self, number, entity_id):
        return Shard(number, n_of(self.items(entity_id)[number]))

    @property
    def _shaper(self):
        return self.admin._context.engine.buckets.reshaping  # noqa: SLF001 - below the API

    def _place(self, entity_id):
        return self.admin.namespace_id, entity_id, API

    # --- the table, seen from outside

    def items(self, entity_id=USER):
        """By number of the shard, those of earlier lives included."""
        keys = {self._key(entity_id, number)["PK"]["S"]: number for number in range(MOST_SHARDS)}
        wanted = [{"PK": {"S": key}, "SK": {"S": "#STATE"}} for key in keys]
        body = {"RequestItems": {self.stack: {"Keys": wanted, "ConsistentRead": True}}}
        answer = self._raw.call("BatchGetItem", body)
        assert not answer.get("UnprocessedKeys")
        found = {keys[item["PK"]["S"]]: item for item in answer["Responses"][self.stack]}
        return dict(sorted(found.items()))

    def shards(self, entity_id=USER):
        """The n of each shard; they must be one whole."""
        items = self.items(entity_id)
        assert sum(Fraction(1, n_of(item)) for item in items.values()) == 1
        for limit in limits_of(items[0]):
            capacities = {whole(item, limit)[0] for item in items.values()}
            if len(capacities) == 1:
                assert sum(share(item, limit) for item in items.values()) == capacities.pop()
        return {number: n_of(item) for number, item in items.items()}

    def levels(self, limit="rpm", entity_id=USER):
        """Millitokens by shard."""
        items, now_ms = self.items(entity_id), self.clock()
        return {number: level(item, limit, now_ms) for number, item in items.items()}

    def level(self, limit="rpm", entity_id=USER):
        return sum(self.levels(limit, entity_id).values())

    def spent(self, limit="rpm", entity_id=USER):
        return sum(int(item[f"c_{limit}"]["N"]) for item in self.items(entity_id).values())

    def admitted(self, entity_id=USER):
        return sum(int(item["ac"]["N"]) for item in self.items(entity_id).values())

    def set_level(self, number, milli, limit="rpm", entity_id=USER):
        """As if somebody had used just that shard."""
        item = self.items(entity_id)[number]
        _, refill, period = whole(item, limit)
        accrued = (self.clock() - EPOCH_MS) * refill // (period * n_of(item))
        body = {
            "Key": self._key(entity_id, number),
            "UpdateExpression": "SET #t = :t ADD wc :one",
            "ExpressionAttributeNames": {"#t": f"t_{limit}"},
            "ExpressionAttributeValues": {":t": {"N": str(milli - accrued)}, ":one": {"N": "1"}},
        }
        self._raw.call("UpdateItem", body)

    def set_levels(self, levels, limit="rpm", entity_id=USER):
        for number, milli in levels.items():
            self.set_level(number, milli, limit, entity_id)

    def share(self, number, limit="rpm", entity_id=USER):
        return share(self.items(entity_id)[number], limit)

    def shares(self, limit="rpm", entity_id=USER):
        return {number: share(item, limit) for number, item in self.items(entity_id).items()}

    def put(self, item):
        self._raw.call("PutItem", {"Item": item})

    def remove(self, number, entity_id=USER):
        self._raw.call("DeleteItem", {"Key": self._key(entity_id, number)})

    def _key(self, entity_id, number):
        partition = f"{self.admin.namespace_id}/BUCKET#{entity_id}#{API}#{number}"
        return {"PK": {"S": partition}, "SK": {"S": "#STATE"}}


def limits_of(item):
    return [name[2:] for name in item if name.startswith("t_")]


async def together(*awaitables):
    """All at once; what they return or raise."""
    return await asyncio.gather(*awaitables, return_exceptions=True)


async def seen(measured, operation, count=1):
    """Wait until a proxy has got that many requests."""
    async with asyncio.timeout(5):
        while len(measured.of(operation)) < count:  # noqa: ASYNC110 - another thread sees it
            await asyncio.sleep(0.001)

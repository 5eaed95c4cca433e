"""Clients of one table that may split its buckets, others who write to it, a look from outside."""

import asyncio

from tests.integration.dynamodb.exactness import world as unsharded
from tests.integration.dynamodb.exactness.world import API, USER
from tests.integration.dynamodb.shards.accounts import level, n_of
from zae_limiter import Limit
from zae_limiter._async.builder import RepositoryBuilder
from zae_limiter._async.engines.dynamodb.opening import open_dynamodb
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.transport.deadline import Deadline

MOST_SHARDS = 16
PATIENCE_S = 10


def rpm(capacity):
    return Limit.per_minute("rpm", capacity)


class Client(unsharded.Client):
    """One process of a fleet, which changes the shape of buckets when it is told to."""

    def __init__(self, repo, shaper, clock):
        super().__init__(repo)
        self._shaper, self._clock = shaper, clock

    async def split(self, *shards, entity_id=USER):
        """Cut these in two, one after the other; whether the last one was."""
        done = False
        for shard in shards:
            place = self._place(entity_id)
            done = await self._shaper.split(place, shard, self._clock, Deadline(PATIENCE_S))
        return done

    async def split_into(self, n, entity_id=USER):
        """A bucket that is one item becomes ``n`` equal shards."""
        parts = 1
        while parts < n:
            for number in range(parts):
                assert await self.split(Shard(number, parts), entity_id=entity_id)
            parts *= 2

    async def merge(self, shard):
        """With its sibling; whether it was."""
        scope = await self.repo.admission.scope(USER, API, None, False, None)
        in_force = scope.charges({})[0].in_force
        place = self._place(USER)
        return await self._shaper.merge(place, shard, in_force, self._clock, Deadline(PATIENCE_S))

    def _place(self, entity_id):
        return self.repo.namespace_id, entity_id, API


class World(unsharded.World):
    """Every engine is opened here, so that it can be told to split and merge."""

    async def client(
        self,
        proxy=None,
        *,
        request_timeout=10,
        rejection_cache_ttl=0,
        config_cache_ttl=60,
    ):
        """Asks the store each time unless told otherwise."""
        engine = await open_dynamodb(
            self.table,
            region=None,
            endpoint_url=self.endpoint if proxy is None else proxy.url,
            provision="never",
            request_timeout=request_timeout,
            transport="auto",
            clock=self.clock,
            parallel_mode="auto",
            audit_retention_days=90,
            rejection_cache_ttl=rejection_cache_ttl,
            max_shards=32,
        )
        builder = RepositoryBuilder().namespace(self.namespace).clock(self.clock)
        builder.config_cache_ttl(config_cache_ttl).register_missing_namespace()
        repo = await builder.over(engine)
        self._repositories.append(repo)
        return Client(repo, engine.buckets.reshaping, self.clock)

    async def split_bucket(self, *limits, n, proxy=None, **settings):
        """A client, and a bucket in ``n`` shards of which it knows; one token is taken."""
        client = await self.client(proxy, **settings)
        await client.repo.set_system_defaults(list(limits))
        await client.take(**{limits[0].name: 1})
        await client.split_into(n)
        return client

    # --- the table, seen from outside

    def items(self):
        """By number of the shard."""
        keys = {self._shard_key(number)["PK"]["S"]: number for number in range(MOST_SHARDS)}
        wanted = [self._shard_key(number) for number in range(MOST_SHARDS)]
        body = {"RequestItems": {self.table: {"Keys": wanted, "ConsistentRead": True}}}
        answer = self._raw.call("BatchGetItem", body)
        assert not answer.get("UnprocessedKeys")
        found = {keys[item["PK"]["S"]]: item for item in answer["Responses"][self.table]}
        return dict(sorted(found.items()))

    def shape(self):
        """The n of each shard by its number."""
        return {number: n_of(item) for number, item in self.items().items()}

    def levels(self, limit="rpm"):
        """Millitokens by shard."""
        now_ms = self.clock()
        return {number: level(item, limit, now_ms) for number, item in self.items().items()}

    def total(self, limit="rpm"):
        return sum(self.levels(limit).values())

    def consumed(self, limit="rpm"):
        return sum(int(item[f"c_{limit}"]["N"]) for item in self.items().values())

    # --- others who write to it

    def take_from(self, number, milli, limit="rpm"):
        """A write of another process to one shard; with a negative amount it gives."""
        self._update(
            number,
            "ADD #t :less, #c :more, wc :one SET op = :op",
            names={"#t": f"t_{limit}", "#c": f"c_{limit}"},
            values={
                ":less": {"N": str(-milli)},
                ":more": {"N": str(milli)},
                ":one": {"N": "1"},
                ":op": {"S": f"{self.clock() // 1000:x}.other"},
            },
        )

    def leave(self, levels, limit="rpm"):
        """Others use the shards until these levels are left."""
        before = self.levels(limit)
        for number, milli in levels.items():
            self.take_from(number, before[number] - milli, limit)

    def count_writes(self, number, count):
        """As if others had written that often."""
        self._update(number, "ADD wc :count", values={":count": {"N": str(count)}})

    def _update(self, number, expression, *, values, names=None):
        body = {
            "Key": self._shard_key(number),
            "UpdateExpression": expression,
            "ExpressionAttributeValues": values,
        }
        if names is not None:
            body["ExpressionAttributeNames"] = names
        self._raw.call("UpdateItem", body)

    def _shard_key(self, number, entity_id=USER):
        partition = f"{self._repositories[0].namespace_id}/BUCKET#{entity_id}#{API}#{number}"
        return {"PK": {"S": partition}, "SK": {"S": "#STATE"}}


class Before:
    """Something that happens just before a client's transactions reach the store."""

    def __init__(self, proxy, what, *, times=None):
        self.count = 0
        self._what, self._times = what, times
        proxy.fault("close", operation="TransactWriteItems", when=self._meanwhile)

    def _meanwhile(self, _exchange):
        if self._times is None or self.count < self._times:
            self.count += 1
            self._what()
        return False  # nothing befalls the request itself


def by_another(work):
    """To be called in the proxy's thread: does some work in the test's loop, to its end."""
    loop = asyncio.get_running_loop()
    return lambda: asyncio.run_coroutine_threadsafe(work(), loop).result(PATIENCE_S)

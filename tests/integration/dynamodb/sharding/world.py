"""Buckets in several items: clients in both trees, splits and merges, a look from outside."""

import asyncio
from fractions import Fraction

from tests.support.dynamodb import stored
from tests.support.dynamodb import world as unsharded
from tests.support.dynamodb.stored import limits_of, n_of
from tests.support.dynamodb.trees import AsyncTree, awaited
from tests.support.dynamodb.world import API, USER
from zae_limiter import Limit, RateLimiter
from zae_limiter.admission.moves import added_move
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.clock import Deadline
from zae_limiter.dynamodb.expressions import action as action_of
from zae_limiter.dynamodb.expressions import text as text_of
from zae_limiter.items.sharding import transactions
from zae_limiter.items.stored.bucket import decode, new_write_id
from zae_limiter.items.stored.bucket_updates import WriteTrailer, bucket_update
from zae_limiter.items.stored.keys import BucketId, Key
from zae_limiter.transport.errors import TransactionCanceled

MOST_SHARDS = 64
PATIENCE_S = 30  # of a machine without a free core
HUNDRED = Limit.per_minute("rpm", 100)
# Numbers of the shards to be cut in two, one after the other, for so many shards.
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


def rpm(capacity):
    return Limit.per_minute("rpm", capacity)


def resharder_of(repo):
    """What splits and merges, which no public method does at will."""
    return awaited(repo, repo._context.engine.buckets.resharder)  # noqa: SLF001 - below the API


async def limits_in_force(repo, entity_id=USER):
    charging = awaited(repo, repo.charging)
    resolved = await charging.resolve(entity_id, API, repo.charging.clock())
    return resolved.in_force


class Client(unsharded.Client):
    """One process of a fleet, which splits and merges when it is told to."""

    def __init__(self, repo, limiter, clock):
        super().__init__(repo, limiter)
        self._clock = clock

    async def split(self, *shards, entity_id=USER):
        """Cut these in two, one after the other; whether the last one was."""
        done = False
        for shard in shards:
            done = await resharder_of(self.repo).split(
                self._bucket(entity_id), shard, self._clock, Deadline(PATIENCE_S)
            )
        return done

    async def split_into(self, n, entity_id=USER):
        """A bucket that is one item becomes ``n`` equal shards."""
        parts = 1
        while parts < n:
            for number in range(parts):
                assert await self.split(Shard(number, parts), entity_id=entity_id)
            parts *= 2

    async def merge(self, shard, entity_id=USER):
        """With its sibling; whether it was."""
        in_force = await limits_in_force(self.repo, entity_id)
        return await resharder_of(self.repo).merge(
            self._bucket(entity_id), shard, in_force, self._clock, Deadline(PATIENCE_S)
        )

    def _bucket(self, entity_id):
        return BucketId(self.repo.namespace_id, entity_id, API)


class World(unsharded.World):
    """A namespace with one bucket that matters.

    ``admin`` and ``limiter`` are those of another process, which configures, uses and reshapes it.
    """

    async def begin(self):
        chosen, self.tree = self.tree, AsyncTree()
        self.admin = await self.open(rejection_cache_ttl=0, request_timeout=20)
        self.tree = chosen
        self.limiter = RateLimiter(self.admin)
        self._other = Client(self.admin, self.limiter, self.clock)

    async def __aenter__(self):
        await self.begin()
        return self

    async def __aexit__(self, *exc_info):
        await self.close()

    async def client(self, proxy=None, **settings):
        """Knows nothing yet; asks the store each time unless ``settings`` say otherwise."""
        return await super().client(proxy, **{"request_timeout": PATIENCE_S, **settings})

    def client_of(self, repo):
        return Client(repo, self.tree.limiter(repo), self.clock)

    async def split_bucket(self, *limits, n, proxy=None, **settings):
        """A client, and a bucket in ``n`` shards of which it knows; one token is taken."""
        client = await self.client(proxy, **settings)
        await client.repo.set_system_defaults(list(limits))
        await client.take(**{limits[0].name: 1})
        await client.split_into(n)
        return client

    # --- by another process

    async def limits(self, *limits, entity_id=USER):
        await self.admin.set_limits(entity_id, list(limits), API)

    async def use(self, entity_id=USER, **amounts):
        """Make the bucket, or take from it."""
        await self._other.take(entity_id, **amounts)

    async def split(self, *numbers, entity_id=USER):
        for number in numbers:
            assert await self._other.split(self._shard(number, entity_id), entity_id=entity_id)

    async def merge(self, *numbers, entity_id=USER):
        for number in numbers:
            assert await self._other.merge(self._shard(number, entity_id), entity_id=entity_id)

    async def merge_all(self, entity_id=USER):
        """The finest first."""
        while len(shards := self.shards(entity_id)) > 1:
            finest = max(shards.values())
            number = min(each for each, n in shards.items() if n == finest)
            await self.merge(number, entity_id=entity_id)

    def _shard(self, number, entity_id):
        return Shard(number, n_of(self.items(entity_id)[number]))

    def take_from(self, number, milli, limit="rpm", entity_id=USER):
        """A charge written to one shard; with a negative amount a credit."""
        self.update(
            number,
            "ADD #t :less, #c :more, wc :one SET op = :op",
            names={"#t": f"t_{limit}", "#c": f"c_{limit}"},
            values={
                ":less": {"N": str(-milli)},
                ":more": {"N": str(milli)},
                ":one": {"N": "1"},
                ":op": {"S": f"{self.clock() // 1000:x}.other"},
            },
            entity_id=entity_id,
        )

    def credit(self, number, milli, limit="rpm"):
        """A credit by a client, which keeps the ids of earlier writes."""
        item = self.items()[number]
        trailer = WriteTrailer.to(decode(item), new_write_id(self.clock()))
        moves = [added_move(limit, milli)]
        update = bucket_update(Key.of(item), moves, trailer)
        self._raw.call("UpdateItem", text_of(update, self.table))

    def leave(self, levels, limit="rpm"):
        """Charges to the shards until these levels are left."""
        before = self.levels(limit)
        for number, milli in levels.items():
            self.take_from(number, before[number] - milli, limit)

    def set_level(self, number, milli, limit="rpm", entity_id=USER):
        """A level that no charge is counted for."""
        item = self.items(entity_id)[number]
        balance = milli - stored.accrued(item, limit, self.clock())
        self.update(
            number,
            "SET #t = :t ADD wc :one",
            names={"#t": f"t_{limit}"},
            values={":t": {"N": str(balance)}, ":one": {"N": "1"}},
            entity_id=entity_id,
        )

    def set_levels(self, levels, limit="rpm", entity_id=USER):
        for number, milli in levels.items():
            self.set_level(number, milli, limit, entity_id)

    def count_writes(self, number, count):
        """Add to the writes that a shard counts."""
        self.update(number, "ADD wc :count", values={":count": {"N": str(count)}})

    def update(self, number, expression, *, values, names=None, entity_id=USER):
        body = {
            "Key": self._key(entity_id, number),
            "UpdateExpression": expression,
            "ExpressionAttributeValues": values,
        }
        if names is not None:
            body["ExpressionAttributeNames"] = names
        self._raw.call("UpdateItem", body)

    def put(self, item):
        self._raw.call("PutItem", {"Item": item})

    def remove(self, number, entity_id=USER):
        self._raw.call("DeleteItem", {"Key": self._key(entity_id, number)})

    # --- transactions, planned at one moment and sent at another

    def planned_split(self, number=0):
        return transactions.split(self.items()[number], self.clock(), "planned")

    def planned_merge(self, number, sibling):
        items = self.items()
        return transactions.merge(items[number], items[sibling], self.clock(), "planned")

    def transact(self, writes):
        """Whether they were all made; else none was."""
        actions = [action_of(each, self.table) for each in writes]
        try:
            self._raw.call("TransactWriteItems", {"TransactItems": actions}, repeatable=True)
        except TransactionCanceled:
            return False
        return True

    # --- the table, seen from outside

    def items(self, entity_id=USER):
        """By number of the shard, those of a bucket that was deleted included."""
        keys = [self._key(entity_id, number) for number in range(MOST_SHARDS)]
        body = {"RequestItems": {self.table: {"Keys": keys, "ConsistentRead": True}}}
        answer = self._raw.call("BatchGetItem", body)
        assert not answer.get("UnprocessedKeys")
        found = {stored.number_of(item): item for item in answer["Responses"][self.table]}
        return dict(sorted(found.items()))

    def item(self, entity_id=USER, number=0):
        """One shard; None if there is none."""
        return self.items(entity_id).get(number)

    def shards(self, entity_id=USER):
        """The n of each shard; they must be one whole."""
        items = self.items(entity_id)
        assert sum(Fraction(1, n_of(item)) for item in items.values()) == 1
        for limit in limits_of(items[0]):
            capacities = {stored.parameters(item, limit)[0] for item in items.values()}
            if len(capacities) == 1:
                assert sum(stored.share(item, limit) for item in items.values()) == capacities.pop()
        return {number: n_of(item) for number, item in items.items()}

    def levels(self, limit="rpm", entity_id=USER):
        """Millitokens by shard."""
        items, now_ms = self.items(entity_id), self.clock()
        return {number: stored.level(item, limit, now_ms) for number, item in items.items()}

    def level(self, limit="rpm", entity_id=USER):
        """Millitokens of all shards."""
        return sum(self.levels(limit, entity_id).values())

    def balance(self, limit="rpm", entity_id=USER):
        """The sum over all shards: what a bucket that was never split would have."""
        return sum(int(item[f"t_{limit}"]["N"]) for item in self.items(entity_id).values())

    def spent(self, limit="rpm", entity_id=USER):
        return sum(int(item[f"c_{limit}"]["N"]) for item in self.items(entity_id).values())

    def admitted(self, entity_id=USER):
        return sum(int(item["ac"]["N"]) for item in self.items(entity_id).values())

    def shares(self, limit="rpm", entity_id=USER):
        return {number: stored.share(item, limit) for number, item in self.items(entity_id).items()}

    def share(self, number, limit="rpm", entity_id=USER):
        return self.shares(limit, entity_id)[number]


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
        return False  # nothing happens to the request itself


def by_another(work):
    """To be called in the proxy's thread: does some work in the test's loop, to its end."""
    loop = asyncio.get_running_loop()
    return lambda: asyncio.run_coroutine_threadsafe(work(), loop).result(PATIENCE_S)

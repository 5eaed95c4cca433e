"""Clients charge, the aggregator stores: queries have what the ledger has, with and without it."""

import random
from collections import Counter

import pytest

from tests.integration.dynamodb.hours.world import World
from tests.support.dynamodb.streams import stream_records
from tests.support.dynamodb.world import API, PARENT, USER, Failure, failing
from zae_limiter import Limit
from zae_limiter_aggregator import handler

PLENTY = [Limit.per_minute("rpm", 10_000), Limit.per_minute("tpm", 100_000)]
HOURS = 4
EXTRA = "user-2"  # it has no parent


@pytest.fixture
async def world(endpoint, streamed_table, unique_name):
    async with World(streamed_table, endpoint, unique_name) as world:
        yield world


class Ledger:
    """What each entity used in each hour, as the callers know it."""

    def __init__(self):
        self.used = {}

    def add(self, entity_id, hour, **amounts):
        self.used.setdefault((entity_id, hour), Counter()).update(amounts)


async def spend(world, clients, ledger, dice):
    """Some acquires and refunds of one hour."""
    for _ in range(12):
        client, entity_id = dice.choice(clients), dice.choice([USER, USER, EXTRA])
        rpm, tpm = dice.randint(1, 5), dice.randint(1, 50)
        if dice.random() < 0.2:
            with failing():
                async with client.acquire(entity_id, rpm=rpm, tpm=tpm):
                    raise Failure
            continue
        await client.take(entity_id, rpm=rpm, tpm=tpm)
        for counted in [USER, PARENT] if entity_id == USER else [EXTRA]:
            ledger.add(counted, world.hour, rpm=rpm, tpm=tpm)


async def queried(repo, entity_id=None, resource=None):
    found, key = {}, None
    while True:
        page, key = await repo.get_usage_snapshots(
            entity_id, resource, window_type="hourly", limit=3, next_key=key
        )
        for each in page:
            assert (each.entity_id, each.window_start) not in found
            found[each.entity_id, each.window_start] = each.counters
        if key is None:
            return list(found.values())


async def check(world, repo, ledger):
    """Compare every kind of query with the ledger."""
    entities = [USER, PARENT, EXTRA]
    for entity_id, resource in [
        *((each, API) for each in entities),
        (USER, None),
        (None, API),
        (None, None),
    ]:
        wanted = [
            dict(amounts)
            for (entity, _), amounts in sorted(
                ledger.used.items(), key=lambda entry: (entry[0][1], entry[0][0])
            )
            if entity_id in (None, entity)
        ]
        assert await queried(repo, entity_id, resource) == wanted
    total = await repo.get_usage_summary(resource=API)
    own = Counter()
    for (entity_id, _), amounts in ledger.used.items():
        if entity_id != PARENT:  # all of the parent's came through its child
            own.update(amounts)
    assert total.total == dict(own)


@pytest.mark.parametrize("deliveries", ["none", "prompt", "wild"])
async def test_queries_have_what_was_used(world, endpoint, deliveries):
    dice, ledger = random.Random(deliveries), Ledger()
    client = await world.family(child=PLENTY, parent=PLENTY)
    await client.repo.set_limits(EXTRA, PLENTY, API)
    clients = [client, *await world.clients(2)]
    for hour in range(HOURS):
        await spend(world, clients, ledger, dice)
        if deliveries == "prompt" or (deliveries == "wild" and hour % 2):
            records = stream_records(endpoint, world.table)
            if deliveries == "wild":  # doubled, shuffled, and a part of them is lost for now
                records = dice.choices(records, k=len(records))
            assert handler({"Records": records}) == {"batchItemFailures": []}
        await check(world, client.repo, ledger)
        world.next_hour(dice.randrange(60_000))
    if deliveries != "none":
        records = stream_records(endpoint, world.table)
        dice.shuffle(records)
        assert handler({"Records": records}) == {"batchItemFailures": []}
        for entity_id in (USER, PARENT, EXTRA):
            assert "ph" not in world.item(entity_id)
    await check(world, client.repo, ledger)

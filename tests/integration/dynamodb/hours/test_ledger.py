"""Every stored and queried figure of usage equals the ledger, on the local server and its stream.

``ZAEL_LEDGER=1000000 make test-slow`` sets how much the long form consumes.
"""

import json
import os
import random
import secrets
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from sim.virtual_time import virtual_time
from tests.support.dynamodb.model.client import ModelClient, Network, raise_refusal
from tests.support.dynamodb.model.history import prepared_engine
from tests.support.dynamodb.model.table import ModelTable, Refusal
from tests.support.dynamodb.streams import stream_records
from tests.support.dynamodb.tables import store_url
from tests.support.dynamodb.usage_ledger import (
    API,
    CLIENTS,
    ENTITIES,
    HOUR_MS,
    HOURS,
    KILLED,
    MODES,
    Deliveries,
    Fleet,
)
from zae_limiter._async.engines.dynamodb.open import open_dynamodb
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table, remove_table
from zae_limiter.items.stored.keys import ShardId
from zae_limiter.items.stored.usage import day_row
from zae_limiter.settings import Settings
from zae_limiter.store_url import parse_url

ROOT = Path(__file__).parents[4]
SHORT, MIDDLE, STREAMED, LONG = 60, 700, 50_000, int(os.environ.get("ZAEL_LEDGER", "1000000"))
RETENTION_DAYS = 1
LONGER_THAN_KEPT = 24 * 10  # hours
KILLED_AFTER = 5
FEW = 25  # entities of the short form: each is used several times
SOME = 25  # entities that are looked at while it goes on; in the end all are


@pytest.fixture
def server_table(credentials, endpoint):
    name = f"test-{secrets.token_hex(8)}"
    with closing(DynamoClient(name, endpoint_url=endpoint, request_timeout=10)) as client:
        make_table(client, stream=True)
        yield client
        remove_table(client)


class OnServer:
    """The local server: real requests, real stream records, a process that is killed."""

    def __init__(self, client, endpoint):
        self.client, self.endpoint = client, endpoint
        self.url = store_url(client.table, endpoint)

    async def engines(self, clock):
        settings = Settings(clock=clock, usage_retention_days=RETENTION_DAYS, request_timeout=10)
        return [await open_dynamodb(parse_url(self.url), settings) for _ in range(CLIENTS)]

    def records(self):
        return stream_records(self.endpoint, self.client.table)

    def kill_a_client(self, fleet, entity):
        """Let a process consume one token at a time, and kill it; return what it had written."""
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"{__name__.rpartition('.')[0]}.consuming_child",
                self.url,
                entity,
                str(fleet.clock()),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": ROOT_PATH},
        )
        for _ in range(KILLED_AFTER):
            assert child.stdout.readline() == "granted\n"
        child.kill()
        rest, _ = child.communicate()
        known = KILLED_AFTER + rest.count("granted\n")
        written = self.writes_of(fleet, entity)
        assert known <= written <= known + 1  # the one that was open at the kill
        return written

    def writes_of(self, fleet, entity):
        key = f"{fleet.repos[0].namespace_id}/BUCKET#{entity}#api#0"
        body = {"Key": {"PK": {"S": key}, "SK": {"S": "#STATE"}}, "ConsistentRead": True}
        return int(self.client.call("GetItem", body)["Item"]["wc"]["N"])

    def has_row(self, fleet, entity, hour):
        """Whether the day of an hour is announced, or one of its hours stored."""
        shard_id = ShardId(fleet.repos[0].namespace_id, entity, API, 0)
        key = day_row.row_key(shard_id, day_row.day_of(hour))
        body = {"Key": key.attributes, "ConsistentRead": True}
        return "Item" in self.client.call("GetItem", body)

    def expire(self, now_s):
        for item in self.scan():
            if "ttl" in item and int(item["ttl"]["N"]) < now_s:
                key = {name: item[name] for name in ("PK", "SK")}
                self.client.call("DeleteItem", {"Key": key})

    def scan(self):
        body, items = {"ConsistentRead": True}, []
        while True:
            answer = self.client.call("Scan", body)
            items += answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                return items
            body["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


ROOT_PATH = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])


class OnModel:
    """The model table, in virtual time."""

    def __init__(self, loop):
        self.loop, self.model = loop, ModelTable()
        self.client = self

    @property
    def table(self):
        return self.model.name

    def call(self, operation, body):
        request = json.loads(body) if isinstance(body, str) else body
        try:
            return self.model.call(operation, request, self.loop.now_s)
        except Refusal as refusal:
            raise_refusal(refusal, operation)

    async def engines(self, clock):
        settings = Settings(clock=clock, usage_retention_days=RETENTION_DAYS)
        network = Network(random.Random(0), slow_s=0.002)
        return [
            await prepared_engine(ModelClient(self.model, self.loop, network), settings)
            for _ in range(CLIENTS)
        ]

    def records(self):
        records = [change.record() for change in self.model.stream]
        self.model.stream.clear()
        return records

    def expire(self, now_s):
        self.model.expire(now_s)


async def run(place, consumptions, *, delivers, entities=ENTITIES):
    """Hours of consumption around midnight, and one more after everything has expired."""
    fleet = Fleet(consumptions, entities)
    await fleet.open(await place.engines(fleet.clock))
    deliveries = Deliveries(place.client)

    async def between():
        if delivers:  # among clients that go on; the mode changes all the time
            deliveries.deliver(place.records(), fleet.chance.choice(MODES))

    for number in range(HOURS):
        await fleet.hour(consumptions // HOURS, between)
        if isinstance(place, OnServer):
            entity, hour = f"{KILLED}{number}", fleet.clock() // HOUR_MS
            written = place.kill_a_client(fleet, entity)
            fleet.admitted[entity, hour] += written
            fleet.used[entity, hour, "rpm"] += written
            fleet.entities.append(entity)
            fleet.open_at_kill[entity, hour] = partial(place.has_row, fleet, entity, hour)
        await fleet.check(entities=SOME)
        fleet.next_hour()
        await fleet.end_held()
    await fleet.check()
    if not delivers:  # an hour late, and in every way
        records = place.records()
        for mode in MODES:
            deliveries.deliver(records, mode)
        await fleet.check()
    fleet.next_hour(LONGER_THAN_KEPT)
    place.expire(fleet.clock() // 1000)
    first_hour = fleet.clock() // HOUR_MS
    await fleet.hour(consumptions // 10)
    await fleet.check(first_hour=first_hour, entities=SOME)
    for repo in fleet.repos:
        await repo.close()
    return fleet, deliveries


@pytest.mark.parametrize(
    ("consumptions", "entities"),
    [(SHORT, FEW), pytest.param(MIDDLE, ENTITIES, marks=pytest.mark.slow)],
    ids=["short", "middle"],
)
@pytest.mark.parametrize(
    "delivers",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["late-processor", "processor"],
)
async def test_every_figure_equals_the_ledger(
    server_table, endpoint, delivers, consumptions, entities
):
    place = OnServer(server_table, endpoint)
    fleet, deliveries = await run(place, consumptions, delivers=delivers, entities=entities)
    assert deliveries.hours > 0
    assert all(fleet.counts[kind] for kind in ("splits", "merges", "deletions", "re-bases"))


@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_every_figure_equals_the_ledger_of_many_stream_records(server_table, endpoint):
    await run(OnServer(server_table, endpoint), STREAMED, delivers=True)


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("delivers", [False, True], ids=["late-processor", "processor"])
def test_every_figure_equals_a_long_ledger(delivers):
    with virtual_time(1) as loop:
        loop.run_until_complete(run(OnModel(loop), LONG, delivers=delivers))

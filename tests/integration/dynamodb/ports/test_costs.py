"""What each operation costs, indexes included, as the store bills it and the documents say."""

from functools import partial

from tests.integration.dynamodb.ports.world import NOW_MS, NS, delete_limits, limits, set_limits
from tests.support.dynamodb.usage_rows import stored_rows
from tests.support.hours import hour_of
from tests.support.usage_totals import read_page
from zae_limiter import schema
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.usage import BucketHour
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import n
from zae_limiter.models.entity import Entity
from zae_limiter.schema import PARTITIONS
from zae_limiter.usage.report import UsageQuery


class Meter:
    """Calls, read and write capacity units of one operation."""

    def __init__(self, proxy):
        self._proxy = proxy

    async def __call__(self, call):
        with self._proxy.measure() as seen:
            await call
        return seen.calls, seen.rcu, seen.wcu


async def test_limits(proxied, proxy):
    cost, configs = Meter(proxy), proxied.configs

    def put(*level, rate=1):
        return set_limits(configs, level, limits(rate))

    assert await cost(put("user", "api", rate=2)) == (2, 1, 13)
    assert await cost(put("user", "api")) == (2, 1, 7)
    assert await cost(put("user", "api")) == (2, 2, 0)  # is it purged?
    assert await cost(put("user", "api")) == (1, 1, 0)
    assert await cost(put("other", "api")) == (2, 1, 11)
    assert await cost(put("", "api")) == (2, 1, 11)
    assert await cost(put("", "")) == (2, 1, 5)
    assert await cost(configs.get(NS, "user", "api")) == (1, 1, 0)
    assert await cost(configs.resources_with_defaults(NS)) == (1, 1, 0)
    assert await cost(configs.resources_with_entity_configs(NS)) == (1, 1, 0)
    assert await cost(configs.configured_entities(NS, "api", "", None)) == (1, 0.5, 0)
    assert await cost(delete_limits(configs, ("user", "api"))) == (
        2,
        2,
        11,
    )
    assert await cost(delete_limits(configs, ("user", "api"))) == (1, 2, 0)


async def test_snapshots(ports, proxied, proxy):
    cost = Meter(proxy)
    assert await cost(proxied.configs.snapshot(NS, "user", "api")) == (1, 3, 0)
    assert await cost(proxied.configs.snapshot(NS, "user", "api", fresh=True)) == (1, 10, 0)


async def test_entities(proxied, proxy, raw):
    cost, entities = Meter(proxy), proxied.entities
    child = Entity("user", parent_id="team")
    assert await cost(entities.create(NS, child, NOW_MS, None)) == (2, 1, 7)  # is it purged?
    assert await cost(entities.create(NS, Entity("team"), NOW_MS, None)) == (1, 0, 6)
    assert await cost(entities.get(NS, "user")) == (1, 1, 0)
    assert await cost(entities.children(NS, "team")) == (1, 0.5, 0)
    change = {"cascade": True, "now_ms": NOW_MS, "principal": None}
    assert await cost(entities.set_parent(NS, "user", "club", **change)) == (2, 1, 7)
    assert await cost(entities.set_parent(NS, "user", "club", **change)) == (1, 1, 0)
    assert await cost(entities.set_parent(NS, "user", None, **change)) == (2, 1, 6)
    assert await cost(entities.set_parent(NS, "user", "team", **change)) == (2, 1, 6)
    assert await cost(entities.delete(NS, "user", NOW_MS, None)) == (3, 1.5, 7)
    assert await cost(entities.delete(NS, "user", NOW_MS, None)) == (2, 1.5, 0)
    await set_limits(proxied.configs, ("team", "api"), limits(1))
    place = (NS, "team", "api")
    unsplit = {bucket_item.SHARDS: n(1), bucket_item.GENERATION: n(7)}
    raw.put({**keys.bucket(*place).attributes, **bucket_item.index_keys(*place), **unsplit})
    assert await cost(entities.delete(NS, "team", NOW_MS, None)) == (4, 3.5, 19)


async def test_namespaces(proxied, proxy):
    cost, namespaces = Meter(proxy), proxied.namespaces
    assert await cost(namespaces.register(("red",), NOW_MS)) == (2, 1, 9)
    assert await cost(namespaces.register(("red",), NOW_MS)) == (1, 1, 0)
    assert await cost(namespaces.find("red")) == (1, 1, 0)
    assert await cost(namespaces.all()) == (1, 1, 0)
    red = (await namespaces.find("red")).namespace_id
    await set_limits(proxied.configs, ("user", "api"), limits(1), namespace_id=red)
    assert await cost(namespaces.soft_delete("red", NOW_MS)) == (2, 1, 8)
    assert await cost(namespaces.recover(red, NOW_MS)) == (3, 2, 8)
    await namespaces.soft_delete("red", NOW_MS)
    assert await cost(namespaces.begin_purge(red)) == (2, 1, 4)
    partitions = schema.PARTITIONS
    assert await cost(namespaces.purge_batch(red, 500)) == (partitions + 1, partitions / 2, 7)
    assert await cost(namespaces.purge_batch(red, 500)) == (partitions, partitions / 2, 0)
    assert await cost(namespaces.finish_purge(red, NOW_MS)) == (2, 1, 9)


async def test_history(proxied, proxy, raw):
    cost, hourly = Meter(proxy), UsageQuery.parse("hourly", None, None)
    hours = [hour_of(NOW_MS // HOUR_MS + hour, {"rpm": 1}, 1) for hour in range(100)]
    raw.put(*stored_rows(NS, [BucketHour("user", "api", each) for each in hours]))
    page = partial(read_page, proxied.usage, NS)
    # The bucket, which has no live hours, and 4 rows of some 500 bytes, consistently.
    assert await cost(page("user", "api", hourly, limit=50)) == (2, 2, 0)
    # The partitions of the index, then the rows by key.
    calls, units, written = await cost(page(None, "api", hourly, limit=50))
    assert (calls, written) == (PARTITIONS + 1, 0)
    assert units == PARTITIONS / 2 + 4
    assert await cost(proxied.audit.events(NS, "user", None, 100)) == (1, 1, 0)
    assert await cost(proxied.documents.get(NS, "version")) == (1, 1, 0)
    assert await cost(proxied.documents.put(NS, "version", {})) == (2, 1, 2)  # is it purged?
    assert await cost(proxied.documents.put(NS, "version", {})) == (1, 0, 1)

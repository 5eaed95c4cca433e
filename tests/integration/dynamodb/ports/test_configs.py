"""Stored limits: their form, what a snapshot costs, and listings over several pages."""

import asyncio

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.ports.world import NOW_MS, NS, delete_limits, limits, set_limits
from zae_limiter import schema
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.items.stored.registries import resource_count
from zae_limiter.models.config import LevelConfig, OnUnavailable, SharedConfig
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit


async def put(ports, entity_id, resource, config, principal=None):
    await set_limits(ports.configs, (entity_id, resource), config, principal=principal)


async def delete(ports, entity_id, resource):
    return (await delete_limits(ports.configs, (entity_id, resource))).is_changed


async def version(ports):
    return (await ports.configs.snapshot(NS, "anybody", "api", fresh=True)).version


# --- stored form


async def test_an_entity_s_limits_are_one_flat_item(ports, raw):
    config = LevelConfig((Limit("tpm", 200, 100, 60), Limit.per_hour("rpm", 5)))
    await put(ports, "user", "gpt-4", config)
    item = raw.get(keys.entity_config(NS, "user", "gpt-4"))
    assert item.pop("rev")["S"] == (await ports.audit.events(NS, "user", None, 1))[0].event_id
    assert item == {
        "PK": s("ns-1/ENTITY#user"),
        "SK": s("#CONFIG#gpt-4"),
        "GSI3PK": s("ns-1/ENTITY_CONFIG#gpt-4"),
        "GSI3SK": s("user"),
        "GSI4PK": s(schema.gsi4_pk_namespace("ns-1", "user")),
        "entity_id": s("user"),
        "resource": s("gpt-4"),
        "limit_names": s("tpm,rpm"),
        "l_tpm_cp": n(200),
        "l_tpm_ra": n(100),
        "l_tpm_rp": n(60),
        "l_rpm_cp": n(5),
        "l_rpm_ra": n(5),
        "l_rpm_rp": n(3600),
    }


async def test_the_system_s_limits_stand_beside_the_version(ports, raw):
    await put(ports, "", "", LevelConfig(limits(10).limits, OnUnavailable.ALLOW))
    await put(ports, "user", "api", limits(5))
    item = raw.get(keys.system_config(NS))
    assert (item["on_unavailable"], item["config_version"]) == (s("allow"), n(2))
    assert item["l_rpm_cp"] == n(10)
    assert await delete(ports, "", "")
    assert set(raw.get(keys.system_config(NS))) == {"PK", "SK", "GSI4PK", "config_version"}
    assert not await delete(ports, "", "")
    assert await version(ports) == 3


async def test_all_limits_of_the_system_can_be_replaced_by_as_many_others(ports):
    first = LevelConfig(tuple(Limit.per_minute(f"first-{i}", i + 1) for i in range(32)))
    second = LevelConfig(tuple(Limit.per_minute(f"second-{i}", i + 1) for i in range(32)))
    await put(ports, "", "", first)
    await put(ports, "", "", second)
    assert await ports.configs.get(NS, "", "") == second


async def test_every_item_of_a_namespace_can_be_found_for_its_purge(ports, raw):
    await put(ports, "", "", limits(1))
    await put(ports, "", "api", limits(1))
    await put(ports, "user", "api", limits(1))
    await ports.entities.create(NS, Entity("user", parent_id="team"), NOW_MS, None)
    await ports.documents.put(NS, "provisioner", {})
    items = raw.all()
    assert {item["PK"]["S"].split("/")[0] for item in items} == {NS}
    partitions = [s(partition) for partition in schema.gsi4_partitions(NS)]
    assert [item for item in items if item.get("GSI4PK") not in partitions] == []
    assert len({item["GSI4PK"]["S"] for item in items}) > 1


async def test_limits_written_by_other_means_are_read_replaced_and_deleted(ports, raw):
    key = keys.entity_config(NS, "user", "api")
    foreign = {
        **key.attributes,
        "l_b_cp": n(5),
        "l_b_ra": n(5),
        "l_b_rp": n(60),
        "l_a_cp": n(7),
        "l_a_ra": n(7),
        "l_a_rp": n(60),
        "comment": s("by hand"),
        "config_version": n(3),
    }
    raw.put(foreign)
    a, b = Limit.per_minute("a", 7), Limit.per_minute("b", 5)
    assert await ports.configs.get(NS, "user", "api") == LevelConfig((a, b))
    await put(ports, "user", "api", limits(9))
    assert await ports.configs.get(NS, "user", "api") == limits(9)
    raw.put(foreign)
    assert await delete(ports, "user", "api")
    assert raw.get(key) is None


async def test_damaged_limits_are_an_error_that_names_them_and_can_be_replaced(ports, raw):
    key = keys.resource_config(NS, "api")
    raw.put({**key.attributes, "l_rpm_cp": n(5)})
    with pytest.raises(RateLimiterUnavailable, match=r"damaged \(ns-1/RESOURCE#api #CONFIG\)"):
        await ports.configs.get(NS, "", "api")
    await put(ports, "", "api", limits(9))
    assert await ports.configs.get(NS, "", "api") == limits(9)
    (event,) = await ports.audit.events(NS, "$RESOURCE:api", None, 10)
    assert event.details["previous"] == {"damaged": True}


# --- registries


async def test_the_registries_count_exactly(ports, raw):
    def counted(resource):
        return resource_count(raw.get(keys.entity_config_resources(NS)), resource)

    for entity in ("a", "b", "a"):
        await put(ports, entity, "api", limits(1))
    await put(ports, "a", "_default_", limits(1))
    await put(ports, "", "api", limits(1))
    await put(ports, "", "api", limits(2))
    assert (counted("api"), counted("_default_")) == (2, 1)
    assert await ports.configs.resources_with_entity_configs(NS) == ["_default_", "api"]
    assert await delete(ports, "a", "api")
    assert not await delete(ports, "a", "api")
    assert counted("api") == 1
    assert await delete(ports, "b", "api")
    assert "r_api" not in raw.get(keys.entity_config_resources(NS))
    assert await ports.configs.resources_with_entity_configs(NS) == ["_default_"]
    assert await ports.configs.resources_with_defaults(NS) == ["api"]
    assert await delete(ports, "", "api")
    assert await ports.configs.resources_with_defaults(NS) == []


@pytest.mark.fast("SK", "a/b.c-d_e")
@pytest.mark.parametrize("resource", ["PK", "SK", "GSI4PK", "a/b.c-d_e"])
async def test_a_resource_may_be_called_like_an_attribute(ports, resource):
    await put(ports, "user", resource, limits(1))
    await put(ports, "", resource, limits(1))
    assert await ports.configs.resources_with_entity_configs(NS) == [resource]
    assert await ports.configs.resources_with_defaults(NS) == [resource]


async def test_entities_with_limits_are_listed_over_several_pages(ports, raw):
    names = [f"{number:04}{'x' * 252}" for number in range(2500)]
    raw.put(
        *(
            {
                **keys.entity_config(NS, name, "api").attributes,
                "GSI3PK": s(schema.gsi3_pk_entity_config(NS, "api")),
                "GSI3SK": s(name),
            }
            for name in names
        )
    )
    assert await ports.configs.configured_entities(NS, "api", "", None) == names
    assert await ports.configs.configured_entities(NS, "api", names[1000], 3) == names[1001:1004]
    assert await ports.configs.configured_entities(NS, "api", names[-2], 3) == names[-1:]


# --- snapshots


async def fill(ports):
    await put(ports, "", "", limits(1))
    await put(ports, "", "api", limits(2))
    await put(ports, "user", "_default_", limits(3))
    await put(ports, "user", "api", limits(4))
    await ports.entities.create(NS, Entity("user", parent_id="team"), NOW_MS, None)


async def test_a_snapshot_is_one_cheap_read_and_shows_the_bucket(ports, proxied, proxy, raw):
    await fill(ports)
    bucket = {**keys.bucket(NS, "user", "api").attributes, "t_rpm": n(5)}
    raw.put(bucket)
    with proxy.measure() as seen:
        found = await proxied.configs.snapshot(NS, "user", "api")
    assert (seen.operations, seen.rcu) == ({"BatchGetItem": 1}, 3)
    assert found.version == 4
    assert (found.system, found.resource) == (limits(1), limits(2))
    assert (found.entity_default, found.entity_resource) == (limits(3), limits(4))
    assert found.entity == Entity("user", parent_id="team")
    assert proxied.witness.entities == [(NS, "user", found.entity)]
    assert proxied.witness.buckets == [(NS, "user", "api", bucket)]


async def test_what_entities_share_is_not_read_again(ports, proxied, proxy):
    await fill(ports)
    shared = SharedConfig(7, limits(8), None)
    with proxy.measure() as seen:
        found = await proxied.configs.snapshot(NS, "user", "api", shared=shared)
    assert (seen.operations, seen.rcu) == ({"BatchGetItem": 1}, 2)
    assert (found.version, found.system, found.resource) == (7, None, limits(8))
    assert (found.entity_default, found.entity_resource) == (limits(3), limits(4))


async def test_a_fresh_snapshot_is_of_one_moment(ports, proxied, proxy):
    await fill(ports)
    with proxy.measure() as seen:
        found = await proxied.configs.snapshot(
            NS, "user", "api", shared=SharedConfig(7, limits(8), None), fresh=True
        )
    assert seen.operations == {"TransactGetItems": 1}
    assert (found.version, found.system, found.resource) == (4, limits(1), limits(2))
    assert proxied.witness.buckets == []


async def test_a_snapshot_of_nothing_is_empty(ports):
    for fresh in (False, True):
        found = await ports.configs.snapshot(NS, "nobody", "api", fresh=fresh)
        assert (found.version, found.entity, found.system) == (0, None, None)
        assert (found.resource, found.entity_default, found.entity_resource) == (None, None, None)


async def test_the_default_resource_is_asked_for_once(ports):
    await fill(ports)
    for fresh in (False, True):
        found = await ports.configs.snapshot(NS, "user", "_default_", fresh=fresh)
        assert found.entity_default == found.entity_resource == limits(3)


async def test_what_was_changed_here_is_read_consistently_for_a_while(proxied, proxy):
    async def is_consistent(namespace_id):
        with proxy.measure() as seen:
            await proxied.configs.snapshot(namespace_id, "user", "api")
        (request,) = seen.of("BatchGetItem")
        return request.body["RequestItems"][proxied.client.table]["ConsistentRead"]

    assert not await is_consistent(NS)
    await put(proxied, "user", "api", limits(1))
    assert await is_consistent(NS)
    assert not await is_consistent("another")
    await proxied.entities.create("another", Entity("user"), NOW_MS, None)
    assert await is_consistent("another")


# --- what can go wrong


@pytest.mark.fast("lose_answer", "cut_answer", "late")
@pytest.mark.parametrize("kind", ["lose_answer", "error_after", "cut_answer", "garble", "late"])
async def test_a_change_without_an_answer_is_made_and_logged_once(proxied, proxy, raw, kind):
    with proxy.fault(kind, operation="TransactWriteItems", times=1, delay_ms=50):
        await put(proxied, "user", "api", limits(1))
    with proxy.fault(kind, operation="TransactWriteItems", times=1, delay_ms=50):
        await put(proxied, "user", "api", limits(2))
    with proxy.fault(kind, operation="TransactWriteItems", times=1, delay_ms=50):
        assert await delete(proxied, "user", "api")
    await asyncio.sleep(0.1)
    assert await version(proxied) == 3
    events = await proxied.audit.events(NS, "user", None, 10)
    assert [event.action for event in events] == ["limits_deleted", "limits_set", "limits_set"]
    assert "r_api" not in raw.get(keys.entity_config_resources(NS))


async def test_an_outage_is_decided_within_the_timeout(proxied, proxy):
    for operation in ("GetItem", "TransactWriteItems"):
        with proxy.fault("black_hole", operation=operation):
            with Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
                await put(proxied, "user", "api", limits(1))
            assert watch.within(proxied.client.request_timeout)

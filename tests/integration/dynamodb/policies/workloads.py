"""Everything that each role does, as calls of the public API: acquire, manage, read."""

import contextlib

from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.admission.shards.tree import Shard
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.deletions import ALL

HOUR_MS = 3_600_000
API, USER, PARENT = "api", "user-1", "org-1"
RPM = Limit.per_minute("rpm", 100)
TPM = Limit.per_minute("tpm", 1000)


async def acquire(world, proxy):
    """A service: charges, refunds, rejections, turned hours, splits, gathers and merges."""
    client = await world.client(proxy, provision="never")
    for _ in range(2):  # cold, then warm
        await client.take(rpm=1)
    with contextlib.suppress(ZeroDivisionError):
        async with client.acquire(rpm=1):
            raise ZeroDivisionError
    async with client.giving_back(rpm=5):
        pass
    await client.owe(rpm=1)
    assert not await client.granted(rpm=101)
    await client.take("child-1", rpm=1)  # cascades
    await client.take("stranger", rpm=1, limits=[Limit.per_minute("rpm", 5)])
    await client.limiter.available(USER, API)
    await client.limiter.check_availability(USER, API, {"rpm": 1})
    await client.limiter.time_until_available(USER, API, {"rpm": 1})
    assert await client.limiter.is_available()
    await _pauses(client)
    await _hours(world, client)
    await _shards(client)
    other = await world.client(proxy, provision="never")
    await _sweep(world, client, other)
    await client.repo.close()


async def _pauses(client):
    """What a provider's refusal leads to: of a bucket that exists, and of one that does not."""
    for entity_id in (USER, "unused"):
        await client.limiter.pause(entity_id, API, 30)
        assert not await client.granted(entity_id, rpm=1)
        await client.limiter.pause(entity_id, API, 0)
        await client.take(entity_id, rpm=1)


async def _hours(world, client):
    for _ in range(3):  # the third turn stores the hour of the second one first
        world.clock.advance(hours=1)
        await client.take(rpm=1)
        await client.take("child-1", rpm=1)


async def _shards(client):
    await client.split_into(2)
    for _ in range(8):
        await client.take(rpm=1)
    with contextlib.suppress(RateLimitExceeded):
        await client.take(rpm=80)  # more than one shard holds: gathered
    assert await client.merge(Shard(0, 2))
    await client.take(rpm=1)


async def _sweep(world, client, other):
    """A split that finds a shard which a deleted bucket has left behind."""
    await client.take("swept", rpm=1)
    await client.split(Shard(0, 1), entity_id="swept")
    world.remove(0, "swept")
    await other.take("swept", rpm=1)
    assert await other.split(Shard(0, 1), entity_id="swept")


async def manage(repo, world):
    """An administrator of one namespace. Keys name the method that each step calls."""
    change = {
        "create_entity": lambda: repo.create_entity("new", parent_id=PARENT, cascade=True),
        "ensure_entity": lambda: repo.ensure_entity("newer", parent_id=PARENT, cascade=True),
        "set_parent": lambda: repo.set_parent("new", None),
        "set_limits": lambda: repo.set_limits("new", [RPM], API),
        "set_resource_defaults": lambda: repo.set_resource_defaults(API, [RPM]),
        "set_system_defaults": lambda: repo.set_system_defaults([RPM]),
        "set_mode": lambda: repo.set_mode(API, "new", mode="bypass"),
        "reset_bucket": lambda: repo.reset_bucket(USER, API),
        "top_up": lambda: repo.top_up(USER, API, {"rpm": 5}),
        "delete_limits": lambda: repo.delete_limits("new", API),
        "delete_resource_defaults": lambda: repo.delete_resource_defaults(API),
        "delete_system_defaults": repo.delete_system_defaults,
        "delete_entity": lambda: repo.delete_entity(USER),
        "put_provisioner_state": lambda: repo.put_provisioner_state({"page": 1}),
        "provisioner": lambda: _manifests(repo.provisioner()),
    }
    for step in change.values():
        await step()
    return set(change)


async def _manifests(provisioner):
    """Create, change and delete limits and parents; the state is of several pages."""
    entities = {
        f"an-entity-with-a-long-name-{number}": {"parent": PARENT, "limits": {"rpm": 5}}
        for number in range(50)
    }
    declared = {"system": {"limits": {"rpm": 1}}, "entities": entities}
    await provisioner.apply(LimitsManifest.from_dict(declared))
    await provisioner.apply(
        LimitsManifest.from_dict({"system": {"on_unavailable": "block"}}), allow_deletions=ALL
    )
    await provisioner.diff(await provisioner.export())
    await provisioner.apply(LimitsManifest(), allow_deletions=ALL)


async def read(repo, world):
    """A dashboard of one namespace."""
    look = {
        "get_audit_events": repo.get_audit_events,
        "get_bucket": lambda: repo.get_bucket(USER, API, "rpm"),
        "get_bucket_in_force": lambda: repo.get_bucket_in_force(USER, API),
        "get_buckets": lambda: repo.get_buckets(USER),
        "get_children": lambda: repo.get_children(PARENT),
        "get_entity": lambda: repo.get_entity(USER),
        "get_last_use": lambda: repo.get_last_use(USER, API),
        "get_limits": lambda: repo.get_limits(USER, API),
        "get_mode": lambda: repo.get_mode(API, USER),
        "get_namespace": lambda: repo.get_namespace(world.namespace),
        "get_provisioner_state": repo.get_provisioner_state,
        "get_resource_buckets": lambda: repo.get_resource_buckets(API),
        "get_resource_capacity": lambda: repo.get_resource_capacity(API, "rpm"),
        "get_resource_defaults": lambda: repo.get_resource_defaults(API),
        "get_system_defaults": repo.get_system_defaults,
        "get_top_usage": lambda: repo.get_top_usage("rpm"),
        "get_usage_snapshots": repo.get_usage_snapshots,
        "get_usage_summary": lambda: repo.get_usage_summary(USER),
        "resolve_mode": lambda: repo.resolve_mode(USER, API),
        "get_version_record": repo.get_version_record,
        "list_bucket_entries": repo.list_bucket_entries,
        "list_buckets": repo.list_buckets,
        "list_entities": repo.list_entities,
        "list_entities_with_custom_limits": lambda: repo.list_entities_with_custom_limits(API),
        "list_namespaces": repo.list_namespaces,
        "list_orphan_namespaces": repo.list_orphan_namespaces,
        "list_resources": repo.list_resources,
        "list_resources_with_defaults": repo.list_resources_with_defaults,
        "list_resources_with_entity_configs": repo.list_resources_with_entity_configs,
        "ping": repo.ping,
        "read_buckets": lambda: repo.read_buckets([(USER, API)]),
        "resolve_limits": lambda: repo.resolve_limits(USER, API),
        "get_limits_in_force": lambda: repo.get_limits_in_force(USER, API),
        "superseded_limits": lambda: repo.superseded_limits([Limit.per_minute("x", 1)], USER),
    }
    for step in look.values():
        await step()
    return set(look)


async def administer(repo, name):
    """What only an administrator of the whole table does: namespaces and the version record."""
    administration = {
        "register_namespace": lambda: repo.register_namespace(name),
        "register_namespaces": lambda: repo.register_namespaces([f"{name}-2"]),
        "delete_namespace": lambda: repo.delete_namespace(name),
    }
    answers = {}
    for method, step in administration.items():
        answers[method] = await step()
        if method == "register_namespace":  # something to be purged
            await (await repo.namespace(name)).create_entity(USER)
    await repo.recover_namespace(answers["delete_namespace"])
    orphan = await repo.delete_namespace(name)
    await repo.purge_namespace(orphan)
    await repo.set_version_record(await repo.get_version_record())
    return {*administration, "recover_namespace", "purge_namespace", "set_version_record"}


async def prepare(world):
    """Give the namespace limits, a family and usage."""
    client = await world.client()
    repo = client.repo
    await repo.set_system_defaults([RPM])
    await repo.set_resource_defaults(API, [RPM])
    await repo.create_entity(PARENT)
    await repo.create_entity("child-1", parent_id=PARENT, cascade=True)
    await repo.set_limits(PARENT, [RPM], API)
    return client

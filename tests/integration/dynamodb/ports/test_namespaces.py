"""The registry of namespaces: races between its steps, and purges that are interrupted."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.dynamodb.ports.world import NOW_MS, limits, set_limits
from zae_limiter import schema
from zae_limiter.exceptions import NamespaceNotFoundError, NamespaceStateError, PermissionDenied
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import s
from zae_limiter.items.stored.keys import Key
from zae_limiter.models.entity import Entity


async def register(ports, name):
    return (await ports.namespaces.register((name,), NOW_MS))[name]


async def outcomes(*calls):
    """Results, and the names of errors."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    return [type(each).__name__ if isinstance(each, Exception) else each for each in found]


async def actions(ports, name):
    events = await ports.audit.events("_", f"$NAMESPACE:{name}", None, 100)
    return [event.action.removeprefix("namespace_") for event in reversed(events)]


# --- the registry


async def test_a_namespace_is_found_by_name_and_by_id(ports, raw):
    namespace_id = await register(ports, "red")
    by_name, by_id = keys.namespace_by_name("red"), keys.namespace_by_id(namespace_id)
    assert by_name == ("_/SYSTEM#", "#NAMESPACE#red")
    assert by_id == ("_/SYSTEM#", f"#NSID#{namespace_id}")
    common = {"status": s("active"), "created_at": s("2026-01-01T00:00:00Z")}
    assert raw.get(by_name) == {
        **by_name.attributes,
        **common,
        "GSI4PK": s(schema.gsi4_pk_namespace("_", "_/SYSTEM##NAMESPACE#red")),
        "namespace_id": s(namespace_id),
    }
    assert raw.get(by_id) == {
        **by_id.attributes,
        **common,
        "GSI4PK": s(schema.gsi4_pk_namespace("_", f"_/SYSTEM##NSID#{namespace_id}")),
        "namespace": s("red"),
    }
    await ports.namespaces.soft_delete("red", NOW_MS)
    assert raw.get(by_name) is None
    assert raw.get(by_id)["status"] == s("deleted")
    assert raw.get(by_id)["deleted_at"] == s("2026-01-01T00:00:00Z")


async def test_many_registrations_of_one_name_get_the_same_id(ports, raw):
    ids = await asyncio.gather(*(register(ports, "red") for _ in range(20)))
    assert len(set(ids)) == 1
    assert [each.namespace_id for each in await ports.namespaces.all()] == ids[:1]
    assert await actions(ports, "red") == ["registered"]


def test_threads_that_register_the_same_names_get_the_same_ids(sync_ports):
    def registered(number):
        return sync_ports.namespaces.register(("red", "blue", f"own-{number}"), NOW_MS)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(registered, range(20)))
    assert len({ids["red"] for ids in found}) == len({ids["blue"] for ids in found}) == 1
    assert len(sync_ports.namespaces.all()) == 22


async def test_many_names_are_registered_in_few_calls(proxied, proxy):
    names = tuple(f"tenant-{number:03}" for number in range(100))
    first = await proxied.namespaces.register(names[10:20] * 2, NOW_MS)
    with proxy.measure() as seen:
        ids = await proxied.namespaces.register(names, NOW_MS)
    assert seen.calls == 8
    assert list(ids) == list(names)
    assert first.items() <= ids.items()
    assert len(set(ids.values())) == 100
    assert [each.name for each in await proxied.namespaces.all()] == list(names)


@pytest.mark.parametrize("kind", ["lose_answer", "error_after", "late"])
async def test_steps_whose_answers_were_lost_are_taken_once(proxied, proxy, kind):
    with proxy.fault(kind, operation="TransactWriteItems", times=1, delay_ms=50):
        namespace_id = await register(proxied, "red")
    with proxy.fault(kind, operation="TransactWriteItems", times=1, delay_ms=50):
        assert await proxied.namespaces.soft_delete("red", NOW_MS + 1) == namespace_id
    with proxy.fault(kind, operation="TransactWriteItems", times=1, delay_ms=50):
        assert await proxied.namespaces.recover(namespace_id, NOW_MS + 2) == "red"
    await asyncio.sleep(0.1)
    assert await actions(proxied, "red") == ["registered", "deleted", "recovered"]
    (only,) = await proxied.namespaces.all()
    assert (only.status, only.deleted_at) == ("active", None)


async def test_of_many_deletions_of_a_namespace_one_succeeds(ports):
    namespace_id = await register(ports, "red")
    found = await outcomes(*(ports.namespaces.soft_delete("red", NOW_MS) for _ in range(10)))
    assert sorted(found) == sorted([namespace_id] + ["NamespaceNotFoundError"] * 9)
    assert await actions(ports, "red") == ["registered", "deleted"]


async def test_a_recovery_and_a_purge_exclude_each_other(ports):
    for number in range(10):
        namespace_id = await register(ports, f"red-{number}")
        await ports.namespaces.soft_delete(f"red-{number}", NOW_MS)
        recovered, purging = await outcomes(
            ports.namespaces.recover(namespace_id, NOW_MS),
            ports.namespaces.begin_purge(namespace_id),
        )
        found = {each.namespace_id: each.status for each in await ports.namespaces.all()}
        if purging == 0:
            assert (recovered, found[namespace_id]) == ("NamespaceStateError", "purging")
        else:
            assert purging == "NamespaceStateError"
            assert (recovered, found[namespace_id]) == (f"red-{number}", "active")


async def test_a_recovery_and_a_registration_exclude_each_other(ports):
    for number in range(10):
        name = f"red-{number}"
        old = await register(ports, name)
        await ports.namespaces.soft_delete(name, NOW_MS)
        recovered, new = await outcomes(
            ports.namespaces.recover(old, NOW_MS), register(ports, name)
        )
        assert (await ports.namespaces.find(name)).namespace_id == new
        assert recovered == (name if new == old else "NamespaceStateError")


# --- purges


async def filled(ports, raw, name, rows):
    namespace_id = await register(ports, name)
    await set_limits(ports.configs, ("", ""), limits(1), namespace_id=namespace_id)
    await ports.entities.create(namespace_id, Entity("user", parent_id="team"), NOW_MS, None)
    raw.put(
        *(
            {
                **Key(f"{namespace_id}/BUCKET#user-{number}#api#0", "#STATE").attributes,
                "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id, f"user-{number}")),
            }
            for number in range(rows)
        )
    )
    return namespace_id


async def purge(ports, namespace_id):
    removed = await ports.namespaces.begin_purge(namespace_id)
    while batch := await ports.namespaces.purge_batch(namespace_id, 500):
        removed += batch
    await ports.namespaces.finish_purge(namespace_id, NOW_MS)
    return removed


async def test_a_purge_removes_all_of_one_namespace_and_nothing_else(ports, raw):
    red, blue = await filled(ports, raw, "red", 1300), await filled(ports, raw, "blue", 40)
    before = len(raw.of(red)), raw.of(blue)
    assert before[0] > 1300
    await ports.namespaces.soft_delete("red", NOW_MS)
    assert await purge(ports, red) == before[0]
    assert raw.of(red) == []
    assert raw.of(blue) == before[1]
    assert [each.name for each in await ports.namespaces.all()] == ["blue"]
    assert (await ports.namespaces.find("blue")).namespace_id == blue


async def test_a_purge_ends_although_a_client_goes_on_writing(ports, raw):
    red = await filled(ports, raw, "red", 100)
    await ports.namespaces.soft_delete("red", NOW_MS)
    await ports.namespaces.begin_purge(red)
    batches = 0
    while await ports.namespaces.purge_batch(red, 50):
        batches += 1
        assert batches < 20
        user = f"user-{batches % 3}"
        written = Key(f"{red}/BUCKET#{user}#api#0", "#STATE").attributes
        raw.put({**written, "GSI4PK": s(schema.gsi4_pk_namespace(red, user))})
    await ports.namespaces.finish_purge(red, NOW_MS)


async def test_a_purge_by_threads_removes_all(sync_ports, endpoint, boto):
    red = sync_ports.namespaces.register(("red",), NOW_MS)["red"]
    for number in range(120):
        set_limits(sync_ports.configs, (f"user-{number}", "api"), limits(1), namespace_id=red)
    sync_ports.namespaces.soft_delete("red", NOW_MS)
    assert sync_ports.namespaces.begin_purge(red) == 0
    removed = 0
    while batch := sync_ports.namespaces.purge_batch(red, 100):
        removed += batch
    sync_ports.namespaces.finish_purge(red, NOW_MS)
    assert removed == 242
    assert sync_ports.namespaces.all() == []


async def test_an_interrupted_purge_is_taken_up_again(ports, proxied, proxy, raw):
    red = await filled(ports, raw, "red", 600)
    await ports.namespaces.soft_delete("red", NOW_MS)
    with (
        proxy.fault("deny", operation="BatchWriteItem", skip=10),
        pytest.raises(PermissionDenied),
    ):
        await purge(proxied, red)
    assert 0 < len(raw.of(red)) < 600
    (orphan,) = await ports.namespaces.all()
    assert orphan.status == "purging"
    with pytest.raises(NamespaceStateError):
        await ports.namespaces.recover(red, NOW_MS)
    await purge(proxied, red)
    assert raw.of(red) == []
    assert await actions(ports, "red") == ["registered", "deleted", "purged"]


async def test_lost_answers_do_not_stop_a_purge(ports, proxied, proxy, raw):
    red = await filled(ports, raw, "red", 100)
    await ports.namespaces.soft_delete("red", NOW_MS)
    with proxy.fault("lose_answer", operation="BatchWriteItem", times=2):
        await purge(proxied, red)
    assert raw.of(red) == []


async def test_two_purges_at_once_end_both_and_are_logged_once(ports, raw):
    red = await filled(ports, raw, "red", 200)
    await ports.namespaces.soft_delete("red", NOW_MS)
    await asyncio.gather(purge(ports, red), purge(ports, red))
    assert raw.of(red) == []
    assert await actions(ports, "red") == ["registered", "deleted", "purged"]


async def test_what_was_written_after_a_purge_can_be_purged(ports, raw):
    red = await filled(ports, raw, "red", 0)
    await ports.namespaces.soft_delete("red", NOW_MS)
    await purge(ports, red)
    await set_limits(ports.configs, ("late", "api"), limits(1), namespace_id=red)
    assert await purge(ports, red) == 4
    assert raw.of(red) == []
    with pytest.raises(NamespaceNotFoundError):
        await purge(ports, red)


async def test_the_registry_itself_cannot_be_purged(ports):
    await register(ports, "red")
    with pytest.raises(NamespaceNotFoundError):
        await ports.namespaces.begin_purge("_")
    assert len(await ports.namespaces.all()) == 1
    red = await register(ports, "red")
    with pytest.raises(NamespaceStateError):
        await ports.namespaces.finish_purge(red, NOW_MS)

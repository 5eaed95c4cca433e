"""The audit log: its form, and pages of it."""

from tests.integration.dynamodb.ports.world import NOW_MS, NS, limits, set_limits
from zae_limiter import schema
from zae_limiter.admission.configuration import ConfigBatch
from zae_limiter.items.stored import audit
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import ConfigLevel, LevelChange
from zae_limiter.models.entity import Entity
from zae_limiter.naming import new_event_id


def event(number, details=None):
    return AuditEvent(
        event_id=new_event_id(NOW_MS + number),
        timestamp="2026-01-01T00:00:00Z",
        action="limits_set",
        entity_id="user",
        details=details or {},
    )


async def test_an_event_is_one_flat_item_that_expires(ports, raw):
    await set_limits(ports.configs, ("user", "api"), limits(1), now_ms=NOW_MS + 5, principal="me")
    (found,) = await ports.audit.events(NS, "user", None, 10)
    (item,) = [each for each in raw.all() if each["PK"] == s("ns-1/AUDIT#user")]
    assert item["SK"] == s(f"#AUDIT#{found.event_id}")
    assert item["ttl"] == n(NOW_MS // 1000 + 7 * 86_400)
    assert item["GSI4PK"] == s(schema.gsi4_pk_namespace(NS, "user"))
    assert (item["principal"], item["resource"]) == (s("me"), s("api"))
    assert item["timestamp"] == s("2026-01-01T00:00:00.005Z")
    assert item["action"] == s("limits_set")
    assert found.details["limits"] == [limits(1).limits[0].to_dict()]


async def test_events_of_more_than_a_megabyte_come_newest_first(ports, raw):
    events = [event(number, {"text": "x" * 5000}) for number in range(500)]
    raw.put(*(audit.encode(NS, each, 7) for each in events))
    newest_first = events[::-1]
    assert await ports.audit.events(NS, "user", None, 10**6) == newest_first
    assert await ports.audit.events(NS, "user", None, 2**70) == newest_first
    assert await ports.audit.events(NS, "user", None, 300) == newest_first[:300]
    before = newest_first[99].event_id
    assert await ports.audit.events(NS, "user", before, 10) == newest_first[100:110]
    assert await ports.audit.events(NS, "user", events[0].event_id, 10) == []
    assert await ports.audit.events(NS, "user", "", 10) == []
    assert await ports.audit.events(NS, "use", None, 10) == []


async def test_a_page_reads_no_more_than_it_shows(proxied, proxy, raw):
    raw.put(*(audit.encode(NS, event(number), 7) for number in range(200)))
    with proxy.measure() as seen:
        await proxied.audit.events(NS, "user", None, 5)
    (query,) = seen.requests
    assert query.answer["ScannedCount"] == 5


async def apply_limits(ports, ids, capacity, now_ms):
    changes = [LevelChange(ConfigLevel(i, "api"), limits(capacity).limits) for i in ids]
    batch = ConfigBatch.of(changes, now_ms, "me")
    assert await ports.configs.write(NS, batch) == len(ids)


async def test_every_event_of_a_batch_is_an_item_of_its_subject(ports, raw):
    ids = [f"entity-{number}" for number in range(20)]
    await apply_limits(ports, ids, 1, NOW_MS + 5)
    stored = [item for item in raw.all() if "/AUDIT#" in item["PK"]["S"]]
    assert {item["PK"]["S"] for item in stored} == {f"ns-1/AUDIT#{each}" for each in ids}
    assert len(stored) == len(ids)


async def test_events_of_batches_are_found_by_subject_and_before_any_id(ports):
    ids = ["user", *(f"entity-{number}" for number in range(22))]
    for number in range(1, 4):
        await apply_limits(ports, ids, number, NOW_MS + number)
        await set_limits(
            ports.configs,
            ("user", "api"),
            limits(10 + number),
            now_ms=NOW_MS + number,
            principal="hand",
        )
    everything = await ports.audit.events(NS, None, None, 1000)
    assert len(everything) == 3 * len(ids) + 3
    order = [each.event_id for each in everything]
    assert order == sorted(order, reverse=True)
    assert await ports.audit.events(NS, None, "", 10) == []
    for limit in (1, 2, 5, 1000):
        for place, each in enumerate(everything):
            older = everything[place + 1 :]
            if place % 7 == limit % 7:
                assert await ports.audit.events(NS, None, each.event_id, limit) == older[:limit]
            own = [event for event in older if event.entity_id == "user"]
            assert await ports.audit.events(NS, "user", each.event_id, limit) == own[:limit]


async def test_what_an_event_may_hold_is_read_back(ports):
    entity = Entity("ключ", name="\x00", metadata={"": "", "a": "\n"})
    await ports.entities.create(NS, entity, NOW_MS, "ü")
    (found,) = await ports.audit.events(NS, "ключ", None, 1)
    assert (found.principal, found.resource) == ("ü", None)
    assert found.details == {
        "name": "\x00",
        "parent_id": None,
        "cascade": False,
        "metadata": {"": "", "a": "\n"},
    }

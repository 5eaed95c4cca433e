"""Expired audit events as gzipped JSON lines."""

import gzip
import json
import random

import pytest

from zae_limiter.items.stored import audit
from zae_limiter.models.audit import AuditEvent
from zae_limiter_aggregator.archive import archive_objects
from zae_limiter_aggregator.stream import ExpiredEvent


def expired(number, day="2026-01-31", namespace_id="ns", **changes):
    event = AuditEvent(
        f"01H{number:04}", f"{day}T12:00:00Z", "limits_set", "user ü", "me", "api", {"n": number}
    )
    item = {**audit.encode(namespace_id, event, 90), **changes}
    return ExpiredEvent(str(1000 + number), item)


def lines(stored):
    return [json.loads(line) for line in gzip.decompress(stored.body).decode().splitlines()]


def test_events_are_written_by_day():
    events = [expired(1), expired(2, "2026-02-01"), expired(3)]
    first, second = archive_objects(events)
    assert first.name.startswith("audit/year=2026/month=01/day=31/")
    assert second.name.startswith("audit/year=2026/month=02/day=01/")
    assert first.name.endswith(".jsonl.gz")
    assert [line["event_id"] for line in lines(first)] == ["01H0001", "01H0003"]
    assert sorted(first.sequence_numbers) == ["1001", "1003"]
    assert lines(second) == [
        {
            "namespace_id": "ns",
            "event_id": "01H0002",
            "timestamp": "2026-02-01T12:00:00Z",
            "action": "limits_set",
            "entity_id": "user ü",
            "principal": "me",
            "resource": "api",
            "details": {"n": 2},
        }
    ]


def test_the_same_events_make_the_same_object():
    events = [expired(number) for number in range(20)]
    (wanted,) = archive_objects(events)
    for seed in range(5):
        delivered = events + random.Random(seed).sample(events, 7)
        random.Random(seed).shuffle(delivered)
        (stored,) = archive_objects(delivered)
        assert (stored.name, stored.body) == (wanted.name, wanted.body)
        assert set(stored.sequence_numbers) == set(wanted.sequence_numbers)
    (other,) = archive_objects(events[:-1])
    assert other.name != wanted.name


def test_namespaces_may_have_the_same_event_ids():
    (stored,) = archive_objects([expired(1), expired(1, namespace_id="other")])
    assert sorted(line["namespace_id"] for line in lines(stored)) == ["ns", "other"]


@pytest.mark.parametrize(
    "changes",
    [
        {"details": {"S": "{"}},
        {"details": {"S": "[" * 100_000}},
        {"timestamp": {"S": "yesterday"}},
        {"event_id": {"N": "5"}},
        {"PK": {"S": "ns/\ud800"}, "details": {"S": "{"}},
    ],
)
def test_a_damaged_event_is_archived_as_it_was_stored(changes):
    event = expired(1, **changes)
    ((stored,), (line,)) = (objects := archive_objects([event])), lines(objects[0])
    if "timestamp" in changes:
        assert stored.name.startswith("audit/year=0000/month=00/day=00/")
    else:
        assert line == {"namespace_id": "ns", "damaged_item": event.item}
    assert stored.sequence_numbers == ["1001"]

"""Expired audit events as objects for S3: gzipped JSON lines, one object for each day of a batch.

    audit/year=2026/month=01/day=31/{digest of the event ids}.jsonl.gz

The same events always make the same object, so a repeated delivery writes nothing new. If Lambda
divides a repeated delivery into other batches, an event may be in two objects; readers recognise
the duplicate by its ``event_id``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zae_limiter.items.stored import audit
from zae_limiter.items.stored.attributes import Item
from zae_limiter.models.audit import AuditEvent
from zae_limiter_aggregator.stream import ExpiredEvent

FOLDER = "audit"
UNKNOWN_DAY = "0000-00-00"  # the day of events whose timestamp is unreadable
_DAY_DIGITS = len("2026-01-31")
_DIGEST_BYTES = 16  # 128 bits: two objects of a day must not have the same name by chance
_encode = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, sort_keys=True, default=str
).encode


class ArchiveObject(NamedTuple):
    """An object of the archive, and the sequence numbers of the records whose events it holds."""

    name: str
    body: bytes
    sequence_numbers: list[str]


class _Line(NamedTuple):
    """One event: its id, its day, its JSON text, and the sequence number of its stream record."""

    event_id: str
    day: str
    text: str
    sequence_number: str


def archive_objects(events: Iterable[ExpiredEvent]) -> list[ArchiveObject]:
    """Return the objects that hold the events of a batch, one for each day."""
    days: dict[str, dict[str, list[_Line]]] = {}  # lines by day, then by text
    for event in events:
        line = _line(event)
        days.setdefault(line.day, {}).setdefault(line.text, []).append(line)
    return [_object(day, lines) for day, lines in sorted(days.items())]


def _object(day: str, lines_by_text: Mapping[str, list[_Line]]) -> ArchiveObject:
    """Return the object of a day. It holds each event once, sorted by id and so by time."""
    unique = sorted(lines[0] for lines in lines_by_text.values())
    event_ids = "\n".join(line.event_id for line in unique)
    digest = hashlib.blake2s(_bytes(event_ids)).hexdigest()[: 2 * _DIGEST_BYTES]
    year, month, day_of_month = day.split("-")
    text = "".join(f"{line.text}\n" for line in unique)
    return ArchiveObject(
        name=f"{FOLDER}/year={year}/month={month}/day={day_of_month}/{digest}.jsonl.gz",
        body=gzip.compress(_bytes(text), mtime=0),  # a time would change the bytes of each run
        sequence_numbers=[
            line.sequence_number for lines in lines_by_text.values() for line in lines
        ],
    )


def _line(expired: ExpiredEvent) -> _Line:
    """Return the line of an expired item; a damaged item is written as it was stored."""
    item, number = expired.item, expired.sequence_number
    namespace_id, day = _text(item, "PK").partition("/")[0], _day(item)
    try:
        event = audit.decode(item)
        text = _encode({"namespace_id": namespace_id, **_fields(event)})
        return _Line(event.event_id, day, text, number)
    except Exception:  # noqa: BLE001 - one damaged item must not stop the events behind it
        # The item is damaged. The table has deleted it, so the archive keeps it as it was stored.
        event_id = _text(item, "event_id") or _text(item, "SK")
        text = _encode({"namespace_id": namespace_id, "damaged_item": item})
        return _Line(event_id, day, text, number)


def _fields(event: AuditEvent) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "timestamp": event.timestamp,
        "action": event.action,
        "entity_id": event.entity_id,
        "principal": event.principal,
        "resource": event.resource,
        "details": event.details,
    }


def _day(item: Item) -> str:
    day = _text(item, "timestamp")[:_DAY_DIGITS]
    is_day = len(day) == _DAY_DIGITS and day.count("-") == 2 and day.replace("-", "").isdecimal()
    return day if is_day else UNKNOWN_DAY


def _bytes(text: str) -> bytes:
    """Encode text; characters that UTF-8 does not have are written as JSON escapes."""
    return text.encode("utf-8", "backslashreplace")


def _text(item: object, name: str) -> str:
    value = item.get(name) if isinstance(item, Mapping) else None
    text = value.get("S") if isinstance(value, Mapping) else None
    return text if isinstance(text, str) else ""

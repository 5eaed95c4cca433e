"""Recognition of tables that this version of zae-limiter has not written.

Every item of ours is in the index of its namespace: ``GSI4PK`` is ``{namespace id}/ALL#{k}``, and
the partition key begins with the same id. No other form of a table has both. Only the mark of a
purge may be alone in its item: the purge looks for what it removes in the index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from zae_limiter.exceptions import ForeignTableError, RateLimiterUnavailable
from zae_limiter.items.stored.attributes import DOCUMENT, Item, Value, decode_document
from zae_limiter.items.stored.configs import PURGING

# Forms of a table that ``limits export --from-table`` reads.
COMPOSITE = "composite"  # {ns}/RESOURCE#gpt-4 #CONFIG: all limits of a level in one item
PER_LIMIT = "per-limit"  # ENTITY#key-1 #LIMIT#gpt-4#rpm: an item for each limit

SCHEMA = "schema_version"  # of the version record
KINDS = ("AUDIT#", "BUCKET#", "ENTITY#", "RESOURCE#", "SYSTEM#")
MAX_NAMES = 6  # attributes that a message names; the rest is counted
MAX_KEY_CHARACTERS = 120  # of a key in a message: a table of another program may have any keys


def is_ours(item: Item) -> bool:
    """Return whether an item has the form that this version writes."""
    namespace_id, slash, _ = _text(item.get("PK")).partition("/")
    partition = _text(item.get("GSI4PK")).removeprefix(f"{namespace_id}/ALL#")
    is_mark = item.keys() == {"PK", "SK", PURGING}
    return bool(slash and namespace_id) and (partition.isdecimal() or is_mark)


def form_of(item: Item) -> str | None:
    """Return the documented form that an item's key follows; None if it follows none."""
    partition_key = _text(item.get("PK"))
    if partition_key.startswith(KINDS):
        return PER_LIMIT
    _, slash, kind = partition_key.partition("/")
    return COMPOSITE if slash and kind.startswith(KINDS) else None


def decode_version_record(item: Item, table: str) -> dict[str, Any]:
    """Return the version record; raise ForeignTableError for a record of another form."""
    try:
        record: object = decode_document(item)
    except RateLimiterUnavailable:
        record = None
    content = _record_content(item)
    if isinstance(record, dict):
        schema = record.get(SCHEMA)
        # ``set_version_record`` may have stored any document, in an item of ours.
        if type(schema) is int or is_ours(item):
            return record
        content = f"has a {DOCUMENT!r} whose {SCHEMA!r} is no whole number: {schema!r:.40}"
    raise ForeignTableError(table, f"its version record {_key(item)} {content}", form_of(item))


def foreign_items(item: Item, table: str) -> ForeignTableError:
    """Return the error about a table without a version record that has an item of another form."""
    names = _names(name for name in item if name not in ("PK", "SK"))
    found = f"it has no version record, and its item {_key(item)} has {names}"
    return ForeignTableError(table, found, form_of(item))


def other_keys(table: str, reason: object) -> ForeignTableError:
    """Return the error about a table whose keys are not PK and SK."""
    return ForeignTableError(table, f"its keys are not the texts PK and SK ({reason})")


def _record_content(item: Item) -> str:
    if DOCUMENT in item:
        return f"has a {DOCUMENT!r} that cannot be read"
    return f"has {_names(name for name in item if name not in ('PK', 'SK'))}, and no {DOCUMENT!r}"


def _names(names: Iterable[str]) -> str:
    """Return the names of attributes for a message, the first of them if there are many."""
    found = sorted(names)
    if not found:
        return "no attributes"
    shown = ", ".join(_shortened(name) for name in found[:MAX_NAMES])
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return f"the attribute{'s' if len(found) > 1 else ''} {shown}{more}"


def _key(item: Item) -> str:
    """Return the key of an item for a message."""
    parts = (_text(item[name]) or json.dumps(item[name]) for name in ("PK", "SK") if name in item)
    return repr(_shortened(" ".join(parts)))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_KEY_CHARACTERS else f"{text[:MAX_KEY_CHARACTERS]}…"


def _text(value: Value | None) -> str:
    """Return the text of an attribute; empty for an attribute of another type, or for none."""
    text = (value or {}).get("S")
    return text if isinstance(text, str) else ""

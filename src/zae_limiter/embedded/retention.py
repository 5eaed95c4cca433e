"""For how many days a store keeps usage: one number for all programs that share the store."""

from __future__ import annotations

from zae_limiter.embedded.tables import Tables
from zae_limiter.naming import RESERVED_NAMESPACE

RETENTION, DAYS = "usage_retention", "days"  # a document of the store, and its field


def stored_retention(tables: Tables) -> int | None:
    """Return for how many days the store keeps usage; None if no opener has said so yet."""
    document = tables.get_document(RESERVED_NAMESPACE, RETENTION)
    return None if document is None else document[DAYS]


def set_retention(tables: Tables, days: int) -> int | None:
    """Store for how many days usage is kept, whichever program charges; return the old number."""
    before = stored_retention(tables)
    if before != days:
        tables.put_document(RESERVED_NAMESPACE, RETENTION, {DAYS: days})
    return before

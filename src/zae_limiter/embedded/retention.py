"""The retention of usage in days, which all programs that share a store agree on."""

from __future__ import annotations

from zae_limiter.embedded.tables import Tables
from zae_limiter.naming import RESERVED_NAMESPACE

RETENTION, DAYS = "usage_retention", "days"  # a document of the store, and its field


def stored_retention(tables: Tables) -> int | None:
    """Return the days for which the store keeps usage; None if none are stored yet."""
    document = tables.get_document(RESERVED_NAMESPACE, RETENTION)
    return None if document is None else document[DAYS]


def set_retention(tables: Tables, days: int) -> int | None:
    """Store the days for which all programs keep usage; return the number before."""
    before = stored_retention(tables)
    if before != days:
        tables.put_document(RESERVED_NAMESPACE, RETENTION, {DAYS: days})
    return before

"""Deletion of expired buckets, usage and audit events, a batch at a time."""

from __future__ import annotations

from zae_limiter.admission.image import full_at_ms
from zae_limiter.embedded.buckets import drop
from zae_limiter.embedded.retention import stored_retention
from zae_limiter.embedded.tables import Tables
from zae_limiter.naming import event_prefix

DAY, DAY_MS = 24, 86_400_000
EVERY_CHARGES = 100  # rare enough that the average time of a charge hardly changes
BATCH = 2 * EVERY_CHARGES  # a charge creates at most two buckets, so deletion keeps up
# A charge adds at most two rows of usage, and the buckets deleted with it two more. So deletion
# keeps up, and a backlog shrinks by half a batch each time.
HISTORY_BATCH = 4 * BATCH
LATEST_MS = 2**62  # fits the integer column of SQLite


def keep_house(
    tables: Tables, now_ms: int, usage_retention_days: int, audit_retention_days: int
) -> None:
    """Delete a batch of expired buckets, usage and events; the store's retention wins."""
    delete_expired_buckets(tables, now_ms)
    stored = stored_retention(tables)
    days = usage_retention_days if stored is None else stored
    delete_old_history(tables, now_ms, days, audit_retention_days)


def delete_expired_buckets(tables: Tables, now_ms: int) -> None:
    """Delete expired buckets that are full, since an absent bucket is full; keep the others."""
    for row in tables.expired_buckets(now_ms, BATCH):
        full_ms = full_at_ms(row.image)
        if full_ms <= now_ms:
            drop(tables, row)
        else:
            kept = row.image._replace(expires_ms=full_ms if full_ms < LATEST_MS else None)
            tables.put_bucket(row.namespace_id, row.entity_id, row.resource, kept)


def delete_old_history(
    tables: Tables, now_ms: int, usage_retention_days: int, audit_retention_days: int
) -> None:
    """Delete usage and audit events beyond their retention, usage by whole days."""
    oldest_day = now_ms // DAY_MS - usage_retention_days
    tables.delete_usage(oldest_day * DAY, HISTORY_BATCH)
    oldest_ms = max(0, now_ms - audit_retention_days * DAY_MS)
    tables.delete_audit(event_prefix(oldest_ms), HISTORY_BATCH)

"""Forgetting what no longer matters, a little at a time."""

from __future__ import annotations

from zae_limiter.admission.image import HOUR_MS, full_at_ms
from zae_limiter.embedded.buckets import drop
from zae_limiter.embedded.tables import Tables
from zae_limiter.identifiers import event_prefix

DAY_MS = 86_400_000
EVERY_CHARGES = 100
HISTORY_EVERY_MS = 600_000
HISTORY_BATCH = 20_000
LATEST_MS = 2**62
BATCH = 2 * EVERY_CHARGES  # faster than charges can make new buckets


def forget_buckets(tables: Tables, now_ms: int) -> None:
    """Drop expired buckets that are full: they are no different from none."""
    for row in tables.expired_buckets(now_ms, BATCH):
        full_ms = full_at_ms(row.image)
        if full_ms <= now_ms:
            drop(tables, row)
        else:
            later = row.image._replace(expires_ms=full_ms if full_ms < LATEST_MS else None)
            tables.put_bucket(row.namespace_id, row.entity_id, row.resource, later)


def forget_history(
    tables: Tables, now_ms: int, usage_retention_days: int, audit_retention_days: int
) -> None:
    """Drop usage and audit events beyond their retention."""
    tables.forget_usage((now_ms - usage_retention_days * DAY_MS) // HOUR_MS, HISTORY_BATCH)
    oldest_ms = max(0, now_ms - audit_retention_days * DAY_MS)
    tables.forget_audit(event_prefix(oldest_ms), HISTORY_BATCH)

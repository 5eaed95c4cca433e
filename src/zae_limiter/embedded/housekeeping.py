"""Forgetting what no longer matters, a little at a time."""

from __future__ import annotations

from zae_limiter.admission.image import HOUR_MS, full_at_ms
from zae_limiter.embedded.buckets import drop
from zae_limiter.embedded.identifiers import event_prefix
from zae_limiter.embedded.tables import Tables

DAY_MS = 86_400_000
EVERY_CHARGES = 100
BATCH = 2 * EVERY_CHARGES  # faster than charges can make new buckets


def forget(
    tables: Tables, now_ms: int, usage_retention_days: int, audit_retention_days: int
) -> None:
    """Drop expired buckets that are full, and history beyond its retention."""
    for row in tables.expired_buckets(now_ms, BATCH):
        full_ms = full_at_ms(row.image)
        if full_ms <= now_ms:
            drop(tables, row)
        else:
            later = row.image._replace(expires_ms=full_ms)
            tables.put_bucket(row.namespace_id, row.entity_id, row.resource, later)
    tables.forget_usage((now_ms - usage_retention_days * DAY_MS) // HOUR_MS, BATCH)
    tables.forget_audit(event_prefix(max(0, now_ms - audit_retention_days * DAY_MS)), BATCH)

"""Buckets as users see them."""

from __future__ import annotations

from collections.abc import Iterable

from zae_limiter.admission.image import HOUR_MS, BucketImage, level_milli
from zae_limiter.admission.in_force import is_alias, plain_name
from zae_limiter.models.bucket import BucketState, EntityCapacity, ResourceCapacity


def bucket_states(
    entity_id: str, resource: str, image: BucketImage, now_ms: int, *, brought: bool = True
) -> list[BucketState]:
    """Return one state per limit, with its level at ``now_ms``.

    Limits that calls brought beside configured ones come last, or not at all.
    """
    rejected = image.rejected if image.window_hour == now_ms // HOUR_MS else 0
    return [
        BucketState(
            entity_id,
            resource,
            plain_name(key),
            level_milli(state, now_ms),
            now_ms,
            state.rate.capacity_milli,
            state.rate.refill_milli,
            state.rate.period_ms,
            state.consumed_milli,
            rejected,
        )
        for key, state in sorted(image.limits.items(), key=lambda stored: is_alias(stored[0]))
        if brought or not is_alias(key)
    ]


def resource_capacity(
    resource: str, limit_name: str, states: Iterable[BucketState]
) -> ResourceCapacity:
    """Sum one limit over entities."""
    entities = [
        EntityCapacity(s.entity_id, s.capacity, s.tokens, _used_pct(s.capacity, s.tokens))
        for s in states
    ]
    capacity = sum(entity.capacity for entity in entities)
    available = sum(entity.available for entity in entities)
    return ResourceCapacity(
        resource, limit_name, capacity, available, _used_pct(capacity, available), entities
    )


def _used_pct(capacity: int, available: int) -> float:
    return 100.0 * (capacity - available) / capacity if capacity else 0.0

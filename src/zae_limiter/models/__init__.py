"""Frozen values that everything else speaks in."""

from zae_limiter.models.audit import AuditAction, AuditEvent
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.models.bucket import BucketState, EntityCapacity, ResourceCapacity
from zae_limiter.models.config import (
    CacheStats,
    ConfigSnapshot,
    ConfigSource,
    LevelConfig,
    Namespace,
    OnUnavailable,
)
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit, LimitName
from zae_limiter.models.stats import StoreStats
from zae_limiter.models.status import Availability, LimitStatus
from zae_limiter.models.usage import UsageSnapshot, UsageSummary, WindowType

__all__ = [
    "AuditAction",
    "AuditEvent",
    "Availability",
    "BackendCapabilities",
    "BucketState",
    "CacheStats",
    "ConfigSnapshot",
    "ConfigSource",
    "Entity",
    "EntityCapacity",
    "LevelConfig",
    "Limit",
    "LimitName",
    "LimitStatus",
    "Namespace",
    "OnUnavailable",
    "ResourceCapacity",
    "StoreStats",
    "UsageSnapshot",
    "UsageSummary",
    "WindowType",
]

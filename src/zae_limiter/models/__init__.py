"""The frozen values of the public API. Each module is imported when a name of it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter.models.audit import AuditAction, AuditEvent
    from zae_limiter.models.backend import (
        BackendCapabilities,
        CacheStats,
        MigrationProgress,
        MigrationReport,
        StoreStats,
    )
    from zae_limiter.models.bucket import BucketState, EntityCapacity, ResourceCapacity
    from zae_limiter.models.config import (
        ConfigSnapshot,
        ConfigSource,
        LevelConfig,
        OnUnavailable,
        SupersededLimit,
    )
    from zae_limiter.models.entity import Entity, Namespace
    from zae_limiter.models.limit import Limit, LimitName
    from zae_limiter.models.stack import LimiterInfo, StackOptions, Status
    from zae_limiter.models.status import Availability, LimitStatus
    from zae_limiter.models.switches import Switch, SwitchMode
    from zae_limiter.models.usage import (
        EntityUsage,
        UsageRanking,
        UsageSnapshot,
        UsageSummary,
        WindowType,
    )

# Generating a frozen dataclass takes a millisecond: all of them at once would be a third of the
# time that importing the limiter takes.
_MODULES = {
    "AuditAction": "audit",
    "AuditEvent": "audit",
    "Availability": "status",
    "BackendCapabilities": "backend",
    "BucketState": "bucket",
    "CacheStats": "backend",
    "ConfigSnapshot": "config",
    "ConfigSource": "config",
    "Entity": "entity",
    "EntityCapacity": "bucket",
    "LevelConfig": "config",
    "Limit": "limit",
    "LimitName": "limit",
    "LimitStatus": "status",
    "LimiterInfo": "stack",
    "MigrationProgress": "backend",
    "MigrationReport": "backend",
    "Namespace": "entity",
    "OnUnavailable": "config",
    "ResourceCapacity": "bucket",
    "StackOptions": "stack",
    "Status": "stack",
    "StoreStats": "backend",
    "SupersededLimit": "config",
    "Switch": "switches",
    "SwitchMode": "switches",
    "EntityUsage": "usage",
    "UsageRanking": "usage",
    "UsageSnapshot": "usage",
    "UsageSummary": "usage",
    "WindowType": "usage",
}

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
    "EntityUsage",
    "LevelConfig",
    "Limit",
    "LimitName",
    "LimitStatus",
    "LimiterInfo",
    "MigrationProgress",
    "MigrationReport",
    "Namespace",
    "OnUnavailable",
    "ResourceCapacity",
    "StackOptions",
    "Status",
    "StoreStats",
    "SupersededLimit",
    "Switch",
    "SwitchMode",
    "UsageRanking",
    "UsageSnapshot",
    "UsageSummary",
    "WindowType",
]


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        from zae_limiter._lazy import import_name

        return import_name(__name__, name, _MODULES)


def __dir__() -> list[str]:
    return __all__

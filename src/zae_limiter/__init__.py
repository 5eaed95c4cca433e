"""Exact, cheap, hierarchical rate limiting for LLM platforms and APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter._version import __version__

if TYPE_CHECKING:
    from zae_limiter._async.builder import RepositoryBuilder
    from zae_limiter._async.lease import Lease
    from zae_limiter._async.limiter import RateLimiter
    from zae_limiter._async.repository import Repository, RepositoryProtocol
    from zae_limiter._async.stack_manager import StackManager
    from zae_limiter._sync.builder import SyncRepositoryBuilder
    from zae_limiter._sync.config_cache import SyncConfigCache
    from zae_limiter._sync.lease import SyncLease
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository, SyncRepositoryProtocol
    from zae_limiter._sync.stack_manager import SyncStackManager
    from zae_limiter.exceptions import (
        EntityError,
        EntityExistsError,
        EntityNotFoundError,
        ForeignTableError,
        IncompatibleSchemaError,
        InfrastructureError,
        InfrastructureNotFoundError,
        InvalidIdentifierError,
        InvalidNameError,
        LeaseExpiredError,
        LimitsChangedError,
        NamespaceNotFoundError,
        NamespaceStateError,
        PermissionDenied,
        RateLimitError,
        RateLimiterUnavailable,
        RateLimitExceeded,
        StackAlreadyExistsError,
        StackCreationError,
        StackOperationError,
        ValidationError,
        VersionError,
        VersionMismatchError,
        ZAELimiterError,
    )
    from zae_limiter.models import (
        AuditAction,
        AuditEvent,
        Availability,
        BackendCapabilities,
        BucketState,
        CacheStats,
        ConfigSource,
        Entity,
        EntityCapacity,
        EntityUsage,
        Limit,
        LimiterInfo,
        LimitName,
        LimitStatus,
        MigrationProgress,
        MigrationReport,
        Namespace,
        OnUnavailable,
        ResourceCapacity,
        StackOptions,
        Status,
        StoreStats,
        SupersededLimit,
        Switch,
        SwitchMode,
        UsageRanking,
        UsageSnapshot,
        UsageSummary,
    )
    from zae_limiter.refusal import LimitedBy

_MODULES = {  # all other names are in ``exceptions`` or ``models``
    "RateLimiter": "_async.limiter",
    "Repository": "_async.repository",
    "RepositoryBuilder": "_async.builder",
    "RepositoryProtocol": "_async.repository",
    "Lease": "_async.lease",
    "SyncRateLimiter": "_sync.limiter",
    "SyncRepository": "_sync.repository",
    "SyncRepositoryBuilder": "_sync.builder",
    "SyncRepositoryProtocol": "_sync.repository",
    "SyncLease": "_sync.lease",
    "SyncConfigCache": "_sync.config_cache",
    "StackManager": "_async.stack_manager",
    "SyncStackManager": "_sync.stack_manager",
    "LimitedBy": "refusal",
}

__all__ = [
    "AuditAction",
    "AuditEvent",
    "Availability",
    "BackendCapabilities",
    "BucketState",
    "CacheStats",
    "ConfigSource",
    "Entity",
    "EntityCapacity",
    "EntityError",
    "EntityExistsError",
    "EntityNotFoundError",
    "EntityUsage",
    "ForeignTableError",
    "IncompatibleSchemaError",
    "InfrastructureError",
    "InfrastructureNotFoundError",
    "InvalidIdentifierError",
    "InvalidNameError",
    "Lease",
    "LeaseExpiredError",
    "Limit",
    "LimitName",
    "LimitStatus",
    "LimitedBy",
    "LimiterInfo",
    "LimitsChangedError",
    "MigrationProgress",
    "MigrationReport",
    "Namespace",
    "NamespaceNotFoundError",
    "NamespaceStateError",
    "OnUnavailable",
    "PermissionDenied",
    "RateLimitError",
    "RateLimitExceeded",
    "RateLimiter",
    "RateLimiterUnavailable",
    "Repository",
    "RepositoryBuilder",
    "RepositoryProtocol",
    "ResourceCapacity",
    "StackAlreadyExistsError",
    "StackCreationError",
    "StackManager",
    "StackOperationError",
    "StackOptions",
    "Status",
    "StoreStats",
    "SupersededLimit",
    "Switch",
    "SwitchMode",
    "SyncConfigCache",
    "SyncLease",
    "SyncRateLimiter",
    "SyncRepository",
    "SyncRepositoryBuilder",
    "SyncRepositoryProtocol",
    "SyncStackManager",
    "UsageRanking",
    "UsageSnapshot",
    "UsageSummary",
    "ValidationError",
    "VersionError",
    "VersionMismatchError",
    "ZAELimiterError",
    "__version__",
]


if not TYPE_CHECKING:  # a type checker then reports names that are not listed above

    def __getattr__(name: str) -> Any:
        if name not in __all__:  # for `from zae_limiter import schema`, Python asks here first
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from zae_limiter._lazy import import_name

        searched = ("exceptions", "models")
        return import_name(__name__, name, _MODULES, names=__all__, searched=searched)


def __dir__() -> list[str]:
    return __all__

"""Exact, cheap, hierarchical rate limiting for LLM platforms and APIs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from zae_limiter._version import __version__

if TYPE_CHECKING:
    from zae_limiter._async.builder import RepositoryBuilder
    from zae_limiter._async.lease import Lease
    from zae_limiter._async.limiter import RateLimiter
    from zae_limiter._async.protocol import RepositoryProtocol
    from zae_limiter._async.repository import Repository
    from zae_limiter._sync.builder import SyncRepositoryBuilder
    from zae_limiter._sync.config_cache import SyncConfigCache
    from zae_limiter._sync.lease import SyncLease
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter._sync.protocol import SyncRepositoryProtocol
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.exceptions import (
        EntityError,
        EntityExistsError,
        EntityNotFoundError,
        IncompatibleSchemaError,
        InfrastructureError,
        InfrastructureNotFoundError,
        InvalidIdentifierError,
        InvalidNameError,
        LeaseExpiredError,
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
        Limit,
        LimitName,
        LimitStatus,
        Namespace,
        OnUnavailable,
        ResourceCapacity,
        StoreStats,
        UsageSnapshot,
        UsageSummary,
    )

_HOMES = {
    "RateLimiter": "_async.limiter",
    "Repository": "_async.repository",
    "RepositoryBuilder": "_async.builder",
    "RepositoryProtocol": "_async.protocol",
    "Lease": "_async.lease",
    "SyncRateLimiter": "_sync.limiter",
    "SyncRepository": "_sync.repository",
    "SyncRepositoryBuilder": "_sync.builder",
    "SyncRepositoryProtocol": "_sync.protocol",
    "SyncLease": "_sync.lease",
    "SyncConfigCache": "_sync.config_cache",
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
    "StackOperationError",
    "StoreStats",
    "SyncConfigCache",
    "SyncLease",
    "SyncRateLimiter",
    "SyncRepository",
    "SyncRepositoryBuilder",
    "SyncRepositoryProtocol",
    "UsageSnapshot",
    "UsageSummary",
    "ValidationError",
    "VersionError",
    "VersionMismatchError",
    "ZAELimiterError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that nobody pays for what they do not use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes = (_HOMES[name],) if name in _HOMES else ("exceptions", "models")
    for home in homes:
        module = importlib.import_module(f"{__name__}.{home}")
        if name in vars(module):
            value = globals()[name] = vars(module)[name]
            return value
    raise AssertionError(f"{name} has no home")


def __dir__() -> list[str]:
    return __all__

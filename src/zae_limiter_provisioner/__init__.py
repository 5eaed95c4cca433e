"""The provisioner: applies manifests of limits, called by the command line or by CloudFormation.

It runs as a Lambda function beside a zae-limiter table, and is optional: ``zae-limiter limits
--direct`` does the same from where it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter_provisioner.handler import handler, on_event

if TYPE_CHECKING:
    from zae_limiter_ops.manifest import (
        ApplyResult,
        Change,
        EntityDecl,
        LimitDecl,
        LimitsManifest,
        ResourceDecl,
        SystemDecl,
        compute_diff,
    )

__all__ = [
    "ApplyResult",
    "Change",
    "EntityDecl",
    "LimitDecl",
    "LimitsManifest",
    "ResourceDecl",
    "SystemDecl",
    "compute_diff",
    "handler",
    "on_event",
]


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Return a name of manifests, for programs: the function itself needs none of them here."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from zae_limiter_ops import manifest

        return getattr(manifest, name)

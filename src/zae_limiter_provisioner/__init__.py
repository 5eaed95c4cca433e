"""The provisioner: a Lambda function that applies manifests of limits to a zae-limiter table.

The command line and CloudFormation call the function. The provisioner is optional: ``zae-limiter
limits --direct`` does the same work in its own process.
"""

from __future__ import annotations

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
from zae_limiter_provisioner.handler import handler, on_event

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

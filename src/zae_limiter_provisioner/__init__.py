"""The provisioner: applies manifests of limits, called by the command line or by CloudFormation.

It runs as a Lambda function beside a zae-limiter table, and is optional: ``zae-limiter limits
--direct`` does the same from where it is called.
"""

from zae_limiter.manifest.declarations import (
    EntityDecl,
    LimitDecl,
    LimitsManifest,
    ResourceDecl,
    SystemDecl,
)
from zae_limiter.manifest.diff import ApplyResult, compute_diff
from zae_limiter.manifest.targets import Change
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

"""Declarative limits: manifests as data, read, checked and compared, without a call.

``repository.provisioner()`` plans and applies them.
"""

from zae_limiter.manifest.declarations import (
    EntityDecl,
    LimitDecl,
    LimitsManifest,
    ResourceDecl,
    SystemDecl,
)
from zae_limiter.manifest.diff import (
    ApplyResult,
    Drift,
    DriftCause,
    LimitsPlan,
    compute_diff,
)
from zae_limiter.manifest.problems import ApplyConflict, ManifestError, Problem
from zae_limiter.manifest.targets import Action, Change, Setting, Target, TargetKind

__all__ = [
    "Action",
    "ApplyConflict",
    "ApplyResult",
    "Change",
    "Drift",
    "DriftCause",
    "EntityDecl",
    "LimitDecl",
    "LimitsManifest",
    "LimitsPlan",
    "ManifestError",
    "Problem",
    "ResourceDecl",
    "Setting",
    "SystemDecl",
    "Target",
    "TargetKind",
    "compute_diff",
]

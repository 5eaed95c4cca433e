"""Declarative limits: manifests as data, which are read, checked and compared without a call.

``repository.provisioner()`` plans and applies manifests.
"""

from __future__ import annotations

from zae_limiter_ops.manifest.declarations import (
    EntityDecl,
    LimitDecl,
    LimitsManifest,
    ResourceDecl,
    SystemDecl,
)
from zae_limiter_ops.manifest.deletions import DeletionsRefused
from zae_limiter_ops.manifest.diff import ApplyResult, LimitsPlan, compute_diff
from zae_limiter_ops.manifest.drift import Drift, DriftCause
from zae_limiter_ops.manifest.problems import ApplyConflict, ManifestError, Problem
from zae_limiter_ops.manifest.targets import Action, Change, Setting, Target, TargetKind

__all__ = [
    "Action",
    "ApplyConflict",
    "ApplyResult",
    "Change",
    "DeletionsRefused",
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

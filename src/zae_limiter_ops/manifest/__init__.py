"""Declarative limits: manifests as data, read, checked and compared, without a call.

``repository.provisioner()`` plans and applies them. Each name is imported on first use: a function
that plans needs no drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter_ops.manifest.declarations import (
        EntityDecl,
        LimitDecl,
        LimitsManifest,
        ResourceDecl,
        SystemDecl,
    )
    from zae_limiter_ops.manifest.diff import ApplyResult, LimitsPlan, compute_diff
    from zae_limiter_ops.manifest.drift import Drift, DriftCause
    from zae_limiter_ops.manifest.problems import ApplyConflict, ManifestError, Problem
    from zae_limiter_ops.manifest.targets import Action, Change, Setting, Target, TargetKind

_MODULES = {
    "Action": "targets",
    "ApplyConflict": "problems",
    "ApplyResult": "diff",
    "Change": "targets",
    "Drift": "drift",
    "DriftCause": "drift",
    "EntityDecl": "declarations",
    "LimitDecl": "declarations",
    "LimitsManifest": "declarations",
    "LimitsPlan": "diff",
    "ManifestError": "problems",
    "Problem": "problems",
    "ResourceDecl": "declarations",
    "Setting": "targets",
    "SystemDecl": "declarations",
    "Target": "targets",
    "TargetKind": "targets",
    "compute_diff": "diff",
}

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


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:  # `from zae_limiter_ops.manifest import state` asks here first
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from zae_limiter._lazy import import_name

        return import_name(__name__, name, _MODULES)


def __dir__() -> list[str]:
    return __all__

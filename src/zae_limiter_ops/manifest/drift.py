"""Drift: differences between stored limits and a manifest, with their cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from zae_limiter_ops.manifest.diff import LimitsPlan
from zae_limiter_ops.manifest.state import PENDING, PENDING_REGISTRATION
from zae_limiter_ops.manifest.targets import Setting, Settings, Target


class DriftCause(StrEnum):
    """The reason why a target differs from the manifest."""

    BY_HAND = "by_hand"  # the target was changed after the last apply
    NOT_APPLIED = "not_applied"  # the manifest was changed since then, or an apply was interrupted


@dataclass(frozen=True, slots=True)
class Drift:
    """A target that differs from the manifest, and its last change in the audit log.

    ``declared`` is the setting in the manifest and ``live`` the stored setting, or None.
    """

    target: Target
    cause: DriftCause
    declared: Setting | None = None
    live: Setting | None = None
    principal: str | None = None
    changed_at: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as JSON values."""
        kind = self.target.kind
        return {
            "cause": self.cause.value,
            "kind": kind.value,
            "entity_id": self.target.entity_id or None,
            "resource": self.target.resource or None,
            "declared": None if self.declared is None else self.declared.to_dict(kind),
            "live": None if self.live is None else self.live.to_dict(kind),
            "principal": self.principal,
            "changed_at": self.changed_at,
        }


def compute_drift(plan: LimitsPlan, live: Settings) -> list[Drift]:
    """Return the targets whose live setting differs from the manifest.

    Managed targets that the manifest no longer names are included. A target was changed by hand if
    its setting differs from the setting after the last apply.
    """
    return sorted(_drifts(plan, live), key=lambda drift: drift.target.order)


def _drifts(plan: LimitsPlan, live: Settings) -> Iterator[Drift]:
    for change in plan.changes:
        target, stored = change.target, live.get(change.target)
        applied = plan.managed.digests.get(target)
        if applied is None:  # no apply has ever managed the target
            by_hand = stored is not None
        else:
            current = stored.digest() if stored is not None else None
            by_hand = applied not in (PENDING, PENDING_REGISTRATION, current)
        cause = DriftCause.BY_HAND if by_hand else DriftCause.NOT_APPLIED
        yield Drift(target, cause, plan.wanted.get(target), stored)

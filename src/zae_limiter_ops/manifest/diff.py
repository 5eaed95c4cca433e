"""Compare a manifest with what is managed and what is stored: plans and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.state import PENDING, PENDING_REGISTRATION, Managed
from zae_limiter_ops.manifest.targets import (
    ALONE,
    Action,
    Change,
    Setting,
    Settings,
    Target,
    TargetKind,
    wanted_settings,
)


def compute_diff(manifest: LimitsManifest, managed: Managed, live: Settings) -> list[Change]:
    """Return the changes that bring the live configuration to the manifest, in order.

    A target that the manifest names becomes as it says. One that it does not name any more is
    deleted if an earlier apply has managed it. No other target is changed.
    """
    return _changes(wanted_settings(manifest), managed, live)


def _changes(wanted: Settings, managed: Managed, live: Settings) -> list[Change]:
    changes = []
    for target, setting in wanted.items():
        before = live.get(target)
        # An earlier manifest gave the entity a parent, which this one does not name any more.
        loses_parent = setting.keeps_place and before is not None and managed.has_placed(target)
        after = ALONE if loses_parent else setting
        if not after.agrees(before):
            action = Action.CREATE if before is None else Action.UPDATE
            changes.append(Change(action, target, before, after))
    removals = [
        change
        for target in managed.digests.keys() - wanted.keys()
        if target in live and (change := _removal(target, live[target], managed)) is not None
    ]
    changes.sort(key=_order)
    removals.sort(key=_order, reverse=True)
    return changes + removals


def _removal(target: Target, before: Setting, managed: Managed) -> Change | None:
    """Delete a target; an entity that no apply has registered only loses its parent.

    A parent that no apply has given stays, and with it the registration.
    """
    is_placed = managed.has_placed(target)
    is_ours = target.entity_id in managed.registered and not before.is_described
    is_ours = is_ours and (is_placed or before.agrees(ALONE))
    if target.kind is not TargetKind.ENTITY or is_ours:
        return Change(Action.DELETE, target, before)
    if before.agrees(ALONE) or not is_placed:
        return None
    return Change(Action.UPDATE, target, before, ALONE)


@dataclass(frozen=True, slots=True)
class LimitsPlan:
    """What an apply of a manifest would do, as of one moment.

    ``wanted`` is what the manifest says of each target. ``adopted`` targets are as it says, but
    were not managed before. ``revision`` is that of the managed state, empty before the first
    apply: one of an approved plan requires it.
    """

    wanted: Settings
    managed: Managed
    changes: list[Change]
    adopted: int = 0
    unchanged: int = 0
    revision: str = ""

    @classmethod
    def of(
        cls, wanted: Settings, managed: Managed, live: Settings, revision: str = ""
    ) -> LimitsPlan:
        """Compare what a manifest wants with what is managed and what is stored."""
        changes = _changes(wanted, managed, live)
        differing = sum(change.target in wanted for change in changes)
        adopted = sum(
            target not in managed.digests and setting.agrees(live.get(target))
            for target, setting in wanted.items()
        )
        unchanged = len(wanted) - differing - adopted
        return cls(wanted, managed, changes, adopted, unchanged, revision)

    @property
    def is_empty(self) -> bool:
        """Whether stored limits are as the manifest says; the managed state may be behind."""
        return not self.changes

    def count(self, action: Action) -> int:
        """Return how many changes are of a kind."""
        return sum(change.action is action for change in self.changes)

    def managed_during(self) -> Managed:
        """Return the state while the changes are made: all that was or will be managed.

        It is stored first, so that whatever a killed apply leaves behind is known to be managed.
        """
        digests, registered = dict(self.managed.digests), set(self.managed.registered)
        digests |= {target: setting.digest() for target, setting in self.wanted.items()}
        for change in self.changes:
            keeps_place = change.after is not None and change.after.keeps_place
            digests[change.target] = PENDING_REGISTRATION if keeps_place else PENDING
            if change.target.kind is TargetKind.ENTITY and change.action is Action.CREATE:
                registered.add(change.target.entity_id)
        return Managed(digests, frozenset(registered))

    def managed_after(self) -> Managed:
        """Return the state when all changes are made: what the manifest names."""
        digests = {target: setting.digest() for target, setting in self.wanted.items()}
        registered = self.managed_during().registered
        kept = (target.entity_id for target in digests if target.kind is TargetKind.ENTITY)
        return Managed(digests, registered.intersection(kept))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "changes": [change.to_dict() for change in self.changes],
            "create": self.count(Action.CREATE),
            "update": self.count(Action.UPDATE),
            "delete": self.count(Action.DELETE),
            "adopt": self.adopted,
            "unchanged": self.unchanged,
            "revision": self.revision,
        }


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What an apply has done: how many targets it has created, updated, deleted and adopted."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    adopted: int = 0
    unchanged: int = 0
    changes: list[Change] = field(default_factory=list)

    @classmethod
    def of(cls, plan: LimitsPlan) -> ApplyResult:
        """Return the result of a plan that was carried out."""
        return cls(
            plan.count(Action.CREATE),
            plan.count(Action.UPDATE),
            plan.count(Action.DELETE),
            plan.adopted,
            plan.unchanged,
            plan.changes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "created": self.created,
            "updated": self.updated,
            "deleted": self.deleted,
            "adopted": self.adopted,
            "unchanged": self.unchanged,
            "changes": [change.to_dict() for change in self.changes],
        }


def _order(change: Change) -> tuple[int, str, str]:
    return change.target.order

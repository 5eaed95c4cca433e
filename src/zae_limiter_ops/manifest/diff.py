"""Compare a manifest with the managed state and the stored settings: plans and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zae_limiter.admission.rebase import check_replacement
from zae_limiter.exceptions import ValidationError
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
    """Return the changes that make the live configuration equal to the manifest, in order.

    A target that the manifest names gets the declared setting. A target that earlier applies have
    managed, and that the manifest no longer names, is deleted. No other target is changed.
    """
    return _changes(wanted_settings(manifest), managed, live)


def _changes(wanted: Settings, managed: Managed, live: Settings) -> list[Change]:
    changes = []
    for target, setting in wanted.items():
        before = live.get(target)
        # An earlier manifest gave the entity a parent that this manifest no longer names.
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
    """Return the change for a target that the manifest no longer names; None if it stays.

    Limits and policies are deleted. An entity is deleted only if an apply has registered it; any
    other entity loses its parent. A parent that no apply has set stays, and so does the entity.
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
    """The changes that an apply of a manifest would make at the time of the plan.

    ``wanted`` holds the declared setting of each target. ``adopted`` counts targets that have their
    declared setting already, but were not managed before. ``revision`` is the revision of the
    managed state, empty before the first apply: the apply of an approved plan requires that the
    state still has this revision. ``existing`` counts the managed targets that exist.
    """

    wanted: Settings
    managed: Managed
    changes: list[Change]
    adopted: int = 0
    unchanged: int = 0
    revision: str = ""
    existing: int = 0

    @classmethod
    def of(
        cls, wanted: Settings, managed: Managed, live: Settings, revision: str = ""
    ) -> LimitsPlan:
        """Compare wanted settings with the managed state and the live settings."""
        changes = _changes(wanted, managed, live)
        for change in changes:
            _check_room(change)
        differing = sum(change.target in wanted for change in changes)
        adopted = sum(
            target not in managed.digests and setting.agrees(live.get(target))
            for target, setting in wanted.items()
        )
        unchanged = len(wanted) - differing - adopted
        existing = len(managed.digests.keys() & live.keys())
        return cls(wanted, managed, changes, adopted, unchanged, revision, existing)

    @property
    def is_empty(self) -> bool:
        """Whether all settings are as declared; the managed state may still need an update."""
        return not self.changes

    def count(self, action: Action) -> int:
        """Return the number of changes with an action."""
        return sum(change.action is action for change in self.changes)

    def managed_during(self) -> Managed:
        """Return the managed state during the apply: all targets managed before or afterwards.

        An apply stores this state before its first change, so that the next apply knows every
        target that a killed apply may have changed.
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
        """Return the managed state after the apply: the targets that the manifest names."""
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
            "existing": self.existing,
            "revision": self.revision,
        }


class Unfinished(NamedTuple):
    """An apply that ran out of time after ``done`` of ``total`` changes.

    The next apply continues. If it names ``revision`` as its approved plan, it refuses to continue
    after another apply.
    """

    done: int
    total: int
    revision: str


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of an apply: the number of created, updated, deleted and adopted targets.

    The numbers and ``changes`` are those of the whole plan, also if the apply is ``unfinished``.
    """

    created: int = 0
    updated: int = 0
    deleted: int = 0
    adopted: int = 0
    unchanged: int = 0
    changes: list[Change] = field(default_factory=list)
    unfinished: Unfinished | None = None

    @classmethod
    def of(cls, plan: LimitsPlan, unfinished: Unfinished | None = None) -> ApplyResult:
        """Return the result of applying a plan."""
        return cls(
            plan.count(Action.CREATE),
            plan.count(Action.UPDATE),
            plan.count(Action.DELETE),
            plan.adopted,
            plan.unchanged,
            plan.changes,
            unfinished,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        result = {
            "created": self.created,
            "updated": self.updated,
            "deleted": self.deleted,
            "adopted": self.adopted,
            "unchanged": self.unchanged,
            "changes": [change.to_dict() for change in self.changes],
        }
        if self.unfinished is not None:
            result["unfinished"] = self.unfinished._asdict()
        return result


def _check_room(change: Change) -> None:
    """Raise ValidationError if buckets may have no room for the limits before and after."""
    if change.before is None or change.after is None:
        return
    try:
        check_replacement(change.before.limits, change.after.limits)
    except ValidationError as error:
        raise ValidationError(str(change.target), error.value, error.reason) from None


def _order(change: Change) -> tuple[int, str, str]:
    return change.target.order

"""Changes that an operator makes: each is previewed, confirmed, and shown as a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.admission.in_force import stored_units
from zae_limiter.exceptions import EntityNotFoundError, ValidationError
from zae_limiter.models.audit import SYSTEM_SUBJECT, resource_subject
from zae_limiter.models.bucket import MAX_PAUSE_S, check_pause
from zae_limiter.models.limit import Limit, check_limits
from zae_limiter.naming import DEFAULT_RESOURCE, check_entity_id, check_resource
from zae_limiter_ops.views.amounts import amount_words, parse_amounts
from zae_limiter_ops.views.formatting import LEVELS, describe_limits, format_amount, format_duration

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter import SyncRepository
    from zae_limiter.models.bucket import BucketState
    from zae_limiter.models.config import ConfigSource
    from zae_limiter_dashboard.board import Board
    from zae_limiter_ops.views.advice import GivenOptions

MAX_NAMED = 20  # entities that a preview names
MAX_COUNTED = 10_000  # entities with limits of their own that a preview reads

Fields = Mapping[str, str]


class PageChange(NamedTuple):
    """One value before and after an action."""

    label: str
    before: str
    after: str


class Touched(NamedTuple):
    """The entities with buckets that a change of limits touches, and the first of them."""

    total: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would change, and the command line that does the same.

    ``fields`` are repeated by the confirmation. They contain the values that were seen, so that
    a value which somebody else has changed meanwhile is not overwritten.
    """

    title: str
    changes: tuple[PageChange, ...]
    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)
    touched: Touched | None = None
    note: str = ""

    def command(self, given: GivenOptions) -> str:
        """Return the command line, with the options that name the store."""
        return given.command(*self.words, options=self.options)


class ActionPlace(NamedTuple):
    """The namespace that an action works on, with the last board of its buckets."""

    repository: SyncRepository
    board: Board


class PageAction(NamedTuple):
    """An action: its title, its preview, and its execution, which returns a sentence."""

    title: str
    preview: Callable[[ActionPlace, Fields], Preview]
    perform: Callable[[SyncRepository, Fields, str], str]


# --- pauses ----------------------------------------------------------------------------------


def _bucket(fields: Fields) -> tuple[str, str]:
    return check_entity_id(fields.get("entity", "")), check_resource(fields.get("resource", ""))


def _seconds(fields: Fields) -> float:
    try:
        return check_pause(float(fields.get("seconds", "")))
    except ValueError as error:
        if isinstance(error, ValidationError):
            raise
        raise ValidationError(
            "seconds", fields.get("seconds"), f"must be a number from 0 to {MAX_PAUSE_S}"
        ) from None


def _preview_pause(place: ActionPlace, fields: Fields) -> Preview:
    (entity_id, resource), seconds = _bucket(fields), _seconds(fields)
    states = place.repository.get_buckets(entity_id, resource)
    until_ms = states[0].paused_until_ms if states else None
    left_ms = 0 if until_ms is None else until_ms - place.repository.charging.clock()
    before = f"paused for {format_duration(left_ms / 1000)} more" if left_ms > 0 else "not paused"
    after = f"paused for {format_duration(seconds)}" if seconds else "not paused"
    return Preview(
        title=f"Pause {entity_id} on {resource}" if seconds else f"Lift the pause of {entity_id}",
        changes=(PageChange("bucket", before, after),),
        words=("bucket", "pause", entity_id, resource, f"{seconds:g}"),
        fields={"entity": entity_id, "resource": resource, "seconds": f"{seconds:g}"},
        note=(
            "Every call is rejected until the pause ends. A shorter pause than the present one "
            "changes nothing."
            if seconds
            else "Calls are admitted again at once."
        ),
    )


def _pause(repository: SyncRepository, fields: Fields, principal: str) -> str:
    (entity_id, resource), seconds = _bucket(fields), _seconds(fields)
    repository.pause(entity_id, resource, seconds, principal)
    if not seconds:
        return f"The pause of {entity_id} on {resource} is lifted."
    return f"{entity_id} is paused on {resource} for {format_duration(seconds)}."


# --- tokens ----------------------------------------------------------------------------------


def _amounts(fields: Fields) -> dict[str, Any]:
    """Read ``tpm=500 usd=0.25``, separated by spaces, commas or lines."""
    amounts = parse_amounts(fields.get("amounts", ""))
    if not amounts:
        raise ValidationError("amounts", "", "must name at least one limit, such as tpm=5000")
    return amounts


def _preview_top_up(place: ActionPlace, fields: Fields) -> Preview:
    (entity_id, resource), amounts = _bucket(fields), _amounts(fields)
    changes = []
    for state in place.repository.get_buckets(entity_id, resource):
        added = amounts.get(state.limit_name)
        if added is not None:
            changes.append(_level(state, _topped_up(state, added)))
    words = amount_words(amounts)
    return Preview(
        title=f"Top up {entity_id} on {resource}",
        changes=tuple(changes),
        words=("bucket", "top-up", entity_id, resource),
        options=tuple(part for word in words for part in ("-a", word)),
        fields={
            "entity": entity_id,
            "resource": resource,
            "amounts": " ".join(words),
        },
        note="Tokens are added up to the capacity, and to a quota in full until its window ends. "
        "Usage stays counted."
        if changes
        else "There is no bucket with these limits: it is full, and nothing is added.",
    )


def _topped_up(state: BucketState, added: int | Decimal) -> int:
    """Return the level after a top-up, in stored units. A quota may rise above its amount."""
    limit = state.limit
    if limit.currency is None and not isinstance(added, int):
        raise ValidationError("amounts", added, f"{limit.name} counts whole tokens, not money")
    after = state.tokens_milli + stored_units(added, limit.currency is not None)
    return after if limit.is_quota else min(state.capacity_milli, after)


def _level(state: BucketState, after: int) -> PageChange:
    """Return the change of a level, as users write amounts."""
    limit = state.limit
    unit = f" {limit.currency}" if limit.currency else ""
    before_text, after_text = (
        format_amount(limit.shown(units)) for units in (state.tokens_milli, after)
    )
    return PageChange(f"level of {limit.name}", before_text + unit, after_text + unit)


def _top_up(repository: SyncRepository, fields: Fields, principal: str) -> str:
    (entity_id, resource), amounts = _bucket(fields), _amounts(fields)
    repository.top_up(entity_id, resource, amounts, principal)
    return f"Tokens were added to {entity_id} on {resource}."


def _preview_reset(place: ActionPlace, fields: Fields) -> Preview:
    entity_id, resource = _bucket(fields)
    states = place.repository.get_buckets(entity_id, resource)
    return Preview(
        title=f"Reset {entity_id} on {resource}",
        changes=tuple(_level(state, state.capacity_milli) for state in states),
        words=("bucket", "reset", entity_id, resource),
        options=("--yes",),
        fields={"entity": entity_id, "resource": resource},
        note="Every limit is filled, and debts are forgiven. Usage stays counted.",
    )


def _reset(repository: SyncRepository, fields: Fields, principal: str) -> str:
    entity_id, resource = _bucket(fields)
    repository.reset_bucket(entity_id, resource, principal)
    return f"The bucket of {entity_id} on {resource} is full."


# --- limits ----------------------------------------------------------------------------------


class Level(NamedTuple):
    """A configuration level; ``entity_id`` and ``resource`` are empty where they do not apply."""

    entity_id: str
    resource: str

    @classmethod
    def of(cls, fields: Fields) -> Level:
        entity_id, resource = fields.get("entity", ""), fields.get("resource", "")
        if entity_id:
            check_entity_id(entity_id)
        if resource and not (entity_id and resource == DEFAULT_RESOURCE):
            check_resource(resource)
        return cls(entity_id, resource or (DEFAULT_RESOURCE if entity_id else ""))

    @property
    def title(self) -> str:
        if not self.entity_id:
            return f"defaults of {self.resource}" if self.resource else "system defaults"
        where = "any resource" if self.resource == DEFAULT_RESOURCE else self.resource
        return f"limits of {self.entity_id} on {where}"

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command that sets the limits of the level."""
        return self._words("set")

    @property
    def delete_words(self) -> tuple[str, ...]:
        """The words of the command that deletes the limits of the level."""
        return self._words("delete")

    def _words(self, verb: str) -> tuple[str, ...]:
        if self.entity_id:
            return "entity", f"{verb}-limits", self.entity_id
        if self.resource:
            return "resource", f"{verb}-defaults", self.resource
        return "system", f"{verb}-defaults"

    @property
    def resource_option(self) -> tuple[str, ...]:
        """The option that names the resource of an entity's limits."""
        is_default = not self.entity_id or self.resource == DEFAULT_RESOURCE
        return () if is_default else ("--resource", self.resource)

    @property
    def subject(self) -> str:
        """The subject under which the audit log has the changes of the level."""
        if self.entity_id:
            return self.entity_id
        return resource_subject(self.resource) if self.resource else SYSTEM_SUBJECT

    def stored(self, repository: SyncRepository) -> list[Limit]:
        """Return the limits that the level has."""
        if self.entity_id:
            return repository.get_limits(self.entity_id, self.resource)
        if self.resource:
            return repository.get_resource_defaults(self.resource)
        return repository.get_system_defaults()[0]

    def replace(
        self, repository: SyncRepository, limits: list[Limit], before: list[Limit], principal: str
    ) -> bool:
        """Store the limits; raise LimitsChangedError if others than ``before`` are stored."""
        if self.entity_id:
            return repository.set_limits(
                self.entity_id, limits, self.resource, principal, replaces=before
            )
        if self.resource:
            return repository.set_resource_defaults(
                self.resource, limits, principal, replaces=before
            )
        return repository.set_system_defaults(limits, principal=principal, replaces=before)

    def delete(self, repository: SyncRepository, before: list[Limit], principal: str) -> None:
        """Delete the limits; raise LimitsChangedError if others than ``before`` are stored."""
        if self.entity_id:
            repository.delete_limits(self.entity_id, self.resource, principal, replaces=before)
        elif self.resource:
            repository.delete_resource_defaults(self.resource, principal, replaces=before)
        else:
            repository.delete_system_defaults(principal, replaces=before)

    def in_force(self, repository: SyncRepository) -> tuple[list[Limit], ConfigSource | None]:
        """Return the limits in force at the level, and the level that has them."""
        return repository.get_limits_in_force(self.entity_id or None, self.resource or None)

    def next_levels(self) -> tuple[Level, ...]:
        """Return the levels whose limits apply without those of this level, the first one first."""
        if not self.entity_id:
            return (Level("", ""),) if self.resource else ()
        if self.resource == DEFAULT_RESOURCE:
            return ()  # those of each resource, which are different
        return Level(self.entity_id, DEFAULT_RESOURCE), Level("", self.resource), Level("", "")


def parse_limits(text: str) -> list[Limit]:
    """Read one limit per line, in the notation of ``-l``."""
    return [Limit.parse(line.strip()) for line in text.splitlines() if line.strip()]


def limit_lines(limits: Iterable[Limit]) -> str:
    """Return the limits, one per line."""
    return "\n".join(map(str, limits))


def _preview_limits(place: ActionPlace, fields: Fields) -> Preview:
    level = Level.of(fields)
    limits = list(check_limits(parse_limits(fields.get("limits", ""))))
    before = parse_limits(fields.get("before", ""))
    old, new = (
        _by_name(before) or _from_elsewhere(place.repository, level, limits),
        _by_name(limits),
    )
    return Preview(
        title=f"Set {level.title}",
        changes=tuple(
            PageChange(name, old.get(name, "none"), new.get(name, "none"))
            for name in dict.fromkeys([*old, *new])
            if old.get(name) != new.get(name)
        ),
        words=level.words,
        options=(
            *level.resource_option,
            *(word for limit in limits for word in ("-l", str(limit))),
        ),
        fields={
            "entity": level.entity_id,
            "resource": level.resource,
            "limits": limit_lines(limits),
            "before": limit_lines(before),
        },
        touched=touched_by(place, level),
        note="Clients apply the change within their config_cache_ttl, by default a minute.",
    )


def _by_name(limits: Iterable[Limit]) -> dict[str, str]:
    return {limit.name: describe_limits([limit]) for limit in limits}


def _from_elsewhere(
    repository: SyncRepository, level: Level, limits: Sequence[Limit]
) -> dict[str, str]:
    """Return the limits in force at a level without limits of its own, with their levels."""
    in_force, source = level.in_force(repository)
    if source is not None:
        texts = _by_name(in_force).items()
        return {name: f"{text} ({LEVELS[source]})" for name, text in texts}
    superseded = repository.superseded_limits(
        limits, level.entity_id or None, level.resource or None
    )
    return {
        f"{each.limit.name} on {each.resource or 'other resources'}": (
            f"{describe_limits([each.limit])} ({LEVELS[each.source]})"
        )
        for each in superseded
    }


def touched_by(place: ActionPlace, level: Level) -> Touched:
    """Return the entities with buckets whose limits come from a level, or would come from it."""
    if level.entity_id:
        return Touched(1, (level.entity_id,))
    repository, board = place
    resources = [level.resource]
    if not level.resource:
        with_defaults = set(repository.list_resources_with_defaults())
        resources = [name for name in board.by_resource if name not in with_defaults]
    own_anywhere = _configured(repository, DEFAULT_RESOURCE)
    found: set[str] = set()
    for resource in resources:
        own = own_anywhere | _configured(repository, resource)
        rows = board.by_resource.get(resource, ())
        found |= {row.entity_id for row in rows if row.entity_id not in own}
    return Touched(len(found), tuple(sorted(found)[:MAX_NAMED]))


def _configured(repository: SyncRepository, resource: str) -> set[str]:
    entity_ids, _ = repository.list_entities_with_custom_limits(resource, MAX_COUNTED)
    return set(entity_ids)


def _set_limits(repository: SyncRepository, fields: Fields, principal: str) -> str:
    level = Level.of(fields)
    limits = parse_limits(fields.get("limits", ""))
    before = parse_limits(fields.get("before", ""))
    changed = level.replace(repository, limits, before, principal)
    if not changed:
        return f"The {level.title} were these already; nothing was changed."
    return f"The {level.title} are now {describe_limits(limits)}."


def _preview_delete(place: ActionPlace, fields: Fields) -> Preview:
    level = Level.of(fields)
    before = level.stored(place.repository)
    return Preview(
        title=f"Delete the {level.title}",
        changes=tuple(PageChange(name, text, "none") for name, text in _by_name(before).items()),
        words=level.delete_words,
        options=(*level.resource_option, "--yes"),
        fields={
            "entity": level.entity_id,
            "resource": level.resource,
            "before": limit_lines(before),
        },
        touched=touched_by(place, level),
        note=f"{_fallback(place.repository, level)} Clients apply the change within their "
        "config_cache_ttl, by default a minute. Buckets and their levels stay.",
    )


def _fallback(repository: SyncRepository, level: Level) -> str:
    """Return a sentence about the limits that apply after those of a level are deleted."""
    if level.entity_id and level.resource == DEFAULT_RESOURCE:
        return "Afterwards the defaults of each resource apply, or those of the system."
    for following in level.next_levels():
        limits = following.stored(repository)
        if limits:
            return f"Afterwards the {following.title} apply: {describe_limits(limits)}."
    if not level.entity_id and not level.resource:
        return "The outage policy is deleted as well. Calls without any other limits will fail."
    return "There are no other limits: calls that bring none of their own will fail."


def _delete_limits(repository: SyncRepository, fields: Fields, principal: str) -> str:
    level = Level.of(fields)
    level.delete(repository, parse_limits(fields.get("before", "")), principal)
    return f"The {level.title} are deleted."


# --- parents ---------------------------------------------------------------------------------


def _parent(fields: Fields) -> tuple[str, str | None, bool]:
    parent = fields.get("parent", "").strip()
    if parent:
        check_entity_id(parent, "parent")
    return check_entity_id(fields.get("entity", "")), parent or None, fields.get("cascade") == "on"


def _parent_text(parent: str | None, cascade: bool) -> str:
    if parent is None:
        return "none"
    return f"{parent}, charged as well" if cascade else f"{parent}, not charged"


def _preview_parent(place: ActionPlace, fields: Fields) -> Preview:
    entity_id, parent, cascade = _parent(fields)
    entity = place.repository.get_entity(entity_id)
    if entity is None:
        raise EntityNotFoundError(entity_id)
    before = _parent_text(entity.parent_id, entity.cascade)
    target: Sequence[str] = (parent,) if parent else ()
    return Preview(
        title=f"Set the parent of {entity_id}",
        changes=(PageChange("parent", before, _parent_text(parent, cascade)),),
        words=("entity", "set-parent", entity_id, *target),
        options=("--none",)
        if parent is None
        else ("--cascade" if cascade else "--no-cascade", "--force"),
        fields={
            "entity": entity_id,
            "parent": parent or "",
            "cascade": "on" if cascade else "",
            "before": before,
        },
        note="Buckets and limits stay. Clients charge the new parent within their cache time.",
    )


def _set_parent(repository: SyncRepository, fields: Fields, principal: str) -> str:
    entity_id, parent, cascade = _parent(fields)
    entity = repository.get_entity(entity_id)
    if entity is None:
        raise EntityNotFoundError(entity_id)
    if _parent_text(entity.parent_id, entity.cascade) != fields.get("before"):
        raise ValidationError(
            "parent", entity.parent_id, "was changed meanwhile; look at it and decide again"
        )
    repository.set_parent(entity_id, parent, cascade, principal)
    return f"The parent of {entity_id} is now: {_parent_text(parent, cascade)}."


ACTIONS: dict[str, PageAction] = {
    "pause": PageAction("Pause", _preview_pause, _pause),
    "top-up": PageAction("Top up", _preview_top_up, _top_up),
    "reset": PageAction("Reset", _preview_reset, _reset),
    "set-limits": PageAction("Set limits", _preview_limits, _set_limits),
    "delete-limits": PageAction("Delete limits", _preview_delete, _delete_limits),
    "set-parent": PageAction("Set parent", _preview_parent, _set_parent),
}

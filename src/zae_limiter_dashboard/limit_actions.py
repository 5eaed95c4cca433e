"""Changes and deletions of the limits of a configuration level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from zae_limiter.models.limit import Limit, check_limits
from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter_dashboard.config_levels import Level
from zae_limiter_dashboard.previews import (
    ActionPlace,
    Fields,
    PageAction,
    PageChange,
    Preview,
    Touched,
)
from zae_limiter_ops.views.formatting import LEVELS, describe_limits

if TYPE_CHECKING:
    from zae_limiter import SyncRepository

MAX_NAMED = 20  # entities that a preview names
MAX_COUNTED = 10_000  # entities with limits of their own that a preview reads


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


SET_LIMITS = PageAction("Set limits", _preview_limits, _set_limits)
DELETE_LIMITS = PageAction("Delete limits", _preview_delete, _delete_limits, has_form=False)

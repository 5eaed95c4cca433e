"""Changes of the parent of an entity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zae_limiter.exceptions import EntityNotFoundError, ValidationError
from zae_limiter.naming import check_entity_id
from zae_limiter_dashboard.previews import ActionPlace, Fields, PageAction, PageChange, Preview

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zae_limiter import SyncRepository


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


SET_PARENT = PageAction("Set parent", _preview_parent, _set_parent)

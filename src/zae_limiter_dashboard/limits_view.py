"""Stored limits by configuration level, and manifests compared with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter_ops.manifest.problems import ManifestError
from zae_limiter_ops.manifest.reading import read_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from zae_limiter import SyncRepository
    from zae_limiter.models.config import OnUnavailable
    from zae_limiter.models.limit import Limit
    from zae_limiter.models.switches import Switch

MAX_ENTITIES = 50


class OwnLimits(NamedTuple):
    """An entity that has limits or a mode of its own on a resource."""

    entity_id: str
    resource: str
    limits: tuple[Limit, ...]
    mode: Switch | None = None


@dataclass(frozen=True, slots=True)
class StoredLimits:
    """The limits of a namespace: of the system, of resources, and of a page of entities."""

    system: tuple[Limit, ...]
    on_unavailable: OnUnavailable | None
    resources: tuple[tuple[str, tuple[Limit, ...], Switch | None], ...]
    entity_resources: tuple[str, ...]
    chosen: str  # the resource whose entities are listed
    entities: tuple[OwnLimits, ...]
    cursor: str | None


def stored_limits(
    repository: SyncRepository, chosen: str | None, cursor: str | None
) -> StoredLimits:
    """Read the limits of all levels; of entities, a page of those on one resource."""
    system, policy = repository.get_system_defaults()
    names = repository.list_resources()
    with_own = repository.list_resources_with_entity_configs()
    resource = chosen or (with_own[0] if with_own else DEFAULT_RESOURCE)
    ids, next_cursor = repository.list_entities_with_custom_limits(resource, MAX_ENTITIES, cursor)
    return StoredLimits(
        tuple(system),
        policy,
        tuple(
            (name, tuple(repository.get_resource_defaults(name)), repository.get_mode(name))
            for name in names
        ),
        tuple(with_own),
        resource,
        tuple(
            OwnLimits(
                each,
                resource,
                tuple(repository.get_limits(each, resource)),
                repository.get_mode(resource, each),
            )
            for each in ids
        ),
        next_cursor,
    )


# --- manifests -------------------------------------------------------------------------------

MARKS = {"create": "+", "update": "~", "delete": "-"}


class ManifestLine(NamedTuple):
    """One difference: a mark, a target, and its settings before and after."""

    mark: str
    target: str
    before: str
    after: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """A manifest compared with the store, or the problems of the manifest."""

    plan: tuple[ManifestLine, ...] = ()
    drift: tuple[ManifestLine, ...] = ()
    unchanged: int = 0
    problems: tuple[str, ...] = ()


def compare_manifest(repository: SyncRepository, text: str, source: str) -> ManifestReport:
    """Plan a manifest and look for drift; nothing is changed."""
    try:
        manifest = read_yaml(text, source)
    except ManifestError as error:
        return ManifestReport(problems=tuple(map(str, error.problems)))
    provisioner = repository.provisioner()
    plan = provisioner.plan(manifest).to_dict()
    drifts = [drift.to_dict() for drift in provisioner.diff(manifest)]
    return ManifestReport(
        plan=tuple(
            ManifestLine(
                MARKS[change["action"]],
                _target(change),
                _setting(change["before"]),
                _setting(change["after"]),
            )
            for change in plan["changes"]
        ),
        drift=tuple(
            ManifestLine(
                "~",
                _target(drift),
                _setting(drift["declared"]),
                _setting(drift["live"]),
                "by hand" if drift["cause"] == "by_hand" else "not applied yet",
            )
            for drift in drifts
        ),
        unchanged=plan["unchanged"],
    )


def read_named_manifest(path: Path) -> str:
    """Return the text of the file that the command names."""
    return path.read_text(encoding="utf-8")


def _target(document: dict[str, Any]) -> str:
    parts = [document["kind"], document.get("entity_id"), document.get("resource")]
    return " ".join(str(part) for part in parts if part)


def _setting(setting: dict[str, Any] | None) -> str:
    if setting is None:
        return "none"
    return ", ".join(_flat(setting)) or "none"


def _flat(setting: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in setting.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key} {value}"

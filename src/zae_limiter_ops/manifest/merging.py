"""Merge several manifests into one; only one of them may declare a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from zae_limiter_ops.manifest.declarations import (
    EntityDecl,
    LimitsManifest,
    ResourceDecl,
    SystemDecl,
)
from zae_limiter_ops.manifest.problems import Path

T = TypeVar("T")

Report = Callable[[Path, str], None]
TWICE = "is declared by another file as well; keep one"


def merge(parts: Iterable[tuple[LimitsManifest, Report]]) -> LimitsManifest:
    """Return the declarations of all manifests; a repeated target is reported as a mistake.

    ``parts`` pairs each manifest with the function that reports its mistakes.
    """
    merged = LimitsManifest()
    for manifest, report in parts:
        merged = LimitsManifest(
            _namespace(merged, manifest, report),
            _system(merged.system, manifest.system, report),
            _resources(merged.resources, manifest.resources, report),
            _entities(merged.entities, manifest.entities, report),
        )
    return merged


def _namespace(one: LimitsManifest, other: LimitsManifest, report: Report) -> str | None:
    if one.namespace is None or other.namespace in (None, one.namespace):
        return one.namespace or other.namespace
    report(
        ("namespace",),
        f"differs from {one.namespace!r} in another file; apply the files separately",
    )
    return one.namespace


def _system(one: SystemDecl | None, other: SystemDecl | None, report: Report) -> SystemDecl | None:
    if one is None or other is None:
        return one or other
    if one.limits and other.limits:
        report(("system", "limits"), TWICE)
    if one.on_unavailable is not None and other.on_unavailable is not None:
        report(("system", "on_unavailable"), TWICE)
    return SystemDecl(one.limits or other.limits, one.on_unavailable or other.on_unavailable)


def _resources(
    one: Mapping[str, ResourceDecl],
    other: Mapping[str, ResourceDecl],
    report: Report,
    path: Path = (),
) -> dict[str, ResourceDecl]:
    for name in one.keys() & other.keys():
        report((*path, "resources", name), TWICE)
    return {**other, **one}


def _entities(
    one: Mapping[str, EntityDecl], other: Mapping[str, EntityDecl], report: Report
) -> dict[str, EntityDecl]:
    merged = {**other, **one}
    for entity_id in one.keys() & other.keys():
        first, second = one[entity_id], other[entity_id]
        path = ("entities", entity_id)
        if first.has_place and second.has_place:
            report((*path, "parent"), TWICE)
        place = first if first.has_place else second
        merged[entity_id] = EntityDecl(
            _resources(first.resources, second.resources, report, path),
            place.parent,
            place.cascade,
            _registered(first.registered, second.registered, report, path),
        )
    return merged


def _registered(one: bool | None, other: bool | None, report: Report, path: Path) -> bool | None:
    if one is None or other is None:
        return other if one is None else one
    if one != other:
        report((*path, "registered"), "differs from another file; keep one")
    return one

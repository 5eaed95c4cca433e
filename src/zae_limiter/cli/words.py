"""Values in the words of people, and in those of programs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zae_limiter.cli.render import number

if TYPE_CHECKING:
    from zae_limiter.models.config import Namespace
    from zae_limiter.models.entity import Entity
    from zae_limiter.models.limit import Limit

DEFAULT_RESOURCE = "_default_"
UNITS = {1: "sec", 60: "min", 3600: "hour", 86_400: "day"}
LEVELS = {
    "entity": "entity, this resource",
    "entity_default": "entity, any resource",
    "resource": "resource defaults",
    "system": "system defaults",
}


def plain(text: object) -> str:
    """Text that does nothing to a terminal: control characters are spelled out."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in str(text)
    )


def rate(limit: Limit) -> str:
    """``1,000/min``."""
    unit = UNITS.get(limit.refill_period_seconds)
    per = f"/{unit}" if unit else f" every {number(limit.refill_period_seconds)} s"
    return number(limit.refill_amount) + per


def limits_line(limits: Iterable[Limit]) -> str:
    """``rpm 60/min, tpm 10,000/min (burst 15,000)``."""
    return ", ".join(
        f"{limit.name} {rate(limit)}"
        + (f" (burst {number(limit.capacity)})" if limit.capacity != limit.refill_amount else "")
        for limit in limits
    )


def duration(seconds: float) -> str:
    """``now``, ``0.25 s``, ``3 min 20 s``, ``2 d 4 h``, ``never``."""
    if math.isinf(seconds):
        return "never"
    if seconds <= 0:
        return "now"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = math.ceil(seconds)
    for size, unit, smaller_size, smaller in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{number(whole // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def hour(start: str) -> str:
    """The hour that begins at an ISO time."""
    return f"{start[:10]} {start[11:16]}Z"


def moment(time: str) -> str:
    """An ISO time to the second, in UTC."""
    return f"{time[:10]} {time[11:19]}Z"


def tokens(milli: int) -> str:
    """Whole tokens where they are whole; negative in debt."""
    whole, rest = divmod(abs(milli), 1000)
    text = number(whole) + (f".{rest:03d}".rstrip("0") if rest else "")
    return f"-{text}" if milli < 0 else text


def on_resource(resource: str) -> str:
    return "any resource" if resource == DEFAULT_RESOURCE else f"{resource!r}"


def rows(count: int) -> str:
    return "1 row" if count == 1 else f"{number(count)} rows"


# --- for programs ----------------------------------------------------------------------------


def limits_json(limits: Iterable[Limit] | None) -> list[dict[str, Any]]:
    return [limit.to_dict() for limit in limits or ()]


def entity_json(entity: Entity) -> dict[str, Any]:
    return {
        "entity_id": entity.id,
        "name": entity.name,
        "parent_id": entity.parent_id,
        "cascade": entity.cascade,
        "metadata": dict(entity.metadata),
        "created_at": entity.created_at,
    }


def namespace_json(namespace: Namespace) -> dict[str, Any]:
    return {
        "namespace_id": namespace.namespace_id,
        "name": namespace.name,
        "status": namespace.status,
        "created_at": namespace.created_at,
        "deleted_at": namespace.deleted_at,
    }


def seconds_json(seconds: float) -> float | None:
    """Strict JSON has no infinity: null means never."""
    return None if math.isinf(seconds) else seconds

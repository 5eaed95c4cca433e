"""Values as text for people, and as values of JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zae_limiter.naming import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.models.config import SupersededLimit
    from zae_limiter.models.limit import Limit
    from zae_limiter.refusal import LimitedBy

NOT_REGISTERED = "in use, not registered"
# Configuration levels by the value of their ConfigSource.
LEVELS = {
    "entity": "entity, this resource",
    "entity_default": "entity, any resource",
    "resource": "resource defaults",
    "system": "system defaults",
}


def printable(text: object) -> str:
    """Escape control characters, so that stored text cannot control the terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in str(text)
    )


def format_number(value: int | Decimal) -> str:
    """Return ``12,000``, and money as ``12,000.50``."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,f}"


def format_short_number(value: int | Decimal) -> str:
    """Return three digits and a unit letter, for narrow columns and axes: ``12.3k``."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size or value <= -size:
            return f"{value / size:.3g}{letter}"
    return str(value) if isinstance(value, int) else f"{value:f}"


def format_rate(limit: Limit) -> str:
    """Return ``1,000/min`` or ``1/90s``, as ``-l`` takes it; ``in flight, 60s`` for slots.

    A quota, and a soft limit, is shown in its notation.
    """
    from zae_limiter.models.notation import format_period

    if limit.is_quota or limit.soft:
        return str(limit).removeprefix(f"{limit.name}:")
    if limit.lease_ttl is not None:
        return f"in flight, {limit.lease_ttl}s"
    return f"{format_number(limit.refill_amount)}/{format_period(limit.refill_period_seconds)}"


def describe_limits(limits: Iterable[Limit]) -> str:
    """Return ``rpm 60/min, tpm 10,000/min (burst 15,000), parallel 20 in flight``, or ``none``."""
    return ", ".join(map(_describe_limit, limits)) or "none"


def _describe_limit(limit: Limit) -> str:
    if limit.lease_ttl is not None and not limit.soft:
        slots = f"{limit.name} {format_number(limit.capacity)} in flight"
        return slots if limit.lease_ttl == 60 else f"{slots} (lease {limit.lease_ttl}s)"
    has_burst = limit.capacity != limit.refill_amount and not limit.soft
    burst = f" (burst {format_number(limit.capacity)})" if has_burst else ""
    return f"{limit.name} {format_rate(limit)}{burst}"


def format_duration(seconds: float) -> str:
    """Return ``now``, ``0.25 s``, ``3 min 20 s``, ``2 d 4 h`` or ``never``."""
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
            return f"{format_number(whole // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def format_hour(start: str) -> str:
    """Return the hour that starts at an ISO time: ``2026-01-31 08:00Z``."""
    return f"{start[:10]} {start[11:16]}Z"


def format_time(time: str) -> str:
    """Return an ISO time to the second: ``2026-01-31 08:15:30Z``."""
    return f"{time[:10]} {time[11:19]}Z"


def format_tokens(milli: int) -> str:
    """Return tokens without trailing zeros: ``1,200``, ``0.5``, ``-3`` for a debt."""
    whole, rest = divmod(abs(milli), 1000)
    text = format_number(whole) + (f".{rest:03d}".rstrip("0") if rest else "")
    return f"-{text}" if milli < 0 else text


def format_level(limit: Limit, units: int) -> str:
    """Return millitokens in tokens, or billionths of a budget in currency units."""
    return format_tokens(units) if limit.currency is None else format_amount(limit.shown(units))


def describe_resource(resource: str) -> str:
    """Return the quoted name; ``any resource`` for the limits on all other resources."""
    return "any resource" if resource == DEFAULT_RESOURCE else f"{resource!r}"


def count_of(count: int, thing: str, things: str = "") -> str:
    """Return ``1 row`` or ``2,000 rows``; ``things`` is a plural that does not end in s."""
    return f"1 {thing}" if count == 1 else f"{format_number(count)} {things or thing + 's'}"


# --- for programs ----------------------------------------------------------------------------


def limits_json(limits: Iterable[Limit] | None) -> list[dict[str, Any]]:
    """Return the limits as JSON; an empty list for None."""
    return [limit.to_dict() for limit in limits or ()]


def superseded_json(superseded: Iterable[SupersededLimit]) -> list[dict[str, Any]]:
    """Return limits that no longer apply as JSON; the resource is null for all not named."""
    return [
        {"limit_name": each.limit.name, "resource": each.resource, "source": str(each.source)}
        for each in superseded
    ]


def describe_superseded(superseded: Iterable[SupersededLimit]) -> str:
    """Return limits that no longer apply, with the level of each."""
    texts = []
    for limit, source, resource in superseded:
        where = f" on {resource}" if resource else ""
        texts.append(f"{describe_limits([limit])}{where} ({LEVELS[source]})")
    return ", ".join(texts)


def seconds_json(seconds: float) -> float | None:
    """Return None, which means never, for infinity: strict JSON has no infinity."""
    return None if math.isinf(seconds) else seconds


def plain_amount(amount: int | Decimal | None) -> int | str | None:
    """Return an amount as a JSON value or a cell of a table: money is a text."""
    return amount if amount is None or type(amount) is int else f"{amount:f}"


def format_amount(amount: int | Decimal | None) -> str:
    """Return an amount with thousands separators."""
    return f"{amount:,}" if type(amount) is int or amount is None else f"{amount:,f}"


def list_or_none(limited_by: LimitedBy | None) -> list[str] | None:
    """Return the three names for JSON."""
    return None if limited_by is None else list(limited_by)

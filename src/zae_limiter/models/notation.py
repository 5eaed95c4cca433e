"""Limits as text: ``name:rate[/period][:burst]``, for example ``rpm:1000/min:1500``.

Calls in flight are ``name:n/concurrent[:lease_ttl]``, for example ``parallel:20/concurrent:60s``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit

FORM = (
    "must be name:rate[/period][:burst], such as rpm:60, tpm:9000/min:9999 or batch:1/90s:5, "
    "or name:n/concurrent[:lease_ttl], such as parallel:20/concurrent:60s"
)
PERIODS = "must be sec, min, hour, day or week, or a number of them such as 90s or 2h"
DEFAULT_UNIT = "min"
CONCURRENT = "concurrent"

# At most thirty digits: a limit has far fewer, and int() stays fast.
_NUMBER = r"[0-9](?:_?[0-9]){0,29}"
_LIMIT = re.compile(rf"([^:]+):({_NUMBER})(?:/([^:/]+))?(?::({_NUMBER}))?")
_SLOTS = re.compile(rf"([^:]+):({_NUMBER})/{CONCURRENT}(?::([^:/]+))?")
_PERIOD = re.compile(rf"({_NUMBER})?([a-z]+)")

# The name of one unit, its letter after a number, and other spellings.
_UNITS = {
    604_800: ("week", "w", "weeks"),
    86_400: ("day", "d", "days"),
    3600: ("hour", "h", "hours"),
    60: ("min", "m", "mins", "minute", "minutes"),
    1: ("sec", "s", "secs", "second", "seconds"),
}
_SECONDS = {spelling: seconds for seconds, names in _UNITS.items() for spelling in names}


def parse_limit(text: object) -> Limit:
    """Read a limit; raise a ValidationError that shows the notation if the text is wrong."""
    from zae_limiter.models.limit import (  # imported here, since that module imports this one
        DEFAULT_LEASE_TTL,
        Limit,
    )

    if isinstance(text, str) and (slots := _SLOTS.fullmatch(text.strip())):
        name, count, lease_ttl = slots.groups()
        seconds = DEFAULT_LEASE_TTL if lease_ttl is None else parse_period(lease_ttl)
        return Limit.concurrent(name, int(count), seconds)
    match = _LIMIT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValidationError("limit", text, FORM)
    name, rate, period, burst = match.groups()
    return Limit(name, int(burst or rate), int(rate), parse_period(period or DEFAULT_UNIT))


def parse_period(text: str) -> int:
    """Read a period, such as ``min`` or ``90s``, as seconds."""
    match = _PERIOD.fullmatch(text)
    seconds = _SECONDS.get(match[2]) if match else None
    if match is None or seconds is None:
        raise ValidationError("limit.period", text, PERIODS)
    return int(match[1] or 1) * seconds


def format_limit(limit: Limit) -> str:
    """Write a limit. The burst is written only if it differs from the rate."""
    if limit.lease_ttl is not None:
        return f"{limit.name}:{limit.capacity}/{CONCURRENT}:{limit.lease_ttl}s"
    burst = "" if limit.capacity == limit.refill_amount else f":{limit.capacity}"
    period = format_period(limit.refill_period_seconds)
    return f"{limit.name}:{limit.refill_amount}/{period}{burst}"


def format_period(seconds: int) -> str:
    """Write a period in its largest whole unit: ``min``, ``90s``, ``2h``."""
    unit = next(unit for unit in _UNITS if seconds % unit == 0)
    name, letter, *_ = _UNITS[unit]
    return name if seconds == unit else f"{seconds // unit}{letter}"

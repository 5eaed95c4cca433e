"""Limits as text: ``name:rate[/period][:burst]``, for example ``rpm:1000/min:1500``.

Calls in flight are ``name:n/concurrent[:lease_ttl]``, for example ``parallel:20/concurrent:60s``.
An ``@`` makes a quota: ``tokens:1M/month@Europe/Berlin`` begins anew with each month there, and
``session:500k/5h@first-use`` five hours after its first use. A currency makes a budget:
``usd:250USD/month@UTC``. Options follow behind commas, such as ``,soft`` or ``,hold=10m``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit

FORM = (
    "must be name:rate[/period][:burst], such as rpm:60, tpm:9000/min:9999 or batch:1/90s:5, "
    "or name:n/concurrent[:lease_ttl], such as parallel:20/concurrent:60s, "
    "or name:amount/period@zone, such as tokens:1M/month@UTC or usd:250USD/month@UTC"
)
PERIODS = "must be sec, min, hour, day or week, or a number of them such as 90s or 2h"
OPTIONS = "must be on=, at=, soft, hold= or warn=, such as on=31,soft,hold=10m,warn=50+80"
DEFAULT_UNIT = "min"
CONCURRENT = "concurrent"
FIRST_USE = "first-use"
NEVER, NO_WARNING = "never", "none"  # hold=never, warn=none

# At most thirty digits: a limit has far fewer, and int() stays fast.
_NUMBER = r"[0-9](?:_?[0-9]){0,29}"
_LIMIT = re.compile(rf"([^:]+):({_NUMBER}[kMG]?)(?:/([^:/]+))?(?::({_NUMBER}[kMG]?))?")
_SLOTS = re.compile(rf"([^:]+):({_NUMBER})/{CONCURRENT}(?::([^:/]+))?")
_QUOTA = re.compile(rf"([^:]+):({_NUMBER}(?:\.[0-9]{{1,30}})?)([kMG]?)([A-Z]{{3}})?/([^@:]+)@(.+)")
_PERIOD = re.compile(rf"({_NUMBER})?([a-z]+)")
_LARGE = {"k": 10**3, "M": 10**6, "G": 10**9}

# The name of one unit, its letter after a number, and other spellings.
_UNITS = {
    604_800: ("week", "w", "weeks"),
    86_400: ("day", "d", "days"),
    3600: ("hour", "h", "hours"),
    60: ("min", "m", "mins", "minute", "minutes"),
    1: ("sec", "s", "secs", "second", "seconds"),
}
_SECONDS = {spelling: seconds for seconds, names in _UNITS.items() for spelling in names}
# Periods of the calendar by their spellings. Months and years have no length in seconds.
_CALENDAR = {
    **{name: unit for unit in ("month", "quarter", "year") for name in (unit, unit + "s")},
    **dict.fromkeys(_UNITS[604_800], "week"),
    **dict.fromkeys(_UNITS[86_400], "day"),
    **dict.fromkeys(_UNITS[3600], "hour"),
    **dict.fromkeys(_UNITS[60], "minute"),
}


def parse_limit(text: object) -> Limit:
    """Read a limit; raise a ValidationError that shows the notation if the text is wrong."""
    from zae_limiter.models.limit import (  # imported here, since that module imports this one
        DEFAULT_LEASE_TTL,
        Limit,
    )

    if not isinstance(text, str):
        raise ValidationError("limit", text, FORM)
    head, *options = [part.strip() for part in text.strip().split(",")]
    if "@" in head:
        return _parse_quota(text, head, options)
    if slots := _SLOTS.fullmatch(head):
        name, count, lease_ttl = slots.groups()
        seconds = DEFAULT_LEASE_TTL if lease_ttl is None else parse_period(lease_ttl)
        return Limit.concurrent(name, int(count), seconds, soft=_is_soft(options))
    match = _LIMIT.fullmatch(head)
    if match is None:
        raise ValidationError("limit", text, FORM)
    name, rate, period, burst = match.groups()
    refill, seconds = _whole(rate), parse_period(period or DEFAULT_UNIT)
    capacity = _whole(burst) if burst else refill
    return Limit(name, capacity, refill, seconds, soft=_is_soft(options))


def _parse_quota(text: str, head: str, options: list[str]) -> Limit:
    from zae_limiter.models.limit import Limit

    match = _QUOTA.fullmatch("@".join(part.strip() for part in head.split("@")))
    if match is None:
        raise ValidationError("limit", text, FORM)
    name, number, large, currency, period, zone = match.groups()
    keywords = _option_keywords(options)
    if zone == FIRST_USE:
        keywords["after_first_use"] = parse_period(period)
    else:
        every, per = _calendar_period(period)
        keywords |= {"per": per, "every": every, "zone": zone}
    if currency is None:
        if "." in number:
            raise ValidationError("limit.amount", number, "must be a whole number of tokens")
        return Limit.quota(name, _whole(number + large), **keywords)
    from decimal import Decimal

    amount = Decimal(number) * _LARGE.get(large, 1)
    return Limit.budget(name, amount, currency=currency, **keywords)


def _option_keywords(options: list[str]) -> dict[str, Any]:
    """Return the options of a quota as keywords of ``Limit.quota``."""
    keywords: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if name == "soft" and not equals:
            keywords["soft"] = True
        elif name == "on" and value:
            keywords["on"] = int(value) if value.isdecimal() and len(value) < 3 else value
        elif name == "at" and value:
            keywords["at"] = value
        elif name == "hold" and value:
            keywords["hold_ttl"] = None if value == NEVER else parse_period(value)
        elif name == "warn" and value:
            keywords["thresholds"] = _percentages(value)
        else:
            raise ValidationError("limit.options", option, OPTIONS)
    return keywords


def _percentages(text: str) -> tuple[int, ...]:
    if text == NO_WARNING:
        return ()
    parts = text.split("+")
    if not all(part.isdecimal() and len(part) <= 3 for part in parts):
        raise ValidationError("limit.options", f"warn={text}", OPTIONS)
    return tuple(int(part) for part in parts)


def _is_soft(options: list[str]) -> bool:
    """Tell whether a rate or slots are soft; raise for options that only quotas have."""
    if options == ["soft"]:
        return True
    if options:
        reason = "is only for quotas, which have a zone: write /month@UTC, for example"
        raise ValidationError("limit.options", ",".join(options), reason)
    return False


def _whole(text: str) -> int:
    """Read a whole number, which may end with k, M or G."""
    large = _LARGE.get(text[-1], 1)
    return int(text if large == 1 else text[:-1]) * large


def _calendar_period(text: str) -> tuple[int, str]:
    """Read a period of the calendar, such as ``month`` or ``2weeks``: a number and a unit."""
    match = _PERIOD.fullmatch(text)
    unit = _CALENDAR.get(match[2]) if match else None
    if match is None or unit is None:
        raise ValidationError(
            "limit.period", text, "must be min, hour, day, week, month, quarter or year"
        )
    return int(match[1] or 1), unit


def parse_period(text: str) -> int:
    """Read a period, such as ``min`` or ``90s``, as seconds."""
    match = _PERIOD.fullmatch(text)
    seconds = _SECONDS.get(match[2]) if match else None
    if match is None or seconds is None:
        if match is not None and (unit := _CALENDAR.get(match[2])) is not None:
            raise ValidationError(
                "limit.period", text, f"a {unit} is a calendar window, write /{text}@UTC"
            )
        raise ValidationError("limit.period", text, PERIODS)
    return int(match[1] or 1) * seconds


def format_limit(limit: Limit) -> str:
    """Write a limit. The burst is written only if it differs from the rate."""
    soft = ",soft" if limit.soft else ""
    if limit.lease_ttl is not None:
        return f"{limit.name}:{limit.capacity}/{CONCURRENT}:{limit.lease_ttl}s{soft}"
    if limit.window is not None:
        return _format_quota(limit)
    burst = "" if limit.capacity == limit.refill_amount else f":{limit.capacity}"
    period = format_period(limit.refill_period_seconds)
    return f"{limit.name}:{limit.refill_amount}/{period}{burst}{soft}"


def _format_quota(limit: Limit) -> str:
    """Write a quota or budget; options that have their default are left out."""
    from zae_limiter.models.limit import DEFAULT_HOLD_TTL, DEFAULT_THRESHOLDS, FirstUse

    window, options = limit.window, []
    if isinstance(window, FirstUse):
        period, zone = format_period(window.seconds), FIRST_USE
    else:
        assert window is not None
        period, zone = _format_unit(window.every, window.unit), window.zone
        if window.on is not None:
            options.append(f"on={window.on}")
        if window.at != "00:00":
            options.append(f"at={window.at}")
    if limit.soft:
        options.append("soft")
    if limit.hold_ttl != DEFAULT_HOLD_TTL:
        ttl = limit.hold_ttl
        options.append(f"hold={NEVER if ttl is None else format_period(ttl)}")
    if limit.thresholds != DEFAULT_THRESHOLDS:
        options.append(f"warn={'+'.join(map(str, limit.thresholds)) or NO_WARNING}")
    if limit.currency is None:
        amount = format_large(limit.capacity)
    else:
        amount = f"{limit.amount:f}".removesuffix(".00") + limit.currency
    return ",".join([f"{limit.name}:{amount}/{period}@{zone}", *options])


def _format_unit(every: int, unit: str) -> str:
    if unit == "month" and every % 12 == 0:
        every, unit = every // 12, "year"
    elif unit == "month" and every % 3 == 0:
        every, unit = every // 3, "quarter"
    name = "min" if unit == "minute" else unit
    return name if every == 1 else f"{every}{name}s"


def format_large(number: int) -> str:
    """Write a whole number, with k, M or G if nothing is lost."""
    for letter, factor in reversed(_LARGE.items()):
        if number % factor == 0:
            return f"{number // factor}{letter}"
    return str(number)


def format_period(seconds: int) -> str:
    """Write a period in its largest whole unit: ``min``, ``90s``, ``2h``."""
    unit = next(unit for unit in _UNITS if seconds % unit == 0)
    name, letter, *_ = _UNITS[unit]
    return name if seconds == unit else f"{seconds // unit}{letter}"

"""HTTP headers that tell a client its limits, in three styles.

| style | headers | the time at which a limit is full again |
|---|---|---|
| ``ietf`` | ``RateLimit-Policy``, ``RateLimit`` (IETF draft 11) | seconds |
| ``x-ratelimit`` | ``X-RateLimit-{Limit,Remaining,Reset}`` of the tightest limit | epoch seconds |
| ``openai`` | ``x-ratelimit-{limit,remaining,reset}-{requests,tokens}`` | ``6m0s`` |

Numbers are whole: remaining tokens are rounded down and never negative, times are rounded up. If
the entity and its parent both have a limit, it is shown once, with the fewer remaining tokens. The
headers are about quotas over time, so limits on calls in flight are left out.

Money is whole as well, in millionths of the currency unit: ``RateLimit-Policy`` names this unit
(``qu="micro-USD"``). The other two styles have no units, so they leave budgets out: a client that
reads 0 for the last 0.50 USD would stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from zae_limiter.exceptions import ValidationError
from zae_limiter.rejection import NEVER_FITS_S

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.models.status import HeaderStyle, LimitStatus

MILLIONTHS = 10**6
LARGEST_INTEGER = 999_999_999_999_999  # in a structured field (RFC 9651)
# The last part of a limit's name tells what it counts. OpenAI's headers leave out other names.
REQUESTS = frozenset({"rps", "rpm", "rph", "rpd", "requests"})
TOKENS = frozenset({"tps", "tpm", "tph", "tpd", "tokens"})


def rate_limit_headers(
    statuses: Iterable[LimitStatus], style: HeaderStyle = "ietf", *, now_ms: int | None
) -> dict[str, str]:
    """Return the headers of one response; none if no limit is known.

    If the present moment (``now_ms``) is unknown, headers that contain a moment are left out.
    """
    write = _STYLES.get(style) if isinstance(style, str) else None
    if write is None:
        raise ValidationError("style", style, f"must be one of {', '.join(_STYLES)}")
    rates = [status for status in statuses if not status.limit.is_concurrent]
    if style != "ietf":
        rates = [status for status in rates if status.limit.currency is None]
    tightest = _tightest_by_name(rates)
    return write(tightest, now_ms) if tightest else {}


def seconds_until_full(status: LimitStatus, now_ms: int | None = None) -> float:
    """Return the seconds until a limit is full again if nothing else is charged.

    They may be too long by the time of one token, since the status has whole tokens only. A quota
    is full when its next window begins.
    """
    limit = status.limit
    if limit.is_quota:
        if status.window_end is None or now_ms is None:
            return 0.0 if status.window_end is None else float(limit.refill_period_seconds)
        return max(0.0, status.window_end.timestamp() - now_ms / 1000)
    missing = max(0, limit.capacity - int(status.available))
    return missing * limit.refill_period_seconds / limit.refill_amount


def _ietf(statuses: Sequence[LimitStatus], now_ms: int | None) -> dict[str, str]:
    return {
        "RateLimit-Policy": ", ".join(map(_policy, statuses)),
        "RateLimit": ", ".join([_quota(status, now_ms) for status in statuses]),
    }


def _policy(status: LimitStatus) -> str:
    """Write a limit. Its rate is the policy; a different burst is a parameter of our own."""
    limit = status.limit
    if limit.currency is not None:
        unit = f'qu="micro-{limit.currency}"'
        return f'"{limit.name}";q={_micros(limit.amount)};{unit};w={_window_s(status)}'
    rate = f'"{limit.name}";q={_integer(limit.refill_amount)};w={_window_s(status)}'
    if limit.capacity == limit.refill_amount:
        return rate
    return f"{rate};zae-burst={_integer(limit.capacity)}"


def _window_s(status: LimitStatus) -> int:
    """Return the seconds of a period; of a quota the length of its window, which is not constant.

    The statuses of a quota whose window has not begun name no window.
    """
    start, end = status.window_start, status.window_end
    if start is None or end is None:
        return status.limit.refill_period_seconds
    return int(end.timestamp() - start.timestamp())  # a difference of local times ignores changes


def _quota(status: LimitStatus, now_ms: int | None) -> str:
    """Write the remaining tokens and the time until the limit is full.

    For a limit that has rejected the call, it is the time until the call would fit, which is at
    most that of ``Retry-After``.
    """
    seconds = status.retry_after_seconds if status.exceeded else seconds_until_full(status, now_ms)
    until = NEVER_FITS_S if math.isinf(seconds) else math.ceil(seconds)
    left = _remaining(status)
    shown = _integer(left) if status.limit.currency is None else _micros(left)
    return f'"{status.limit_name}";r={shown};t={_integer(until)}'


def _x_ratelimit(statuses: Sequence[LimitStatus], now_ms: int | None) -> dict[str, str]:
    """Write one limit: the one with the longest rejection, or the least remaining share."""
    tightest = min(statuses, key=_tightness)
    headers = {
        "X-RateLimit-Limit": str(int(tightest.limit.amount)),
        "X-RateLimit-Remaining": str(int(_remaining(tightest))),
    }
    if now_ms is not None:
        full_s = math.ceil(now_ms / 1000 + seconds_until_full(tightest, now_ms))
        headers["X-RateLimit-Reset"] = str(full_s)
    return headers


def _openai(statuses: Sequence[LimitStatus], now_ms: int | None) -> dict[str, str]:
    headers = {}
    for kind, names in (("requests", REQUESTS), ("tokens", TOKENS)):
        counted = [status for status in statuses if _last_part(status.limit_name) in names]
        if counted:
            tightest = min(counted, key=_tightness)
            headers[f"x-ratelimit-limit-{kind}"] = str(int(tightest.limit.amount))
            headers[f"x-ratelimit-remaining-{kind}"] = str(int(_remaining(tightest)))
            headers[f"x-ratelimit-reset-{kind}"] = go_duration(seconds_until_full(tightest, now_ms))
    return headers


def go_duration(seconds: float) -> str:
    """Write a time as OpenAI does: ``12ms``, ``1s``, ``6m0s``, ``1h0m30s``; rounded up."""
    ms = math.ceil(seconds * 1000)
    if ms < 1000:
        return f"{ms}ms" if ms else "0s"
    whole = -(-ms // 1000)
    hours, minutes = whole // 3600, whole % 3600 // 60
    text = f"{hours}h" if hours else ""
    if hours or minutes:
        text += f"{minutes}m"
    return f"{text}{whole % 60}s"


_STYLES: dict[str, Callable[[Sequence[LimitStatus], int | None], dict[str, str]]] = {
    "ietf": _ietf,
    "x-ratelimit": _x_ratelimit,
    "openai": _openai,
}


def _tightest_by_name(statuses: Iterable[LimitStatus]) -> list[LimitStatus]:
    tightest: dict[str, LimitStatus] = {}
    for status in statuses:
        other = tightest.get(status.limit_name)
        if other is None or _tightest_key(status) < _tightest_key(other):
            tightest[status.limit_name] = status
    return list(tightest.values())


def _tightest_key(status: LimitStatus) -> tuple[float, float]:
    """Order limits of one name: the longest rejection first, then the least remaining."""
    return (-status.retry_after_seconds if status.exceeded else 0.0, float(status.available))


def _tightness(status: LimitStatus) -> tuple[float, float]:
    """Order limits of several names: the longest rejection, then the least remaining share."""
    waiting, available = _tightest_key(status)
    return waiting, available / float(status.limit.amount)


def _remaining(status: LimitStatus) -> int | Decimal:
    """Return what a client could still take; 0 while the bucket is paused or denied."""
    return 0 if status.is_stopped else max(0, status.available)


def _last_part(name: str) -> str:
    return name.replace("-", ".").replace("_", ".").rpartition(".")[2].lower()


def _micros(amount: int | Decimal) -> int:
    """Return money in millionths of the currency unit, rounded down."""
    return _integer(amount * MILLIONTHS)


def _integer(number: int | Decimal) -> int:
    return min(int(number), LARGEST_INTEGER)

"""The use of a window, as statuses and bucket states show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter.admission.quotas import (
    current_window,
    free_units,
    held_units,
    quota_terms,
    topped_units,
)
from zae_limiter.admission.windows import NO_WINDOW, Window, end_ms, start_ms, window_of
from zae_limiter.models.limit import FirstUse

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter.admission.image import LimitState
    from zae_limiter.models.limit import Limit


def window_fields(limit: Limit, state: LimitState, now_ms: int) -> dict[str, Any]:
    """Return the fields of a status that only quotas have; none for other limits."""
    if state.quota is None:
        return {}
    _, window = quota_terms(state.rate)
    number = current_window(state, now_ms)
    held, used = held_units(state, number, now_ms), 0
    if window_of(state.balance_milli) == number:
        level = free_units(state, now_ms)
        used = state.rate.capacity_milli + topped_units(state, number) - level - held
    start, end = window_times(window, number, state, now_ms)
    return {
        "used": limit.shown(used),
        "held": limit.shown(held),
        "window_start": start,
        "window_end": end,
    }


def window_times(
    window: Window, number: int, state: LimitState, now_ms: int
) -> tuple[datetime | None, datetime | None]:
    """Return start and end of a window in its zone; None for a window that has not begun."""
    if isinstance(window, FirstUse):
        if number == NO_WINDOW or window_of(state.balance_milli) != number:
            return None, None
        return _moment(start_ms(window, number), "UTC"), _moment(end_ms(window, number), "UTC")
    zone = window.zone
    return _moment(start_ms(window, number), zone), _moment(end_ms(window, number), zone)


def _moment(at_ms: int, zone: str) -> datetime:
    from datetime import UTC, datetime, timedelta  # rates have no windows
    from zoneinfo import ZoneInfo

    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    return moment if zone == "UTC" else moment.astimezone(ZoneInfo(zone))

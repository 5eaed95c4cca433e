"""Milliseconds since 1970 to and from the ISO text that users see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from zae_limiter.exceptions import ValidationError

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


def iso_from_ms(ms: int) -> str:
    """``2026-01-31T12:00:00Z``; with milliseconds only where there are any."""
    moment = _UNIX + timedelta(milliseconds=ms)
    style = "milliseconds" if ms % 1000 else "seconds"
    return moment.isoformat(timespec=style).replace("+00:00", "Z")


def ms_from_iso(value: str | datetime, field: str = "time") -> int:
    """Accepts ISO text or a datetime, rounded up; without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValidationError(field, value, "must be an ISO date or time") from None
    if not isinstance(value, datetime):
        raise ValidationError(field, value, "must be ISO text or a datetime")
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return -(-(value - _UNIX) // timedelta(milliseconds=1))

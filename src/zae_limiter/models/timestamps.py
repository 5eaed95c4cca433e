"""Units: millitokens, and the conversion between milliseconds since 1970 and ISO text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from datetime import datetime

MILLI = 1000  # levels are counted in millitokens, so that fractions of a token accrue
BILLIONTHS = 10**9  # money is counted in billionths of a currency unit

# `datetime` is imported inside of the functions: its import takes 2 ms, and no acquire needs it.


def iso_from_ms(ms: int) -> str:
    """Return a text such as ``2026-01-31T12:00:00Z``, with milliseconds unless they are 0."""
    from datetime import UTC, datetime, timedelta

    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    style = "milliseconds" if ms % 1000 else "seconds"
    return moment.isoformat(timespec=style).replace("+00:00", "Z")


def ms_from_iso(value: str | datetime, field: str = "time") -> int:
    """Return the milliseconds of ISO text or a datetime, rounded up; without a zone it is UTC."""
    from datetime import UTC, datetime, timedelta

    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValidationError(field, value, "must be an ISO date or time") from None
    if not isinstance(value, datetime):
        raise ValidationError(field, value, "must be ISO text or a datetime")
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return -(-(value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))

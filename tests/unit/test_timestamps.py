from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from zae_limiter import ValidationError
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso

NOON_MS = 1_769_860_800_000  # 2026-01-31T12:00Z


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (NOON_MS, "2026-01-31T12:00:00Z"),
        (NOON_MS + 7, "2026-01-31T12:00:00.007Z"),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_000, "9999-12-31T23:59:59Z"),
    ],
)
def test_iso_text_has_milliseconds_only_where_there_are_any(ms, text):
    assert iso_from_ms(ms) == text
    assert ms_from_iso(text) == ms


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-31T12:00:00",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00+00:00",
        "2026-01-31T13:30:00+01:30",
        "2026-01-31 12:00",
        datetime(2026, 1, 31, 12),  # noqa: DTZ001 - without a zone it is UTC
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        datetime(2026, 1, 31, 7, tzinfo=timezone(timedelta(hours=-5))),
    ],
    ids=str,
)
def test_moments_are_read_in_many_forms(value):
    assert ms_from_iso(value) == NOON_MS


def test_a_date_is_its_midnight():
    assert ms_from_iso("2026-01-31") == NOON_MS - 12 * 3_600_000


@pytest.mark.parametrize("value", ["", "soon", "31.01.2026", "2026-13-01", "2026-01-31T25:00"])
def test_other_text_is_refused(value):
    with pytest.raises(ValidationError, match="ISO") as caught:
        ms_from_iso(value, "start_time")
    assert caught.value.field == "start_time"


@pytest.mark.parametrize("value", [5, 5.0, None, date(2026, 1, 31)], ids=repr)
def test_other_types_are_refused(value):
    with pytest.raises(ValidationError, match="datetime"):
        ms_from_iso(value)

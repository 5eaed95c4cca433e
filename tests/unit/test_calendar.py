"""Edges that other libraries get wrong, and calendars that are refused."""

import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.calendar import Calendar


def ms(text):
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def edges_from(calendar, start, count):
    """Return the edges of the window at a moment and of those that follow, as local times."""
    k = calendar.number(ms(start))
    zone = ZoneInfo(calendar.zone)
    edges = [calendar.edge_ms(k + more) for more in range(count)]
    return [datetime.fromtimestamp(edge / 1000, zone).isoformat() for edge in edges]


def test_a_time_that_does_not_exist_begins_its_window_at_the_jump():
    calendar = Calendar("day", zone="America/New_York", at="02:30")
    assert edges_from(calendar, "2026-03-07T12:00-05:00", 3) == [
        "2026-03-07T02:30:00-05:00",
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]


def test_a_time_that_exists_twice_begins_its_window_the_first_time():
    calendar = Calendar("day", zone="America/New_York", at="01:30")
    assert edges_from(calendar, "2026-10-31T12:00-04:00", 3) == [
        "2026-10-31T01:30:00-04:00",
        "2026-11-01T01:30:00-04:00",
        "2026-11-02T01:30:00-05:00",
    ]
    second = ms("2026-11-01T01:30-05:00")
    assert calendar.number(second) == calendar.number(second - 3_600_000)


def test_the_window_does_not_go_back_with_the_clock():
    # At 02:00 the clock is set back to 01:00, an hour before the edge that it has passed.
    calendar = Calendar("day", zone="America/New_York", at="01:30")
    shown_before_edge = ms("2026-11-01T01:10-05:00")
    assert calendar.number(shown_before_edge) == calendar.number(ms("2026-11-01T12:00-05:00"))


def test_the_31st_of_every_month_is_its_last_day():
    calendar = Calendar.of("month", on=31)
    assert [edge[:10] for edge in edges_from(calendar, "2028-01-31T00:00+00:00", 5)] == [
        *("2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30", "2028-05-31"),
    ]
    assert [edge[:10] for edge in edges_from(calendar, "2027-02-28T00:00+00:00", 1)] == [
        "2027-02-28"
    ]


def test_edges_of_a_day_that_a_zone_left_out_coincide():
    calendar = Calendar("day", zone="Pacific/Apia")
    assert edges_from(calendar, "2011-12-29T12:00-10:00", 4) == [
        "2011-12-29T00:00:00-10:00",
        "2011-12-31T00:00:00+14:00",
        "2011-12-31T00:00:00+14:00",
        "2012-01-01T00:00:00+14:00",
    ]
    skipped = calendar.number(ms("2011-12-29T23:59-10:00")) + 1
    assert calendar.number(ms("2011-12-31T00:00+14:00")) == skipped + 1
    # Windows are counted by dates: no host is one window behind for ever after.
    days = (datetime(2012, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
    assert calendar.number(ms("2012-01-01T00:00+14:00")) == days


def test_half_an_hour_of_daylight_saving_time_moves_edges_by_half_an_hour():
    calendar = Calendar("day", zone="Australia/Lord_Howe", at="02:10")
    assert edges_from(calendar, "2026-10-03T12:00+10:30", 3) == [
        "2026-10-03T02:10:00+10:30",
        "2026-10-04T02:30:00+11:00",
        "2026-10-05T02:10:00+11:00",
    ]


def test_quarters_and_years_begin_in_january():
    quarter = Calendar.of("quarter", zone="Europe/Berlin")
    assert quarter == Calendar("month", 3, "Europe/Berlin")
    assert edges_from(quarter, "2026-11-16T00:00+01:00", 2) == [
        "2026-10-01T00:00:00+02:00",
        "2027-01-01T00:00:00+01:00",
    ]
    year = Calendar.of("year", zone="Europe/Berlin", on=15, at="06:00")
    assert edges_from(year, "2026-01-15T06:00+01:00", 2) == [
        "2026-01-15T06:00:00+01:00",
        "2027-01-15T06:00:00+01:00",
    ]


def test_weeks_begin_on_monday_unless_another_day_is_named():
    week = Calendar.of("week")
    assert edges_from(week, "2026-11-18T00:00+00:00", 1) == ["2026-11-16T00:00:00+00:00"]
    sunday = Calendar.of("week", on="sun")
    assert edges_from(sunday, "2026-11-18T00:00+00:00", 1) == ["2026-11-15T00:00:00+00:00"]


def test_windows_are_counted_from_january_1970():
    for calendar in (Calendar("day"), Calendar("month"), Calendar("hour"), Calendar("minute", 5)):
        assert calendar.number(0) == 0
        assert calendar.number(-1) == -1
        assert calendar.edge_ms(0) == 0
    assert Calendar("week").edge_ms(0) == 4 * 86_400_000  # the first Monday
    assert Calendar("week", on="thu").edge_ms(0) == 0


@pytest.mark.parametrize(
    "zone", ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "UTC"]
)
def test_every_day_of_a_year_is_one_window(zone):
    calendar = Calendar("day", zone=zone)
    noons = [
        datetime(2026, 1, 1, 12, tzinfo=ZoneInfo(zone)) + timedelta(days=day) for day in range(365)
    ]
    numbers = [calendar.number(ms(noon.isoformat())) for noon in noons]
    assert numbers == list(range(numbers[0], numbers[0] + 365))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"zone": "Europe/Berln"}, 'limit.zone: "Europe/Berln" is unknown; did you mean "Europe'),
        ({"zone": "localtime"}, 'limit.zone: "localtime" is unknown'),
        ({"zone": "Europe"}, 'limit.zone: "Europe" is unknown'),
        ({"zone": "../etc/passwd"}, "is unknown"),
        ({"zone": "/etc/localtime"}, "is unknown"),
        ({"zone": ""}, 'limit.zone: "" is unknown'),
        ({"zone": "A\0"}, "is unknown"),
        ({"zone": "X" * 5000}, "is unknown"),
        ({"zone": None}, "limit.zone: must be the name of a time zone"),
        ({"per": "hour", "zone": "Europe/Berlin"}, "limit.zone: windows below a day have no zone"),
        ({"per": "minute", "at": "00:30"}, "limit.at: windows below a day have no at"),
        ({"per": "hour", "on": 1}, "limit.on: is only for weeks and months, not for a hour"),
        ({"on": 1}, "limit.on: is only for weeks and months"),
        ({"per": "week", "on": 1}, "limit.on: must be one of mon, tue, wed, thu, fri, sat, sun"),
        ({"per": "week", "on": "monday"}, "limit.on: must be one of mon"),
        ({"per": "month", "on": "mon"}, "limit.on: must be a day from 1 to 31"),
        ({"per": "month", "on": 0}, "limit.on: must be a day from 1 to 31"),
        ({"per": "month", "on": 32}, "limit.on: must be a day from 1 to 31"),
        ({"per": "month", "on": True}, "limit.on: must be a day from 1 to 31"),
        ({"at": "24:00"}, "limit.at: must be a time of the day, HH:MM"),
        ({"at": "6:00"}, "limit.at: must be a time of the day, HH:MM"),
        ({"at": "06:60"}, "limit.at: must be a time of the day, HH:MM"),
        ({"at": "0６:00"}, "limit.at: must be a time of the day, HH:MM"),
        ({"at": 600}, "limit.at: must be a time of the day, HH:MM"),
        ({"every": 0}, "limit.every: must be a whole number from 1 to"),
        ({"every": 1.5}, "limit.every: must be a whole number from 1 to"),
        ({"every": True}, "limit.every: must be a whole number from 1 to"),
        ({"every": 10**9}, "limit.every: must be a whole number from 1 to"),
        ({"per": "year", "every": 101}, "limit.every: must be a whole number from 1 to 1200"),
        ({"per": "year", "every": "2"}, "limit.every: must be a whole number"),
        ({"per": "fortnight"}, "limit.period: must be minute, hour, day, week, month, quarter or"),
        ({"per": None}, "limit.period: must be minute"),
    ],
)
def test_a_calendar_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValidationError) as refused:
        Calendar.of(**{"per": "day", **arguments})
    assert message in str(refused.value)


def test_equal_windows_are_equal_calendars():
    assert Calendar("week", on="mon") == Calendar("week")
    assert Calendar("month", on=1) == Calendar("month")
    assert Calendar("month", on=2) != Calendar("month")


def test_windows_that_were_seen_change_neither_equality_nor_hash():
    one, other = Calendar("day", zone="Asia/Tokyo"), Calendar("day", zone="Asia/Tokyo")
    one.number(ms("2026-11-16T00:00+00:00"))
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == other
    assert repr(one) == repr(other)


def test_zones_are_known_where_the_system_has_no_data():
    code = "from zae_limiter.models.calendar import Calendar; Calendar('day', zone='Asia/Tokyo')"
    environment = {**os.environ, "PYTHONTZPATH": ""}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)

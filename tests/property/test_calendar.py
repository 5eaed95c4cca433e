"""Windows by the calendar, against brute force.

The brute force knows nothing of wall times: it walks through the changes of a zone's offset, and
through the moments of a time at which the local clock is read.
"""

import math
import zoneinfo
from bisect import bisect_right
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.models.calendar import WEEKDAYS, Calendar

ZONES = sorted(name for name in zoneinfo.available_timezones() if name[0].isupper())
# Zones that have skipped or repeated a day, change by half an hour, or change at midnight.
ODD_ZONES = [
    *("Pacific/Apia", "Pacific/Kwajalein", "Pacific/Kiritimati", "Pacific/Fakaofo"),
    *("Australia/Lord_Howe", "America/Juneau", "Asia/Manila", "America/Sao_Paulo"),
    *("Africa/Casablanca", "Asia/Tehran", "America/Havana", "Antarctica/Troll"),
    *("Africa/Monrovia", "Europe/Dublin", "America/New_York", "Europe/Berlin"),
]
FIRST, LAST = datetime(1968, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEAR = range(-2, 3)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
DAY_MS, YEAR_MS = 86_400_000, 366 * 86_400_000


def ms(moment):
    return (moment - EPOCH) // timedelta(milliseconds=1)


def offset(zone, t_ms):
    moment = EPOCH + timedelta(milliseconds=t_ms)
    return moment.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset() // timedelta(milliseconds=1)


# --- brute force


@cache
def offsets_of(zone, first, last, step):
    """Return ``[(moment, offset since then)]``, found by looking at the zone at every step."""
    found = [(ms(first), offset(zone, ms(first)))]
    for t_ms in range(ms(first), ms(last), step // timedelta(milliseconds=1)):
        seen = offset(zone, t_ms)
        if seen != found[-1][1]:
            low, high = t_ms // 1000 - step // timedelta(seconds=1), t_ms // 1000
            while high - low > 1:
                middle = (low + high) // 2
                if offset(zone, middle * 1000) == found[-1][1]:
                    low = middle
                else:
                    high = middle
            found.append((high * 1000, seen))
    return found


def first_reading(offsets, wall_ms):
    """Return the first moment at which the local clock reads the wall time or later."""
    ends = [begin for begin, _ in offsets[1:]] + [math.inf]
    readings = [max(begin, wall_ms - ahead) for begin, ahead in offsets]
    return next(reading for reading, end in zip(readings, ends, strict=True) if reading < end)


def wall_of(calendar, k):
    """Return the k-th wall time as the clock of the zone shows it, in milliseconds since 1970."""
    if calendar.unit == "month":
        years, month = divmod(k * calendar.every, 12)
        year, wanted = 1970 + years, calendar.on or 1
        day = date(year, month + 1, min(wanted, monthrange(year, month + 1)[1]))
    elif calendar.unit == "week":
        day = date(1970, 1, 1)
        while WEEKDAYS[day.weekday()] != (calendar.on or "mon"):
            day += DAY
        day += k * calendar.every * 7 * DAY
    else:
        day = date(1970, 1, 1) + k * calendar.every * DAY
    hours, minutes = calendar.at.split(":")
    return ms(datetime(day.year, day.month, day.day, int(hours), int(minutes), tzinfo=UTC))


def check_window(calendar, t_ms, offsets):
    """Compare the window at a moment with brute force, from fresh and from cached edges."""
    fresh = Calendar(calendar.unit, calendar.every, calendar.zone, calendar.on, calendar.at)
    k = fresh.number(t_ms)
    start, end = (first_reading(offsets, wall_of(calendar, k + more)) for more in (0, 1))
    assert start <= t_ms < end
    assert (fresh.edge_ms(k), fresh.edge_ms(k + 1)) == (start, end)
    assert calendar.number(t_ms) == k
    assert (calendar.edge_ms(k), calendar.edge_ms(k + 1)) == (start, end)


# --- what is tried


def calendars(zones):
    ats = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 1, 29, 30, 59]))
    ats |= st.just("00:00") | st.just("02:30")
    days = st.builds(Calendar, st.just("day"), st.integers(1, 40), zones, st.none(), ats)
    weekdays = st.sampled_from([None, *WEEKDAYS])
    weeks = st.builds(Calendar, st.just("week"), st.integers(1, 5), zones, weekdays, ats)
    month_days = st.none() | st.integers(1, 31) | st.sampled_from([28, 29, 30, 31])
    months = st.builds(Calendar, st.just("month"), st.integers(1, 13), zones, month_days, ats)
    return days | weeks | months


def moments_near(offsets, calendar, first, last):
    """Around changes of the offset, around edges of the calendar, and anywhere."""
    near = st.integers(-2 * DAY_MS, 2 * DAY_MS) | st.integers(-2000, 2000)
    anywhere = st.integers(first, last)
    changes = st.sampled_from([begin for begin, _ in offsets])
    edges = anywhere.map(lambda t_ms: calendar.edge_ms(calendar.number(t_ms)))
    around = st.builds(lambda moment, by: max(first, min(last, moment + by)), changes | edges, near)
    return anywhere | around


@given(st.data())
def test_windows_of_a_decade_are_those_of_brute_force(data):
    calendar = data.draw(calendars(st.sampled_from(ODD_ZONES) | st.sampled_from(ZONES)))
    year = data.draw(st.integers(1970, 2080))
    # A window of months may reach into the years before and after.
    first, last = (datetime(year + more, 1, 1, tzinfo=UTC) for more in (0, 14))
    offsets = offsets_of(calendar.zone, first, last, DAY)
    moments = moments_near(offsets, calendar, ms(first) + 2 * YEAR_MS, ms(last) - 2 * YEAR_MS)
    for _ in range(20):
        check_window(calendar, data.draw(moments), offsets)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(8))
def test_edges_around_every_change_of_every_zone_are_those_of_brute_force(part):
    for zone in ZONES[part::8]:
        offsets = offsets_of(zone, FIRST, LAST, timedelta(hours=6))
        forms = [
            *(Calendar("day", 1, zone, None, at) for at in ("00:00", "01:30", "02:30", "23:59")),
            Calendar("week", 1, zone, "sun", "02:00"),
            *(Calendar("month", 1, zone, day, "00:30") for day in (1, 30, 31)),
        ]
        for begin, _ in offsets[1:]:
            if begin < ms(EPOCH):  # the brute force knows nothing of the years before
                continue
            for calendar in forms:
                k = calendar.number(begin)
                expected = [first_reading(offsets, wall_of(calendar, k + by)) for by in NEAR]
                assert [calendar.edge_ms(k + by) for by in NEAR] == expected
                for t_ms in (begin - 1, begin, *expected):
                    check_number(calendar, t_ms)


def check_number(calendar, t_ms):
    k = calendar.number(t_ms)
    assert calendar.edge_ms(k) <= t_ms < calendar.edge_ms(k + 1)


@pytest.mark.parametrize(
    ("zone", "first", "days"),
    [
        ("America/New_York", datetime(2026, 3, 6, tzinfo=UTC), 4),
        ("America/New_York", datetime(2026, 10, 30, tzinfo=UTC), 4),
        ("Australia/Lord_Howe", datetime(2026, 4, 3, tzinfo=UTC), 3),
        ("Pacific/Apia", datetime(2011, 12, 28, tzinfo=UTC), 5),
        ("America/Sao_Paulo", datetime(2018, 2, 16, tzinfo=UTC), 3),
    ],
)
@pytest.mark.parametrize("at", ["00:00", "01:30", "02:30", "23:30"])
def test_a_clock_that_is_read_every_minute_begins_the_same_windows(zone, first, days, at):
    calendar = Calendar("day", 1, zone, None, at)
    walls = [wall_of(calendar, k) for k in range(22_000)]
    highest = 0  # the latest time that the clock has shown
    for minute in range(days * 1440):
        t_ms = ms(first + minute * MINUTE)
        highest = max(highest, t_ms + offset(zone, t_ms))
        if minute >= 1440:  # before, the clock may have shown more than was read here
            assert calendar.number(t_ms) == bisect_right(walls, highest) - 1


@given(st.integers(-(10**30), 10**30), calendars(st.sampled_from(ODD_ZONES)))
def test_every_moment_has_a_window(t_ms, calendar):
    check_number(calendar, t_ms)
    k = calendar.number(t_ms)
    assert calendar.edge_ms(k - 1) <= calendar.edge_ms(k)


@given(st.integers(-(10**15), 10**15), st.sampled_from(["minute", "hour"]), st.integers(1, 5000))
def test_windows_below_a_day_have_one_length_in_utc(t_ms, unit, every):
    calendar = Calendar(unit, every)
    length = every * {"minute": 60_000, "hour": 3_600_000}[unit]
    k = calendar.number(t_ms)
    assert (calendar.edge_ms(k), calendar.edge_ms(k + 1)) == (k * length, (k + 1) * length)
    assert k * length <= t_ms < (k + 1) * length

"""Windows of quotas by the calendar: months, weeks and days of a time zone, hours and minutes.

Windows are numbered from January 1970 by their wall-clock times. The number of the window at a
moment follows from the local date, so hosts with different time zone data disagree only near an
edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
FIXED_MS = {"minute": MINUTE_MS, "hour": HOUR_MS}  # windows of one length, without a zone
LONGEST = {  # a century; fewer days than the longest period of a rate
    "minute": 100 * 365 * 1440,
    "hour": 100 * 365 * 24,
    "day": 100 * 365,
    "week": 100 * 52,
    "month": 100 * 12,
}
LONGEST_DAYS = {"day": 1, "week": 7, "month": 31}
MONTHS = {"month": 1, "quarter": 3, "year": 12}
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
PERIODS = "minute, hour, day, week, month, quarter or year"
MIDNIGHT = "00:00"

FIRST_MONDAY = 4  # 1 January 1970 was a Thursday
LAST_DAY = 31
EPOCH_YEAR, DAYS_BEFORE_EPOCH_YEAR = 1970, 719_162  # since the year 1 of the Gregorian calendar
DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
MONTHS_OF_CYCLE, DAYS_OF_CYCLE = 4800, 146_097  # the Gregorian calendar repeats after 400 years
CYCLE_MS = DAYS_OF_CYCLE * DAY_MS
NOT_YET_SEEN = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Calendar:
    """Windows of ``every`` units, which begin at the wall-clock time ``at`` in a zone.

    Weeks begin on the weekday ``on``, on Monday if it is None. Months begin on the day ``on``, or
    on their last day if they are shorter; None is the first. Equal windows are equal calendars: the
    usual weekday or day is stored as None.
    """

    unit: str
    every: int = 1
    zone: str = "UTC"
    on: int | str | None = None
    at: str = MIDNIGHT
    # The number, the start and the end of the window that was asked for last.
    _seen: list[tuple[int, int, int]] = field(
        default_factory=lambda: [NOT_YET_SEEN], init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not isinstance(self.unit, str) or self.unit not in LONGEST:
            units = ", ".join(LONGEST)
            raise ValidationError("limit.period", self.unit, f"must be one of {units}")
        longest = LONGEST[self.unit]
        if type(self.every) is not int or not 1 <= self.every <= longest:
            raise ValidationError(
                "limit.every", self.every, f"must be a whole number from 1 to {longest}"
            )
        if not isinstance(self.zone, str):
            raise ValidationError("limit.zone", self.zone, "must be the name of a time zone")
        _check_time(self.at)
        object.__setattr__(self, "on", _checked_on(self.unit, self.on))
        if self.unit in FIXED_MS:
            if self.zone != "UTC":
                raise ValidationError("limit.zone", self.zone, "windows below a day have no zone")
            if self.at != MIDNIGHT:
                raise ValidationError("limit.at", self.at, "windows below a day have no at")
        _zone(self.zone)

    @classmethod
    def of(
        cls,
        per: str,
        every: int = 1,
        zone: str = "UTC",
        on: int | str | None = None,
        at: str = MIDNIGHT,
    ) -> Calendar:
        """Return the calendar of a period; a quarter is three months, and a year is twelve."""
        if not isinstance(per, str) or (per not in LONGEST and per not in MONTHS):
            raise ValidationError("limit.period", per, f"must be {PERIODS}")
        if per in MONTHS:
            every = every * MONTHS[per] if type(every) is int else every
            return cls("month", every, zone, on, at)
        return cls(per, every, zone, on, at)

    @property
    def length_ms(self) -> int:
        """The length of a window on paper; a month has 31 days there."""
        if self.unit in FIXED_MS:
            return self.every * FIXED_MS[self.unit]
        return self.every * LONGEST_DAYS[self.unit] * DAY_MS

    @property
    def longest_ms(self) -> int:
        """A time that no window exceeds, although clocks are set back."""
        return self.length_ms if self.unit in FIXED_MS else self.length_ms + DAY_MS

    def edge_ms(self, k: int) -> int:
        """Return the first moment at which the local clock reads the k-th wall time or later.

        In the gap of a clock that is set forward, that is the jump; of a repeated hour it is the
        first. Edges of a day that a zone has left out coincide.
        """
        number, start, end = self._seen[0]
        if start < end:
            if k == number:
                return start
            if k == number + 1:
                return end
        return self._find_edge(k)

    def number(self, t_ms: int) -> int:
        """Return the number of the window at a moment: the largest with an edge at or before it."""
        number, start, end = self._seen[0]
        if start <= t_ms < end:
            return number
        number = self._find_number(t_ms)
        self._seen[0] = (number, self._find_edge(number), self._find_edge(number + 1))
        return number

    def _find_edge(self, k: int) -> int:
        if self.unit in FIXED_MS:
            return k * self.every * FIXED_MS[self.unit]
        return _first_reading(self.zone, self._wall_ms(k))

    def _find_number(self, t_ms: int) -> int:
        if self.unit in FIXED_MS:
            return t_ms // (self.every * FIXED_MS[self.unit])
        number = self._last_wall(t_ms + _offset_ms(self.zone, t_ms))
        # A clock that was set back may have read the next wall time before.
        while self._find_edge(number + 1) <= t_ms:
            number += 1
        return number

    def _wall_ms(self, k: int) -> int:
        """Return the k-th wall time, in milliseconds since 1970 as the local clock counts them."""
        return self._first_day(k) * DAY_MS + _time_ms(self.at)

    def _last_wall(self, local_ms: int) -> int:
        """Return the number of the last wall time up to one that the local clock reads."""
        day = (local_ms - _time_ms(self.at)) // DAY_MS
        if self.unit == "month":
            month = _month_of(day)
            if day < _day_in_month(month, self._day_of_month):
                month -= 1
            return month // self.every
        if self.unit == "week":
            return (day - self._first_weekday) // (7 * self.every)
        return day // self.every

    def _first_day(self, k: int) -> int:
        """Return the day on which the k-th window begins, counted from 1 January 1970."""
        if self.unit == "month":
            return _day_in_month(k * self.every, self._day_of_month)
        if self.unit == "week":
            return self._first_weekday + k * 7 * self.every
        return k * self.every

    @property
    def _day_of_month(self) -> int:
        return self.on if isinstance(self.on, int) else 1

    @property
    def _first_weekday(self) -> int:
        """Return the day of the first such weekday since 1 January 1970."""
        weekday = WEEKDAYS.index(self.on) if isinstance(self.on, str) else 0
        return (FIRST_MONDAY + weekday) % 7


def _check_time(at: object) -> None:
    """Accept a time of the day, HH:MM."""
    if isinstance(at, str) and len(at) == len(MIDNIGHT) and at[2] == ":" and at.isascii():
        hours, minutes = at[:2], at[3:]
        if hours.isdigit() and minutes.isdigit() and int(hours) < 24 and int(minutes) < 60:
            return
    raise ValidationError("limit.at", at, "must be a time of the day, HH:MM")


def _checked_on(unit: str, on: object) -> int | str | None:
    """Return ``on`` in its one form: None for a Monday, and for the first of a month."""
    if on is None:
        return None
    if unit == "week":
        if not isinstance(on, str) or on not in WEEKDAYS:
            raise ValidationError("limit.on", on, f"must be one of {', '.join(WEEKDAYS)}")
        return None if on == WEEKDAYS[0] else on
    if unit == "month":
        if type(on) is not int or not 1 <= on <= LAST_DAY:
            raise ValidationError("limit.on", on, f"must be a day from 1 to {LAST_DAY}")
        return None if on == 1 else on
    raise ValidationError("limit.on", on, f"is only for weeks and months, not for a {unit}")


def _time_ms(at: str) -> int:
    return int(at[:2]) * HOUR_MS + int(at[3:]) * MINUTE_MS


def _month_start(month: int) -> int:
    """Return the first day of a month. Both are counted from January 1970."""
    years, index = divmod(month, 12)
    year = EPOCH_YEAR + years
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    after_february = index > 1
    return days + DAYS_BEFORE_MONTH[index] + (is_leap and after_february) - DAYS_BEFORE_EPOCH_YEAR


def _month_of(day: int) -> int:
    """Return the month of a day. Both are counted from January 1970."""
    month = day * MONTHS_OF_CYCLE // DAYS_OF_CYCLE  # months have nearly the same length
    while day < _month_start(month):
        month -= 1
    while day >= _month_start(month + 1):
        month += 1
    return month


def _day_in_month(month: int, day_of_month: int) -> int:
    """Return the given day of a month, or its last one if it is shorter."""
    return min(_month_start(month) + day_of_month, _month_start(month + 1)) - 1


def _first_reading(zone: str, wall_ms: int) -> int:
    """Return the first moment at which the clock of a zone reads a wall time or later."""
    before_ms, after_ms = wall_ms - DAY_MS, wall_ms + DAY_MS
    before, after = _offset_ms(zone, before_ms), _offset_ms(zone, after_ms)
    if before == after:
        return wall_ms - before
    change_ms = _change(zone, before_ms, after_ms)
    if wall_ms - before < change_ms:
        return wall_ms - before
    return max(change_ms, wall_ms - after)


def _change(zone: str, before_ms: int, after_ms: int) -> int:
    """Return the moment at which the offset of a zone changes. Zones change at whole seconds."""
    before = _offset_ms(zone, before_ms)
    low, high = before_ms // 1000, after_ms // 1000
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_ms(zone, middle * 1000) == before:
            low = middle
        else:
            high = middle
    return high * 1000


def _offset_ms(zone: str, t_ms: int) -> int:
    """Return the difference between the local clock of a zone and UTC at a moment."""
    from datetime import UTC, datetime, timedelta  # no acquire on a rate needs it

    # Zones of far years repeat with the calendar; datetime ends with the year 9999.
    within = t_ms if abs(t_ms) < 3 * CYCLE_MS else t_ms % CYCLE_MS + 2 * CYCLE_MS
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=within)
    offset = moment.astimezone(_zone(zone)).utcoffset()
    return 0 if offset is None else offset // timedelta(milliseconds=1)


@lru_cache(1024)
def _zone(name: str) -> ZoneInfo:
    """Return a zone by its name; an unknown one is an error, never UTC."""
    import zoneinfo

    if _is_standard(name):
        try:
            return zoneinfo.ZoneInfo(name)
        except (LookupError, ValueError, OSError):  # no such file, no such path, a folder
            pass
    raise ValidationError("limit.zone", name, f'"{name}" is unknown{_similar(name)}')


def _is_standard(name: str) -> bool:
    """Tell whether a name may be one of the tz database, whose names begin with a capital.

    Files such as ``localtime`` lie beside its zones, and differ from host to host.
    """
    return name[:1].isupper()


def _similar(name: str) -> str:
    """Return ``'; did you mean "Europe/Berlin"?'``, or an empty text if no name is similar."""
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    close = get_close_matches(name, filter(_is_standard, available_timezones()), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""

"""A year of quotas in zones with and without daylight saving time: each window admits its amount.

The edges are found by looking at the local date of every half hour: each zone of these changes its
clock by half hours.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.testing.clock import FakeClock

HALF_HOUR = timedelta(minutes=30)
PERIODS = {
    "day": lambda local: local.date(),
    "week": lambda local: local.isocalendar()[:2],
    "month": lambda local: (local.year, local.month),
}
# The first day of a year; Apia left out 30 December 2011.
YEARS = {
    "America/New_York": datetime(2026, 1, 15, tzinfo=UTC),
    "Europe/Berlin": datetime(2026, 1, 15, tzinfo=UTC),
    "Australia/Lord_Howe": datetime(2026, 1, 15, tzinfo=UTC),
    "Pacific/Apia": datetime(2011, 6, 15, tzinfo=UTC),
    "UTC": datetime(2026, 1, 15, tzinfo=UTC),
}
# The first window of each period, and one for each day, week and month that begins. The year of
# UTC begins at an edge; Apia, which left a day out, is a day ahead in the end.
WINDOWS = dict.fromkeys(YEARS, 3 + 365 + 52 + 12) | {"UTC": 3 + 364 + 52 + 12}
AMOUNT = 10


def edges(zone, per, first, days):
    """Return the moments at which the local date, week or month becomes another one."""
    moments = [first + at * HALF_HOUR for at in range(days * 48)]
    local = [PERIODS[per](moment.astimezone(ZoneInfo(zone))) for moment in moments]
    return [
        after
        for (_, before_period), (after, period) in pairwise(zip(moments, local, strict=True))
        if period != before_period
    ]


class Year:
    """A limiter with one resource for each period."""

    def __init__(self, url, zone):
        self.url, self.zone, self.clock = url, zone, FakeClock()
        self.windows = 0

    async def run(self, first, days):
        builder = Repository.builder().url(self.url).clock(self.clock).provision("table")
        async with await builder.rejection_cache_ttl(0).request_timeout(30).build() as repo:
            self.limiter = RateLimiter(repo)
            for per in PERIODS:
                limit = Limit.quota("tokens", AMOUNT, per=per, zone=self.zone)
                await repo.set_resource_defaults(per, [limit])
            events = sorted(
                (edge, per) for per in PERIODS for edge in edges(self.zone, per, first, days)
            )
            self.set(first)
            for per in PERIODS:
                await self.spend(per)
            for edge, per in events:
                self.set(edge - timedelta(milliseconds=1))
                assert not await self.granted(per, 1), f"{per} before {edge}"
                self.set(edge)
                await self.spend(per)
        return self

    def set(self, moment):
        self.clock.set(round(moment.timestamp() * 1000))

    async def spend(self, per):
        """Take all of a window, and no more."""
        assert await self.granted(per, 3)
        assert await self.granted(per, AMOUNT - 3)
        assert not await self.granted(per, 1)
        self.windows += 1

    async def granted(self, per, amount):
        try:
            async with self.limiter.acquire("team", per, {"tokens": amount}):
                return True
        except RateLimitExceeded:
            return False


@pytest.mark.parametrize("zone", YEARS)
async def test_each_window_of_a_year_admits_its_amount(memory_url, zone):
    year = await Year(memory_url, zone).run(YEARS[zone], 365)
    assert year.windows == WINDOWS[zone]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("zone", YEARS)
async def test_each_window_of_a_year_admits_its_amount_in_a_file(sqlite_url, zone):
    year = await Year(sqlite_url, zone).run(YEARS[zone], 365)
    assert year.windows == WINDOWS[zone]


# A few days around each change of the clock, the edge of a month, and the day that Apia left out.
CHANGES = [
    ("America/New_York", datetime(2026, 3, 6, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 30, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 3, 27, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 23, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 3, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 2, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 27, tzinfo=UTC)),
    ("UTC", datetime(2026, 12, 29, tzinfo=UTC)),
]


@pytest.mark.parametrize(
    ("zone", "first"),
    [
        pytest.param(*change, marks=[pytest.mark.slow] if at else [])
        for at, change in enumerate(CHANGES)
    ],
)
async def test_windows_around_a_change_of_the_clock_admit_their_amount(dynamodb_url, zone, first):
    year = await Year(dynamodb_url, zone).run(first, 5)
    assert year.windows >= 7

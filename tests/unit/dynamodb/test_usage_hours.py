"""Hours of several sources, a day at a time."""

import random

from zae_limiter._sync.engines.dynamodb.usage_hours import BufferedHours, MergedDays
from zae_limiter.admission.usage import BucketHour, WindowUsage


class Source:
    """Rows in pages, and how many of them were asked for."""

    def __init__(self, pages):
        self.pages = list(pages)
        self.asked = 0

    def page(self):
        self.asked += 1
        return self.pages.pop(0) if self.pages else []


def rows(resource, hours):
    return [BucketHour("user", resource, WindowUsage(hour, {}, 1)) for hour in sorted(hours)]


def paged(all_rows, dice):
    pages = []
    while all_rows:
        size = dice.randint(1, 5)
        pages.append(all_rows[:size])
        all_rows = all_rows[size:]
    return Source(pages)


def all_days(days):
    found = []
    while day := days.next():
        found.append(day)
    return found


def test_every_row_comes_once_and_days_are_whole():
    for seed in range(50):
        dice = random.Random(seed)
        sources = [
            rows(f"r{number}", dice.sample(range(-100, 200), dice.randint(0, 40)))
            for number in range(dice.randint(0, 4))
        ]
        found = all_days(MergedDays([BufferedHours(paged(each, dice)) for each in sources]))
        expected = sorted((row for each in sources for row in each), key=lambda row: row.usage.hour)
        flat = [row for day in found for row in day]
        assert [row.usage.hour for row in flat] == [row.usage.hour for row in expected]
        assert sorted(flat) == sorted(expected)
        starts = [{row.usage.hour // 24 for row in day} for day in found]
        assert all(len(day) == 1 for day in starts)
        assert len(starts) == len({min(day) for day in starts})


def test_only_what_a_day_needs_is_read():
    source = Source([rows("r", [hour]) for hour in range(100)])
    days = MergedDays([BufferedHours(source)])
    assert len(days.next()) == 24
    assert source.asked == 25

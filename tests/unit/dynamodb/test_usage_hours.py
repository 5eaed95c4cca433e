"""Stored rows and live hours together, in the order of time."""

import random

from zae_limiter._sync.engines.dynamodb.live_hours import RowId
from zae_limiter._sync.engines.dynamodb.usage_hours import HELD, HourRange, UsageHours
from zae_limiter.dynamodb.items.usage_reads import UsageRow

from zae_limiter.admission.tally import Tally
from zae_limiter.dynamodb.items.usage import OriginHour


class Rows:
    """Stored rows in pages."""

    def __init__(self, rows, dice):
        self._rows = list(rows)
        self._dice = dice

    def take(self):
        size = self._dice.randint(1, 5)
        page, self._rows = self._rows[:size], self._rows[size:]
        return page


class NoCalls:
    """A client that is never called: no row is open."""


def counted(origin, hour, tokens):
    return OriginHour(origin, hour, {"rpm": (tokens * 1000, 0)}, 1)


def all_hours(hours):
    found = []
    while page := hours.next():
        found.append(page)
    return found


def test_every_hour_comes_once_and_in_order():
    for seed in range(50):
        dice = random.Random(seed)
        stored, live, expected = [], {}, {}
        for hour in sorted(dice.sample(range(-50, 50), dice.randint(0, 40))):
            for resource in dice.sample("abc", dice.randint(1, 3)):
                is_stored, is_live = dice.choice([(1, 0), (0, 1), (1, 1)])
                if is_stored:
                    origins = {"0.x": counted("0.x", hour, 1)}
                    stored.append(UsageRow("user", resource, hour, origins))
                if is_live:
                    row_id = RowId(hour, "user", resource)
                    live[row_id] = {
                        "0.x": counted("0.x", hour, 1),
                        "1.y": counted("1.y", hour, 10),
                    }
                expected[hour, resource] = 11 if is_live else 1
        hours = UsageHours(NoCalls(), "ns", Rows(stored, dice), live)
        rows = [row for page in all_hours(hours) for row in page]
        assert [row.usage.hour for row in rows] == sorted(row.usage.hour for row in rows)
        found = {(row.usage.hour, row.resource): row.usage.counters["rpm"] for row in rows}
        assert (found, len(found)) == (expected, len(rows))


def test_hours_in_which_nothing_was_counted_are_left_out():
    empty = {"0.x": OriginHour("0.x", 3, {"rpm": (0, 0)}, 0)}
    rejected = {"0.x": OriginHour("0.x", 4, {"rpm": (0, 0)}, 0, Tally(2))}
    rows = [UsageRow("user", "api", 3, empty), UsageRow("user", "api", 4, rejected)]
    hours = UsageHours(NoCalls(), "ns", Rows(rows, random.Random(1)), {})
    assert [[row.usage.hour for row in page] for page in all_hours(hours)] == [[4]]


def test_queries_side_by_side_hold_a_bounded_number_of_rows():
    for queries in (1, 2, 32, 320):
        for wanted in (1, 100, 10**6):
            held = queries * HourRange(0, 1, wanted).page_size(queries)
            assert held <= max(HELD, 25 * queries)
    assert HourRange(0, 1, 51).page_size(1) == 51

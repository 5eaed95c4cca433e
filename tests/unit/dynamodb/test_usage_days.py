"""Stored rows and live hours together, by day, entity and resource."""

import random

from tests.support.hours import hour_of
from zae_limiter._sync.engines.items.usage.live import LiveHours
from zae_limiter._sync.engines.items.usage.reading import (
    HELD,
    MIN_KEYS,
    HourRange,
    UsageDays,
)
from zae_limiter.admission.tally import Tally
from zae_limiter.items.stored.usage.day_row import RowId, UsageRow

EVER = HourRange(-100, 1000)


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


def counted(hour, **tokens_by_origin):
    """Return an hour as some origins have counted it, by hour and origin."""
    return {
        (hour, origin): hour_of(hour, {"rpm": tokens})
        for origin, tokens in tokens_by_origin.items()
    }


def all_hours(days):
    found = []
    while page := days.next():
        found.append(page)
    return found


def test_every_hour_comes_once_and_in_the_order_of_days():
    for seed in range(50):
        dice = random.Random(seed)
        stored, live, expected = [], {}, {}
        for day in sorted(dice.sample(range(-3, 30), dice.randint(0, 20))):
            for resource in dice.sample("abc", dice.randint(1, 3)):
                for shard in range(dice.randint(1, 3)):
                    hour, row_id = day * 24 + shard % 2, RowId(day, "user", resource, shard)
                    is_stored, is_live = dice.choice([(1, 0), (0, 1), (1, 1)])
                    origin = f"x{shard}"
                    if is_stored:
                        stored.append(UsageRow(row_id, counted(hour, **{origin: 1})))
                    if is_live:
                        live[row_id] = counted(hour, **{origin: 1}, y=10)
                    place = (hour, resource)
                    expected[place] = expected.get(place, 0) + (11 if is_live else 1)
        days = UsageDays(NoCalls(), "ns", Rows(stored, dice), LiveHours(live, set()), EVER)
        rows = [row for page in all_hours(days) for row in page]
        order = [(row.usage.hour // 24, row.resource, row.usage.hour) for row in rows]
        assert order == sorted(order)
        found = {(row.usage.hour, row.resource): row.usage.used["rpm"] // 1000 for row in rows}
        assert (found, len(found)) == (expected, len(rows))


def test_hours_in_which_nothing_was_counted_are_left_out():
    empty, rejected = hour_of(3, {"rpm": 0}, 0), hour_of(4, {"rpm": 0}, 0, tally=Tally(2))
    hours = {(3, "x"): empty, (4, "x"): rejected}
    rows = [UsageRow(RowId(0, "user", "api", 0), hours)]
    days = UsageDays(NoCalls(), "ns", Rows(rows, random.Random(1)), LiveHours({}, set()), EVER)
    assert [[row.usage.hour for row in page] for page in all_hours(days)] == [[4]]


def test_hours_outside_of_the_range_are_left_out():
    hours = {(hour, "x"): hour_of(hour, {"rpm": 1}) for hour in range(9)}
    rows = [UsageRow(RowId(0, "user", "api", 0), hours)]
    rows_source, live = Rows(rows, random.Random(1)), LiveHours({}, set())
    days = UsageDays(NoCalls(), "ns", rows_source, live, HourRange(3, 6))
    assert [[row.usage.hour for row in page] for page in all_hours(days)] == [[3, 4, 5]]


def test_queries_side_by_side_hold_a_bounded_number_of_rows():
    for queries in (1, 2, 32, 320):
        for wanted in (1, 100, 10**6):
            held = queries * HourRange(0, 1, wanted).page_size(queries, MIN_KEYS)
            assert held <= max(HELD, MIN_KEYS * queries)
    assert HourRange(0, 1, 51).page_size(1, MIN_KEYS) == 51

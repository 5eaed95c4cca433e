"""The largest consumers: exact, whatever the number of entities."""

from datetime import timedelta

import pytest

from tests.support.hours import hour_of
from zae_limiter import ValidationError
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import BucketHour
from zae_limiter.usage.ranking import MAX_COUNTED, TopUsage, hours_of_last

NOW = 1_767_225_600_000 + 30 * 60_000  # 2026-01-01T00:30Z
HOUR = NOW // 3_600_000
QUERY = hours_of_last("24h", NOW)


def row(entity_id, hour=HOUR, events=1, through=None, **counters):
    tally = Tally(elsewhere=events if through else 0)
    usage = hour_of(hour, counters, events, through, tally)
    return BucketHour(entity_id, "gpt-4", usage)


def ranked(rows, by="tpm", limit=3, max_counted=MAX_COUNTED):
    """Return the ranking, and in how many passes it was made."""
    top, passes = TopUsage(QUERY, by, limit, max_counted), 0
    while top.begin_pass():
        passes += 1
        top.add(rows)
    return top.end(), passes


@pytest.mark.parametrize(
    ("last", "hours"),
    [("24h", 25), ("1h", 2), ("hour", 2), ("7d", 169), ("90min", 2), (timedelta(hours=3), 4)],
)
def test_a_span_is_rounded_to_whole_hours_and_includes_the_running_one(last, hours):
    query = hours_of_last(last, NOW)
    assert (query.end_hour, query.end_hour - query.start_hour) == (HOUR + 1, hours)


@pytest.mark.parametrize("last", ["", "soon", "0s", "h24", None, 24, timedelta(0), "9" * 30 + "w"])
def test_a_span_that_makes_no_sense_is_named(last):
    with pytest.raises(ValidationError) as caught:
        hours_of_last(last, NOW)
    assert caught.value.field == "last"


def test_a_long_span_begins_at_the_beginning():
    assert hours_of_last("9999w", NOW).start_hour == 0


def test_hours_and_resources_of_an_entity_are_added_up():
    rows = [row("a", tpm=5), row("b", tpm=8), row("a", HOUR - 1, tpm=4), row("c", tpm=-2)]
    ranking, _ = ranked(rows)
    assert [(usage.entity_id, usage.counters) for usage in ranking.consumers] == [
        ("a", {"tpm": 9}),
        ("b", {"tpm": 8}),
    ]
    assert ranking.consumers[0].total_events == 2


def test_equal_ones_are_in_the_order_of_their_ids():
    ranking, _ = ranked([row(name, tpm=1) for name in "dbca"])
    assert [usage.entity_id for usage in ranking.consumers] == ["a", "b", "c"]


def test_parents_are_ranked_by_all_that_counts_for_them_consumers_by_their_own():
    rows = [
        row("key", tpm=5),
        row("team", through={"tpm": 5}, tpm=9),
        row("other", through={"tpm": 20}, tpm=20),
    ]
    ranking, _ = ranked(rows)
    assert [usage.entity_id for usage in ranking.consumers] == ["key", "team"]
    assert [usage.entity_id for usage in ranking.parents] == ["other", "team"]
    by_calls, _ = ranked(rows, by=None)
    assert [usage.entity_id for usage in by_calls.consumers] == ["key"]
    assert [usage.entity_id for usage in by_calls.parents] == ["other", "team"]


def test_many_entities_are_added_up_in_parts_and_none_is_lost():
    rows = [row(f"key-{number:04}", tpm=number % 997) for number in range(1, 2000)] * 2
    ranking, passes = ranked(rows, limit=10, max_counted=100)
    expected = sorted(range(1, 2000), key=lambda number: (-(number % 997), number))[:10]
    assert [usage.entity_id for usage in ranking.consumers] == [
        f"key-{number:04}" for number in expected
    ]
    assert ranking.consumers[0].counters == {"tpm": 2 * 996}
    assert passes >= 20


def test_nothing_to_rank():
    ranking, passes = ranked([])
    assert (ranking.consumers, ranking.parents, passes) == ([], [], 1)
    assert (ranking.start_time, ranking.end_time) == (
        "2025-12-31T00:00:00Z",
        "2026-01-01T01:00:00Z",
    )

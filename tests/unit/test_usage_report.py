import pytest

from tests.support.hours import hour_of
from tests.support.usage_totals import summary_of
from zae_limiter import UsageSummary, ValidationError
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import BucketHour
from zae_limiter.usage.report import MAX_PAGE, UsagePage, UsageQuery, page_of

DAY = 20_484  # days since 1970: 2026-01-31
MIDNIGHT = DAY * 24


def row(hour, entity="user-1", resource="gpt-4", events=1, **counters):
    return BucketHour(entity, resource, hour_of(hour, counters or {"rpm": 1}, events))


def found(*rows, window=None, start=None, end=None):
    return listed(in_order(rows), UsageQuery.parse(window, start, end))


def listed(rows, query):
    return page_of(rows, query, MAX_PAGE, None)[0]


def in_order(rows):
    return sorted(rows, key=lambda each: each.usage.hour)


def page(rows, limit, key):
    return page_of(in_order(rows), UsageQuery.parse(None, None, None), limit, key)


def test_an_hour_is_a_window():
    (each,) = found(row(MIDNIGHT + 5, rpm=3, tpm=700, events=2), window="hourly")
    assert each.window_start == "2026-01-31T05:00:00Z"
    assert each.window_end == "2026-01-31T06:00:00Z"
    assert (each.window_type, each.counters) == ("hourly", {"rpm": 3, "tpm": 700})
    assert each.total_events == 2


def test_a_day_is_the_sum_of_its_hours():
    (each,) = found(
        row(MIDNIGHT, rpm=1),
        row(MIDNIGHT + 23, rpm=2, tpm=5),
        row(MIDNIGHT + 23, rpm=-1, events=0),
        window="daily",
    )
    assert (each.window_start, each.window_end) == ("2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z")
    assert each.counters == {"rpm": 2, "tpm": 5}
    assert each.total_events == 2


def test_a_month_is_the_sum_of_its_hours():
    hours = range(MIDNIGHT, MIDNIGHT + 3 * 24)  # the last day of January, two of February
    january, february = found(*(row(hour) for hour in hours), window="monthly")
    assert (january.window_start, january.window_end) == (
        "2026-01-01T00:00:00Z",
        "2026-02-01T00:00:00Z",
    )
    assert (january.counters, february.counters) == ({"rpm": 24}, {"rpm": 48})
    assert february.window_end == "2026-03-01T00:00:00Z"


def test_without_a_type_all_kinds_are_listed_oldest_first():
    kinds = [
        (each.window_start[8:13], each.window_type)
        for each in found(row(MIDNIGHT + 25), row(MIDNIGHT + 1), row(MIDNIGHT))
    ]
    assert kinds == [
        ("01T00", "monthly"),
        ("31T00", "daily"),
        ("31T00", "hourly"),
        ("31T01", "hourly"),
        ("01T00", "daily"),
        ("01T00", "monthly"),
        ("01T01", "hourly"),
    ]


def test_entities_and_resources_are_kept_apart():
    rows = [row(MIDNIGHT, "a", "x"), row(MIDNIGHT, "a", "y"), row(MIDNIGHT, "b", "x")]
    assert [(each.entity_id, each.resource) for each in found(*rows, window="hourly")] == [
        ("a", "x"),
        ("a", "y"),
        ("b", "x"),
    ]


def test_what_is_reported_does_not_change_what_is_stored():
    stored = row(MIDNIGHT, rpm=1)
    (each,) = found(stored, window="hourly")
    each.counters["rpm"] = 99
    assert stored.usage.used == {"rpm": 1000}


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        ("2026-01-31T02:00:00Z", "2026-01-31T04:00:00Z", [2, 3]),
        ("2026-01-31T02:00:00.001Z", "2026-01-31T04:00:00.001Z", [3, 4]),
        ("2026-01-31T01:59:59.999Z", "2026-01-31T03:59:59.999Z", [2, 3]),
        ("2026-01-31T02:00:00Z", "2026-01-31T02:00:00Z", []),
        ("2026-01-31T04:00:00Z", "2026-01-31T02:00:00Z", []),
        (None, "2026-01-31T02:00:00Z", [0, 1]),
        ("2026-01-31T05:00:00Z", None, [5]),
    ],
)
def test_windows_that_start_between_start_and_end(start, end, hours):
    rows = [row(MIDNIGHT + hour) for hour in range(6)]
    windows = found(*rows, window="hourly", start=start, end=end)
    assert [int(each.window_start[11:13]) for each in windows] == hours


def test_a_window_that_starts_a_moment_before_the_end_counts():
    windows = found(row(MIDNIGHT), window="hourly", end="2026-01-31T00:00:00.000500Z")
    assert len(windows) == 1


def test_a_day_counts_whole_if_it_starts_within_and_not_at_all_otherwise():
    query = UsageQuery.parse("daily", "2026-01-31", "2026-01-31T00:00:01Z")
    hours = range(query.start_hour, query.last_hour)
    assert (hours.start, hours.stop) == (MIDNIGHT, MIDNIGHT + 24)
    (each,) = listed([row(hour) for hour in hours], query)
    assert each.counters == {"rpm": 24}
    late = UsageQuery.parse("daily", "2026-01-31T00:00:01Z", "2026-02-01")
    assert not listed([row(MIDNIGHT + hour) for hour in range(24)], late)


@pytest.mark.parametrize("window", ["weekly", "", "HOURLY", 5])
def test_other_windows_are_refused(window):
    with pytest.raises(ValidationError, match="hourly, daily"):
        UsageQuery.parse(window, None, None)


@pytest.mark.parametrize("field", ["start_time", "end_time"])
def test_a_bad_time_is_named(field):
    times = {"start_time": None, "end_time": None, field: "soon"}
    with pytest.raises(ValidationError) as caught:
        UsageQuery.parse(None, **times)
    assert caught.value.field == field


# --- pages


ROWS = [row(MIDNIGHT + hour, entity) for hour in range(5) for entity in ("a", "b")]
LISTED = found(*ROWS)


@pytest.mark.parametrize("limit", range(1, len(LISTED) + 2))
def test_pages_put_together_are_the_whole(limit):
    pages, key = [], None
    while True:
        part, key = page(ROWS, limit, key)
        pages.append(part)
        if key is None:
            break
    assert [each for part in pages for each in part] == LISTED
    assert all(len(part) == limit for part in pages[:-1])
    assert 1 <= len(pages[-1]) <= limit


def test_a_page_goes_on_where_the_last_one_ended_whatever_came_since():
    first, key = page(ROWS, 3, None)
    more = [*ROWS, row(MIDNIGHT, "0")]
    second, _ = page(more, 3, key)
    assert not set(map(repr, first)) & set(map(repr, second))


def test_an_empty_page():
    assert page([], 10, None) == ([], None)
    assert page(ROWS, 10, "9999-01-01#hourly#a#x") == ([], None)


def test_a_page_of_months_is_bounded_in_memory():
    """A month of hours of many entities is read; only windows of the page are held."""
    part, sizes = UsagePage(UsageQuery.parse(None, None, None), 10, None), []

    def month():
        for hour in range(MIDNIGHT - 30 * 24, MIDNIGHT + 24, 6):
            for number in range(100):
                yield row(hour, f"user-{number:03}")
                sizes.append(len(part._windows))  # noqa: SLF001 - its size is what is tested

    part.add(month())
    assert max(sizes) <= 2 * 11 + 3
    assert not part.is_complete(MIDNIGHT)
    assert part.is_complete(MIDNIGHT + 24)  # the month is over
    windows, _ = part.end()
    assert {each.window_type for each in windows} == {"daily"}
    assert {each.entity_id for each in windows} == {f"user-{number:03}" for number in range(10)}


def test_a_page_in_the_middle_of_a_month_ends_before_the_month_does():
    query = UsageQuery.parse(None, None, None)
    part = UsagePage(query, 2, "2026-01-15T03:00:00Z#hourly#user-1#gpt-4")
    assert part.first_hour == MIDNIGHT - 16 * 24 + 3
    complete = []
    for hour in range(1, 6):
        part.add([row(part.first_hour + hour)])
        complete.append(part.is_complete(part.first_hour + hour))
    assert complete.index(True) == 3


def test_a_page_that_begins_within_a_day_needs_the_rest_of_that_day():
    """Rows of days come one bucket after the other: later buckets have hours before the last."""
    hourly = UsageQuery.parse("hourly", None, None)
    part = UsagePage(hourly, 2, "2026-01-15T03:00:00Z#hourly#user-1#gpt-4")
    day = part.first_hour - 3
    part.add(row(day + hour, "user-1") for hour in range(24))
    assert not part.is_complete(day)
    assert part.wants("user-2", "gpt-4", day // 24)
    assert part.is_complete(day + 24)
    part.add([row(day + 4, "user-2")])
    windows, _ = part.end()
    assert [(each.entity_id, each.window_start[11:13]) for each in windows] == [
        ("user-1", "04"),
        ("user-2", "04"),
    ]


@pytest.mark.parametrize("key", ["", "x", "a#b#c", "a#b#c#d#e", 5])
def test_a_key_from_elsewhere_is_refused(key):
    with pytest.raises(ValidationError, match="previous page"):
        page(ROWS, 10, key)


# --- summaries


def summary(rows, window="hourly", **selected):
    return summary_of(rows, UsageQuery.parse(window, None, None), **selected)


def test_a_summary_adds_up_and_averages_per_window():
    rows = [row(MIDNIGHT, rpm=1), row(MIDNIGHT + 3, rpm=4, tpm=10), row(MIDNIGHT + 5)]
    assert summary(rows) == UsageSummary(
        snapshot_count=3,
        total={"rpm": 6, "tpm": 10},
        average={"rpm": 2.0, "tpm": 10 / 3},
        min_window_start="2026-01-31T00:00:00Z",
        max_window_start="2026-01-31T05:00:00Z",
        window_count=3,
        calls=3,
    )


def test_an_average_is_over_hours_not_over_the_entities_in_them():
    rows = [row(MIDNIGHT + hour, entity, rpm=3) for hour in (0, 7) for entity in ("a", "b", "c")]
    whole = summary(rows)
    assert (whole.snapshot_count, whole.window_count, whole.average) == (6, 2, {"rpm": 9})
    assert summary(rows, "daily").average == {"rpm": 18}


def test_an_hour_that_only_rejected_is_no_hour_with_use():
    rejected = BucketHour("user-1", "gpt-4", hour_of(MIDNIGHT + 1, {}, 0, {}, Tally(5)))
    whole = summary([row(MIDNIGHT, rpm=4), rejected])
    assert (whole.snapshot_count, whole.window_count, whole.rejected) == (2, 1, 5)
    assert whole.average == {"rpm": 4}


def test_a_bucket_that_comes_twice_in_an_hour_is_one_snapshot():
    rows = [row(MIDNIGHT, rpm=1), row(MIDNIGHT, "user-2"), row(MIDNIGHT, rpm=2)]
    assert (summary(rows).snapshot_count, summary(rows).total) == (2, {"rpm": 4})


def test_what_came_through_children_is_counted_once_over_entities():
    parent = hour_of(MIDNIGHT, {"rpm": 5, "tpm": -7}, 2, {"rpm": 3, "tpm": -7})
    rows = [row(MIDNIGHT, "key", rpm=3, tpm=-7), BucketHour("team", "gpt-4", parent)]
    over_entities = summary(rows)
    assert over_entities.total == {"rpm": 5, "tpm": -7}
    assert over_entities.through_children == {"rpm": 3, "tpm": -7}
    assert summary(rows[1:], entity_id="team").total == {"rpm": 5, "tpm": -7}


def test_a_summary_of_nothing():
    assert summary([], None) == UsageSummary(0, {}, {}, None, None)

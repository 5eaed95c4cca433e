import pytest

from zae_limiter import UsageSummary, ValidationError
from zae_limiter.admission.usage import BucketHour, WindowUsage
from zae_limiter.usage_report import UsageQuery, page_of, snapshots, summary_of

DAY = 20_484  # days since 1970: 2026-01-31
MIDNIGHT = DAY * 24


def row(hour, entity="user-1", resource="gpt-4", events=1, **counters):
    return BucketHour(entity, resource, WindowUsage(hour, counters or {"rpm": 1}, events))


def found(*rows, window=None, start=None, end=None):
    return list(snapshots(in_order(rows), UsageQuery.parse(window, start, end)))


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


def test_without_a_type_both_kinds_are_listed_oldest_first():
    kinds = [
        (each.window_start[8:13], each.window_type)
        for each in found(row(MIDNIGHT + 25), row(MIDNIGHT + 1), row(MIDNIGHT))
    ]
    assert kinds == [
        ("31T00", "daily"),
        ("31T00", "hourly"),
        ("31T01", "hourly"),
        ("01T00", "daily"),
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
    assert stored[2].counters == {"rpm": 1}


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
    listed = found(*rows, window="hourly", start=start, end=end)
    assert [int(each.window_start[11:13]) for each in listed] == hours


def test_a_window_that_starts_a_moment_before_the_end_counts():
    listed = found(row(MIDNIGHT), window="hourly", end="2026-01-31T00:00:00.000500Z")
    assert len(listed) == 1


def test_a_day_counts_whole_if_it_starts_within_and_not_at_all_otherwise():
    query = UsageQuery.parse("daily", "2026-01-31", "2026-01-31T00:00:01Z")
    hours = range(query.start_hour, query.last_hour)
    assert (hours.start, hours.stop) == (MIDNIGHT, MIDNIGHT + 24)
    (each,) = snapshots([row(hour) for hour in hours], query)
    assert each.counters == {"rpm": 24}
    late = UsageQuery.parse("daily", "2026-01-31T00:00:01Z", "2026-02-01")
    assert not list(snapshots([row(MIDNIGHT + hour) for hour in range(24)], late))


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
    assert page(ROWS, 10, "9999#hourly#a#x") == ([], None)


@pytest.mark.parametrize("key", ["", "x", "a#b#c", "a#b#c#d#e", 5])
def test_a_key_from_elsewhere_is_refused(key):
    with pytest.raises(ValidationError, match="previous page"):
        page(ROWS, 10, key)


# --- summaries


def test_a_summary_adds_up_and_averages_per_window():
    rows = [row(MIDNIGHT, rpm=1), row(MIDNIGHT + 3, rpm=4, tpm=10), row(MIDNIGHT + 5)]
    assert summary_of(rows, UsageQuery.parse("hourly", None, None)) == UsageSummary(
        snapshot_count=3,
        total={"rpm": 6, "tpm": 10},
        average={"rpm": 2.0, "tpm": 10 / 3},
        min_window_start="2026-01-31T00:00:00Z",
        max_window_start="2026-01-31T05:00:00Z",
    )


def test_a_summary_of_nothing():
    assert summary_of([], UsageQuery.parse(None, None, None)) == UsageSummary(0, {}, {}, None, None)

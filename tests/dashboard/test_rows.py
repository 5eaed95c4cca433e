"""How the page chooses, sorts and keeps the limits that it shows."""

from decimal import Decimal

import pytest

from tests.support.limit_states import NOW, QUOTA, USD, quota_state, state
from zae_limiter import Limit
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.models.bucket import BucketEntry
from zae_limiter_dashboard.board import Shelf
from zae_limiter_dashboard.live import LiveParts
from zae_limiter_dashboard.rows import (
    LimitedBucket,
    debts,
    first_to_be_exhausted,
    in_flight,
    limited_buckets,
    matching,
)
from zae_limiter_dashboard.selection import select
from zae_limiter_ops.views.limit_view import LimitView


def test_exhaustion_follows_from_the_net_rate():
    row = LimitView.at(state(tokens=30), NOW, drain_milli=3000.0)
    assert row.empty_after_seconds == 15  # 3 a second are taken, 1 comes back
    assert LimitView.at(state(tokens=30), NOW, drain_milli=500.0).empty_after_seconds is None
    soon = LimitView.at(state("b", tokens=5), NOW, drain_milli=3000.0)
    assert first_to_be_exhausted([row, soon]) == [soon, row]


def test_slots_are_in_flight_by_their_first_expiry():
    limit = Limit.concurrent("parallel", 5)
    late = LimitView.at(state("a", 3, limit, holds_expire_ms=NOW + 50_000), NOW)
    soon = LimitView.at(state("b", 1, limit, holds_expire_ms=NOW + 5_000), NOW)
    free = LimitView.at(state("c", 5, limit), NOW)
    assert in_flight([late, soon, free]) == [soon, late]
    assert (soon.held_slots, soon.holds_expire_seconds) == (4, 5.0)


def test_a_budget_shows_money():
    row = LimitView.at(quota_state(-(10**9) // 2, USD, used=Decimal("10.50"), held=0), NOW)
    assert (row.level, row.capacity, row.currency) == (Decimal("-0.50"), Decimal("10.00"), "USD")
    assert (row.debt, row.condition, row.used_percent) == (Decimal("0.50"), "debt", 105)
    assert row.fits_after_seconds == 60
    assert LimitedBucket(row, 0).reason == "overdrawn until its window ends"


def test_a_soft_limit_is_overdrawn_but_not_limited():
    soft = Limit.quota("tokens", 1000, per="day", soft=True)
    row = LimitView.at(quota_state(-5000, soft, rejected=3, asked=7), NOW)
    assert (row.condition, row.is_limited, row.debt) == ("overdrawn", False, 0)
    assert debts([row]) == []
    assert select([row]).limited_now == 0


def test_held_amounts_are_listed_by_their_expiry():
    late = LimitView.at(quota_state(900_000, QUOTA, held=100, holds_expire_ms=NOW + 9000), NOW)
    soon = LimitView.at(quota_state(900_000, QUOTA, held=100, holds_expire_ms=NOW + 2000), NOW)
    now = LimitView.at(quota_state(900_000, QUOTA, held=100, holds_expire_ms=NOW), NOW)
    with_window = LimitView.at(quota_state(900_000, QUOTA, held=100), NOW)
    assert in_flight([with_window, late, soon, now]) == [now, soon, late, with_window]


def test_held_amounts_of_quotas_are_in_flight():
    held = LimitView.at(quota_state(900_000, QUOTA, used=0, held=100), NOW)
    money = LimitView.at(quota_state(9 * 10**9, USD, used=0, held=Decimal("1.00")), NOW)
    quiet = LimitView.at(quota_state(900_000, QUOTA, used=100, held=0), NOW)
    assert in_flight([held, money, quiet]) == [held, money]
    assert [row.in_flight for row in (held, money)] == [100, Decimal("1.00")]
    shelf = Shelf()
    shelf.begin()
    shelf.add([BucketEntry("key", "gpt-4", 1, lambda now_ms: [held.state])], NOW)
    shelf.end()
    assert shelf.board(NOW, complete=True, seconds=0).selection.in_flight == [held]


def test_of_several_limits_the_one_to_blame_is_shown():
    rows = [
        LimitView.at(state(tokens=60, rejected=4), NOW),
        LimitView.at(state(tokens=0, rejected=4, asked=2, limit=Limit.per_minute("tpm", 60)), NOW),
        LimitView.at(state("other", rejected=9, asked=1), NOW),
    ]
    first, second = limited_buckets(rows)
    assert (first.row.limit_name, first.rejected) == ("tpm", 4)
    assert (second.row.entity_id, second.row.is_limited) == ("other", False)
    assert debts(rows) == []


def test_a_search_ignores_case():
    rows = [LimitView.at(state("Acme-Web"), NOW), LimitView.at(state("globex"), NOW)]
    assert [row.entity_id for row in matching(rows, " acme ")] == ["Acme-Web"]
    assert matching(rows, "") == rows


def test_a_limited_bucket_is_not_listed_as_close_too():
    rows = [
        LimitView.at(state(tokens=0, rejected=1, asked=1), NOW),
        LimitView.at(state("near", tokens=5), NOW),
    ]
    chosen = select(rows)
    assert [row.entity_id for row in chosen.limited] == ["key"]
    assert [row.entity_id for row in chosen.close] == ["near"]
    assert (chosen.limited_count, chosen.close_count) == (1, 1)
    assert (chosen.in_flight_count, chosen.debt_count) == (0, 0)


def entry(entity_id, revision, read, **values):
    def states(now_ms):
        read.append(entity_id)
        return [state(entity_id, at_ms=now_ms, **values)]

    return BucketEntry(entity_id, "gpt-4", revision, states)


def test_an_unchanged_bucket_is_decoded_once():
    shelf, read = Shelf(), []
    for second in range(3):
        shelf.begin()
        shelf.add(
            [entry("a", 1, read, tokens=0), entry("b", second, read), entry("c", None, read)],
            NOW + second * 1000,
        )
        shelf.end()
    assert sorted(read) == ["a", "b", "b", "b", "c", "c", "c"]
    board = shelf.board(NOW, complete=True, seconds=0.0)
    rows, noteworthy = board.rows, board.noteworthy
    assert board.bucket_counts == {"gpt-4": 3}
    assert [row.entity_id for row in rows] == ["a", "b", "c"]
    assert rows[0].level == 2  # it has refilled since
    assert [row.entity_id for row in noteworthy] == ["a"]


def test_a_bucket_whose_holds_expire_is_decoded_again():
    shelf, read, slots = Shelf(), [], Limit.concurrent("parallel", 5)
    held = {"tokens": 3, "limit": slots, "holds_expire_ms": NOW + 5000}
    for second, values in ((0, held), (4, held), (6, {"tokens": 5, "limit": slots}), (8, {})):
        shelf.begin()
        shelf.add([entry("a", 1, read, **values)], NOW + second * 1000)
        shelf.end()
    assert len(read) == 2  # first, and after the expiry
    assert shelf.board(NOW, complete=True, seconds=0.0).selection.in_flight == []


def test_a_bucket_that_is_gone_is_dropped():
    shelf, read = Shelf(), []
    for names in ("ab", "b"):
        shelf.begin()
        shelf.add([entry(name, 1, read) for name in names], NOW)
        shelf.end()
    assert [row.entity_id for row in shelf.board(NOW, complete=True, seconds=0.0).rows] == ["b"]


def test_a_rate_follows_from_two_reads():
    shelf, read = Shelf(), []
    for second, consumed in ((0, 0), (2, 10_000)):
        shelf.begin()
        values = {"total_consumed_milli": consumed, "tokens": 40}
        shelf.add([entry("a", second, read, **values)], NOW + second * 1000)
        shelf.end()
    (row,) = shelf.board(NOW, complete=True, seconds=0.0).rows
    assert row.drain_milli == 5000.0
    assert row.empty_after_seconds == 10.0


def test_parts_are_bounded_also_if_they_cannot_be_rendered():
    parts = LiveParts(lambda: 0.0)

    def fail():
        raise RateLimiterUnavailable("the store did not answer")

    for number in range(200):
        with pytest.raises(RateLimiterUnavailable):
            parts.get(f"/{number}", fail)
    assert len(parts) == 64
    assert parts.get("/199", lambda: "back") == "back"


def test_any_number_of_tabs_cost_one_refresh():
    clock, rendered = [0.0], []
    parts = LiveParts(lambda: clock[0])

    def render():
        rendered.append(clock[0])
        return str(len(rendered))

    assert [parts.get("/a", render) for _ in range(5)] == ["1"] * 5
    clock[0] = 2.0
    assert parts.get("/a", render) == "2"
    parts.clear()
    assert parts.get("/a", render) == "3"

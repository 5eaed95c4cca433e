"""Queries of usage: windows, filters, pages and sums."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.models.usage import UsageSnapshot
from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import API, World, require_usage_history

RPM = Limit.per_minute("rpm", 10)


class UsageQueryContract(Contract):
    """Three days: ``a`` uses two resources, ``b`` one, each once at midnight and once at noon."""

    @pytest.fixture
    async def history(self, engine_spec: EngineSpec, world: World) -> World:
        require_usage_history(engine_spec)
        await world.configure(RPM)
        for _ in range(6):
            await world.take("a", API, rpm=1)
            await world.take("a", "other", rpm=2)
            await world.take("b", API, rpm=3)
            world.clock.advance(hours=12)
        return world

    @pytest.fixture
    async def months(self, engine_spec: EngineSpec, clock: FakeClock) -> AsyncIterator[World]:
        """One acquire a day, from the first of January to the first of March."""
        require_usage_history(engine_spec)
        world = World(replace(engine_spec, usage_retention_days=90), clock)
        try:
            await world.start()
            await world.configure(RPM)
            for _ in range(31 + 28 + 1):
                await world.take("a", rpm=1)
                clock.advance(days=1)
            yield world
        finally:
            await world.close()

    async def test_days_are_the_sums_of_their_hours(self, history: World) -> None:
        days, _ = await history.repo.get_usage_snapshots("a", API, window_type="daily")
        assert [_brief(each) for each in days] == [
            ("daily", "2026-01-01T00", 2),
            ("daily", "2026-01-02T00", 2),
            ("daily", "2026-01-03T00", 2),
        ]
        assert days[0].window_end == "2026-01-02T00:00:00Z"
        assert [each.total_events for each in days] == [2, 2, 2]

    async def test_without_a_window_type_there_are_all_windows_oldest_first(
        self, history: World
    ) -> None:
        found, _ = await history.repo.get_usage_snapshots("a", API)
        assert [_brief(each)[:2] for each in found][:4] == [
            ("daily", "2026-01-01T00"),
            ("hourly", "2026-01-01T00"),
            ("monthly", "2026-01-01T00"),
            ("hourly", "2026-01-01T12"),
        ]
        assert len(found) == 10

    async def test_months_are_the_sums_of_their_hours(self, months: World) -> None:
        found, _ = await months.repo.get_usage_snapshots("a", window_type="monthly")
        assert [(_brief(each), each.window_end[:10]) for each in found] == [
            (("monthly", "2026-01-01T00", 31), "2026-02-01"),
            (("monthly", "2026-02-01T00", 28), "2026-03-01"),
            (("monthly", "2026-03-01T00", 1), "2026-04-01"),
        ]
        assert [each.total_events for each in found] == [31, 28, 1]
        summary = await months.repo.get_usage_summary("a", window_type="monthly")
        assert (summary.window_count, summary.average) == (3, {"rpm": 20})
        (last,), _ = await months.repo.get_usage_snapshots(
            "a", window_type="monthly", start_time="2026-02-02"
        )
        assert _brief(last) == ("monthly", "2026-03-01T00", 1)
        (first,), _ = await months.repo.get_usage_snapshots(
            "a", window_type="monthly", end_time="2026-01-01T01:00:00Z"
        )
        assert _brief(first) == ("monthly", "2026-01-01T00", 31)

    @for_each("size", [1, 7, 50])
    async def test_pages_of_all_windows_hold_every_month_once(
        self, months: World, size: int
    ) -> None:
        everything, _ = await months.repo.get_usage_snapshots("a", limit=1000)
        assert len(everything) == 60 + 60 + 3
        assert await _all_pages(months, size, entity_id="a") == everything

    async def test_windows_that_are_not_offered_are_refused(
        self, engine_spec: EngineSpec, history: World
    ) -> None:
        offering = replace(engine_spec, snapshot_windows="monthly, daily")
        world = World(offering, history.clock)
        try:
            await world.start()
            with pytest.raises(ValidationError, match="daily, monthly") as caught:
                await world.repo.get_usage_snapshots("a", window_type="hourly")
            assert caught.value.field == "window_type"
            await world.configure(RPM)
            await world.take("c", rpm=1)
            found, _ = await world.repo.get_usage_snapshots("c")
            assert {each.window_type for each in found} == {"daily", "monthly"}
            assert (await world.repo.get_usage_summary("c")).snapshot_count == 1
        finally:
            await world.close()

    @for_each(
        ("subject", "total"),
        [
            ({"entity_id": "a"}, 18),
            ({"resource": API}, 24),
            ({"entity_id": "a", "resource": API}, 6),
            ({}, 36),
            ({"entity_id": "nobody"}, None),
        ],
    )
    async def test_usage_is_asked_for_by_entity_or_resource_or_both_or_neither(
        self, history: World, subject: dict[str, Any], total: int | None
    ) -> None:
        found = await history.repo.get_usage_summary(**subject)
        assert found.total.get("rpm") == total

    @for_each(
        ("times", "count"),
        [
            ({"start_time": "2026-01-02T00:00:00Z"}, 4),
            ({"end_time": "2026-01-02T00:00:00Z"}, 2),
            ({"start_time": "2026-01-01T12:00:00Z", "end_time": "2026-01-03T12:00:00Z"}, 4),
            ({"start_time": "2026-01-01T12:00:01Z", "end_time": "2026-01-03T12:00:01Z"}, 4),
            ({"start_time": "2026-01-02"}, 4),
            ({"start_time": "2026-01-02T01:00:00+01:00"}, 4),
            ({"start_time": datetime(2026, 1, 2, tzinfo=UTC)}, 4),
            ({"start_time": "2027-01-01"}, 0),
            ({"start_time": "2026-01-03", "end_time": "2026-01-02"}, 0),
        ],
    )
    async def test_windows_are_those_that_start_from_the_start_to_before_the_end(
        self, history: World, times: dict[str, Any], count: int
    ) -> None:
        found, _ = await history.repo.get_usage_snapshots("a", API, window_type="hourly", **times)
        assert len(found) == count

    async def test_a_day_that_starts_before_the_end_is_whole(self, history: World) -> None:
        found, _ = await history.repo.get_usage_snapshots(
            "a", API, window_type="daily", end_time="2026-01-01T01:00:00Z"
        )
        assert [_brief(each) for each in found] == [("daily", "2026-01-01T00", 2)]

    @for_each("size", [1, 2, 5, 100])
    async def test_pages_hold_every_window_once(self, history: World, size: int) -> None:
        everything, end = await history.repo.get_usage_snapshots(resource=API, limit=1000)
        assert end is None
        found = await _all_pages(history, size, resource=API)
        assert found == everything
        assert len(found) == 2 * 10

    @for_each("size", [1, 4, 100])
    async def test_the_whole_namespace_is_listed_oldest_first(
        self, history: World, size: int
    ) -> None:
        found = await _all_pages(history, size, window_type="hourly")
        keys = [(each.window_start, each.entity_id, each.resource) for each in found]
        assert keys == sorted(keys)
        assert len(keys) == 18
        assert keys[:3] == [
            ("2026-01-01T00:00:00Z", "a", API),
            ("2026-01-01T00:00:00Z", "a", "other"),
            ("2026-01-01T00:00:00Z", "b", API),
        ]

    async def test_another_namespace_is_not_listed(self, history: World) -> None:
        other = await history.repo.register_namespace("other")
        assert other
        scoped = await history.repo.namespace("other")
        assert await scoped.get_usage_snapshots() == ([], None)
        assert (await scoped.get_top_usage()).consumers == []

    async def test_the_largest_consumers_come_first(self, history: World) -> None:
        history.clock.advance(hours=-1)
        top = await history.repo.get_top_usage("rpm", "24h")
        assert (top.by, top.start_time[:13], top.end_time[:13]) == (
            "rpm",
            "2026-01-02T23",
            "2026-01-04T00",
        )
        assert [(each.entity_id, each.counters) for each in top.consumers] == [
            ("a", {"rpm": 6}),
            ("b", {"rpm": 6}),
        ]
        assert top.parents == []
        on_api = await history.repo.get_top_usage("rpm", "7d", resource=API, limit=1)
        assert [(each.entity_id, each.counters) for each in on_api.consumers] == [
            ("b", {"rpm": 18})
        ]
        calls = await history.repo.get_top_usage(last="7d")
        assert [(each.entity_id, each.total_events) for each in calls.consumers] == [
            ("a", 12),
            ("b", 6),
        ]

    async def test_parents_are_ranked_apart(self, history: World) -> None:
        for key in ("key-1", "key-2"):
            await history.repo.create_entity(key, parent_id="team", cascade=True)
        await history.take("key-1", rpm=4)
        await history.take("key-2", rpm=3)
        await history.take("team", rpm=1)
        top = await history.repo.get_top_usage("rpm", "1h")
        assert [each.entity_id for each in top.consumers] == ["key-1", "key-2", "team"]
        (team,) = top.parents
        assert (team.entity_id, team.counters) == ("team", {"rpm": 8})
        assert team.through_children == {"rpm": 7}

    async def test_a_ranking_by_a_limit_without_usage_names_those_that_have_some(
        self, history: World
    ) -> None:
        await history.repo.create_entity("key-1", parent_id="team", cascade=True)
        await history.take("key-1", rpm=4)
        top = await history.repo.get_top_usage("rpmm", "1h")
        assert (top.consumers, top.parents, top.limit_names) == ([], [], ("rpm",))
        assert (await history.repo.get_top_usage(resource="unheard-of")).limit_names == ()

    @for_each(
        ("arguments", "field"),
        [
            ({"last": "yesterday"}, "last"),
            ({"last": "0h"}, "last"),
            ({"last": 5}, "last"),
            ({"by": "a b"}, "by"),
            ({"limit": 0}, "limit"),
            ({"resource": "a b"}, "resource"),
        ],
    )
    async def test_a_ranking_that_makes_no_sense_is_refused_by_name(
        self, history: World, arguments: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(ValidationError) as caught:
            await history.repo.get_top_usage(**arguments)
        assert caught.value.field == field

    async def test_a_page_can_be_continued_after_new_usage(self, history: World) -> None:
        first, key = await history.repo.get_usage_snapshots("a", API, "hourly", limit=3)
        await history.take("a", API, rpm=1)
        rest, end = await history.repo.get_usage_snapshots("a", API, "hourly", next_key=key)
        assert end is None
        assert len(first) + len(rest) == 7

    async def test_a_summary_adds_up_and_averages_over_hours_by_default(
        self, history: World
    ) -> None:
        found = await history.repo.get_usage_summary("a")
        assert (found.snapshot_count, found.window_count) == (12, 6)
        assert found.total == {"rpm": 18}
        assert found.average == {"rpm": 3}
        assert found.min_window_start == "2026-01-01T00:00:00Z"
        assert found.max_window_start == "2026-01-03T12:00:00Z"

    async def test_a_summary_may_be_over_days(self, history: World) -> None:
        found = await history.repo.get_usage_summary("a", API, window_type="daily")
        assert (found.snapshot_count, found.average) == (3, {"rpm": 2})

    async def test_a_summary_of_nothing_is_empty(self, history: World) -> None:
        found = await history.repo.get_usage_summary("nobody")
        assert (found.snapshot_count, found.total, found.average) == (0, {}, {})
        assert (found.min_window_start, found.max_window_start) == (None, None)

    @for_each(
        ("arguments", "field"),
        [
            ({"entity_id": ""}, "entity_id"),
            ({"entity_id": "a#b"}, "entity_id"),
            ({"resource": "a b"}, "resource"),
            ({"entity_id": "a", "window_type": "weekly"}, "window_type"),
            ({"entity_id": "a", "window_type": 5}, "window_type"),
            ({"entity_id": "a", "start_time": "yesterday"}, "start_time"),
            ({"entity_id": "a", "end_time": 5}, "end_time"),
        ],
    )
    async def test_a_filter_that_makes_no_sense_is_refused_by_name(
        self, history: World, arguments: dict[str, Any], field: str
    ) -> None:
        for ask in (history.repo.get_usage_snapshots, history.repo.get_usage_summary):
            with pytest.raises(ValidationError) as caught:
                await ask(**arguments)
            assert caught.value.field == field

    @for_each(
        ("arguments", "field"),
        [
            ({"limit": 0}, "limit"),
            ({"limit": 1.5}, "limit"),
            ({"next_key": "nonsense"}, "next_key"),
            ({"next_key": 5}, "next_key"),
        ],
    )
    async def test_a_page_that_makes_no_sense_is_refused_by_name(
        self, history: World, arguments: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(ValidationError) as caught:
            await history.repo.get_usage_snapshots("a", **arguments)
        assert caught.value.field == field


async def _all_pages(world: World, size: int, **filters: Any) -> list[UsageSnapshot]:
    found: list[UsageSnapshot] = []
    key: str | None = None
    while True:
        page, key = await world.repo.get_usage_snapshots(limit=size, next_key=key, **filters)
        assert len(page) <= size
        found += page
        if key is None:
            return found


def _brief(snapshot: UsageSnapshot) -> tuple[str, str, int]:
    return snapshot.window_type, snapshot.window_start[:13], snapshot.counters["rpm"]

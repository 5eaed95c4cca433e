"""Asking for usage: windows, filters, pages and sums."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.models.usage import UsageSnapshot
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import API, World

RPM = Limit.per_minute("rpm", 10)


class UsageQueryContract(Contract):
    """Three days: ``a`` uses two resources, ``b`` one, each once at midnight and once at noon."""

    @pytest.fixture
    async def history(self, engine_spec: EngineSpec, world: World) -> World:
        if not engine_spec.capabilities.usage_history:
            pytest.skip("this engine keeps no usage history")
        await world.configure(RPM)
        for _ in range(6):
            await world.take("a", API, rpm=1)
            await world.take("a", "other", rpm=2)
            await world.take("b", API, rpm=3)
            world.clock.advance(hours=12)
        return world

    async def test_days_are_the_sums_of_their_hours(self, history: World) -> None:
        days, _ = await history.repo.get_usage_snapshots("a", API, window_type="daily")
        assert [_brief(each) for each in days] == [
            ("daily", "2026-01-01T00", 2),
            ("daily", "2026-01-02T00", 2),
            ("daily", "2026-01-03T00", 2),
        ]
        assert days[0].window_end == "2026-01-02T00:00:00Z"
        assert [each.total_events for each in days] == [2, 2, 2]

    async def test_without_a_window_type_there_are_hours_and_days_oldest_first(
        self, history: World
    ) -> None:
        found, _ = await history.repo.get_usage_snapshots("a", API)
        assert [_brief(each)[:2] for each in found][:3] == [
            ("daily", "2026-01-01T00"),
            ("hourly", "2026-01-01T00"),
            ("hourly", "2026-01-01T12"),
        ]
        assert len(found) == 9

    @for_each(
        ("subject", "total"),
        [
            ({"entity_id": "a"}, 18),
            ({"resource": API}, 24),
            ({"entity_id": "a", "resource": API}, 6),
            ({"entity_id": "nobody"}, None),
        ],
    )
    async def test_usage_is_asked_for_by_entity_or_resource_or_both(
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
        found: list[UsageSnapshot] = []
        key: str | None = None
        while True:
            page, key = await history.repo.get_usage_snapshots(
                resource=API, limit=size, next_key=key
            )
            assert len(page) <= size
            found += page
            if key is None:
                break
        assert found == everything
        assert len(found) == 2 * 9

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
        assert found.snapshot_count == 12
        assert found.total == {"rpm": 18}
        assert found.average == {"rpm": 1.5}
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
            ({}, "entity_id"),
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


def _brief(snapshot: UsageSnapshot) -> tuple[str, str, int]:
    return snapshot.window_type, snapshot.window_start[:13], snapshot.counters["rpm"]

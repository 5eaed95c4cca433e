"""A rejection names what refused it, and usage counts each call once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.limit import Limit
from zae_limiter.models.usage import UsageSnapshot
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.observing import Recorder
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import World, require_usage_history

KEY, TEAM, MODEL, ALL = "initech/web", "initech", "gpt-4", "all-models"
RPM, SPENT = Limit.per_minute("rpm", 10), "5.00"
BY_BUDGET, BY_RPM = (TEAM, ALL, "usd"), (KEY, MODEL, "rpm")


class RefusalContract(Contract):
    """A key calls a model; the call is also charged to all models, with a budget of its team."""

    @pytest.fixture
    async def office(self, engine_spec: EngineSpec, world: World) -> World:
        require_usage_history(engine_spec)
        world.clock.advance(minutes=(-world.clock() // 60_000) % 60)  # the hour begins
        await world.repo.set_resource_defaults(MODEL, [RPM])
        await world.repo.set_resource_defaults(ALL, [Limit.per_minute("tpm", 1000)])
        await world.repo.set_limits(TEAM, [Limit.per_minute("rpm", 100)], MODEL)
        await world.repo.set_limits(TEAM, [Limit.budget("usd", SPENT, per="month")], ALL)
        await world.repo.create_entity(TEAM)
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        return world

    async def _call(self, world: World, usd: str = "1.00", rpm: int = 1, **options: Any) -> None:
        options = {"also": {ALL: {"usd": usd, "tpm": 1}}, **options}
        async with world.limiter.acquire(KEY, MODEL, {"rpm": rpm}, **options):
            pass

    async def _refusal(self, world: World, **options: Any) -> RateLimitExceeded:
        with pytest.raises(RateLimitExceeded) as caught:
            await self._call(world, **options)
        return caught.value

    async def _hours(self, world: World) -> dict[tuple[str, str], UsageSnapshot]:
        """Return the usage of each bucket in this hour, after the limiter has stored its counts."""
        other = await world.open()
        await world.repo.close()
        hour = world.clock() // 3_600_000 * 3_600
        return await self._hours_from(other, hour)

    async def _hours_from(
        self, repository: Repository, from_s: int
    ) -> dict[tuple[str, str], UsageSnapshot]:
        start = datetime.fromtimestamp(from_s, UTC)
        hours, _ = await repository.get_usage_snapshots(window_type="hourly", start_time=start)
        return {(each.entity_id, each.resource): each for each in hours}

    async def test_the_key_that_asked_stores_what_refused_it_on_another_resource(
        self, office: World
    ) -> None:
        await self._call(office, usd=SPENT)
        for _ in range(3):  # the later ones from memory
            assert (await self._refusal(office)).limited_by == BY_BUDGET
        hours = await self._hours(office)
        asked = hours[KEY, MODEL]
        assert (asked.rejected, asked.limited_by) == (3, BY_BUDGET)
        assert asked.last_limited_by == BY_BUDGET
        assert asked.last_rejected_at is not None
        assert hours[TEAM, ALL].limited_by == BY_BUDGET

    async def test_the_last_and_the_most_frequent_refusal_are_told_apart(
        self, office: World
    ) -> None:
        await self._call(office, usd="4.00")
        for _ in range(3):
            await self._refusal(office, usd="2.00")
        office.clock.advance(ms=2000)
        await self._refusal(office, usd="0.01", rpm=50)
        asked = (await self._hours(office))[KEY, MODEL]
        assert (asked.limited_by, asked.last_limited_by) == (BY_BUDGET, BY_RPM)

    async def test_of_two_refusals_in_one_second_the_later_is_the_last(self, office: World) -> None:
        await self._call(office, usd=SPENT)
        await self._refusal(office)
        await self._refusal(office, usd="0.00", rpm=50)
        asked = (await self._hours(office))[KEY, MODEL]
        assert asked.last_limited_by == BY_RPM

    async def test_clients_that_store_one_after_the_other_keep_the_most_frequent_refusal(
        self, office: World
    ) -> None:
        await self._call(office, usd=SPENT)
        for _ in range(3):
            await self._refusal(office)
        other = await office.open()
        await office.repo.close()
        async with RateLimiter(other).acquire(KEY, MODEL, {"rpm": 9}):
            pass
        with pytest.raises(RateLimitExceeded):
            async with RateLimiter(other).acquire(KEY, MODEL, {"rpm": 9}):
                pass
        third = await office.open()
        await other.close()
        hour_s = office.clock() // 3_600_000 * 3_600
        asked = (await self._hours_from(third, hour_s))[KEY, MODEL]
        assert (asked.rejected, asked.limited_by) == (4, BY_BUDGET)
        assert asked.last_limited_by == BY_RPM

    async def test_a_bucket_shows_its_last_refusal_of_the_hour(self, office: World) -> None:
        await self._call(office, usd=SPENT)
        await self._refusal(office)
        other = await office.open()
        await office.repo.close()
        (state,) = await other.get_buckets(KEY, MODEL)
        assert (state.rejected, state.limited_by) == (1, BY_BUDGET)
        assert state.limited_at_ms is not None
        assert 0 <= office.clock() - state.limited_at_ms < 2000
        office.clock.advance(hours=1)
        (state,) = await other.get_buckets(KEY, MODEL)
        assert (state.rejected, state.limited_by) == (0, None)

    async def test_what_refused_stays_with_its_hour(self, office: World) -> None:
        await self._call(office, usd=SPENT)
        await self._refusal(office)
        await office.take(KEY, MODEL, rpm=1)  # stores the count
        office.clock.advance(hours=1)
        await self._refusal(office, usd="0.00", rpm=50)
        await office.take(KEY, MODEL, rpm=1)
        office.clock.advance(hours=1)
        await office.take(KEY, MODEL, rpm=1)
        other = await office.open()
        await office.repo.close()
        hours, _ = await other.get_usage_snapshots(KEY, MODEL, "hourly")
        assert [each.limited_by for each in hours] == [BY_BUDGET, BY_RPM, None]
        (day, *_), _ = await other.get_usage_snapshots(KEY, MODEL, "daily")
        assert (day.rejected, day.last_limited_by) == (2, BY_RPM)

    async def test_a_parent_that_refuses_a_single_resource_is_named(self, office: World) -> None:
        await office.take(TEAM, MODEL, rpm=100)
        error = await office.refusal(KEY, MODEL, rpm=1)
        assert error.limited_by == (TEAM, MODEL, "rpm")
        assert (await self._hours(office))[KEY, MODEL].limited_by == (TEAM, MODEL, "rpm")

    async def test_a_denied_bucket_is_named_with_the_mode(self, office: World) -> None:
        await self._call(office)
        await office.repo.set_mode(ALL, entity_id=TEAM, mode="deny")
        office.clock.advance(seconds=61)
        error = await self._refusal(office)
        assert error.limited_by == (TEAM, ALL, "mode deny")
        asked = (await self._hours(office))[KEY, MODEL]
        assert (asked.rejected, asked.limited_by) == (1, (TEAM, ALL, "mode deny"))

    async def test_a_paused_bucket_is_named_with_the_pause(self, office: World) -> None:
        await self._call(office)
        await office.repo.pause(KEY, ALL, 60)
        error = await self._refusal(office)
        assert error.limited_by == (KEY, ALL, "a pause")
        asked = (await self._hours(office))[KEY, MODEL]
        assert asked.limited_by == (KEY, ALL, "a pause")

    async def test_a_caller_that_waited_in_vain_stores_what_refused_it(self, office: World) -> None:
        await self._call(office, usd=SPENT)
        await self._refusal(office, timeout=1)
        asked = (await self._hours(office))[KEY, MODEL]
        assert (asked.rejected, asked.limited_by) == (1, BY_BUDGET)

    async def test_a_caller_that_waited_in_vain_for_one_resource_stores_what_refused_it(
        self, office: World
    ) -> None:
        await office.take(TEAM, MODEL, rpm=99)
        with pytest.raises(RateLimitExceeded):
            async with office.limiter.acquire(KEY, MODEL, {"rpm": 9}, timeout=1):
                pass
        asked = (await self._hours(office))[KEY, MODEL]
        assert (asked.rejected, asked.limited_by) == (1, (TEAM, MODEL, "rpm"))

    async def test_hooks_and_json_name_what_refused(self, office: World) -> None:
        await self._call(office, usd=SPENT)
        recorder = Recorder()
        limiter = RateLimiter(office.repo, hooks=recorder)
        with pytest.raises(RateLimitExceeded) as caught:
            async with limiter.acquire(KEY, MODEL, {"rpm": 1}, also={ALL: {"usd": "1"}}):
                pass
        assert tuple(caught.value.as_dict()["limited_by"]) == BY_BUDGET
        # The quota is marked in the background: its event may come before or after.
        assert dict(recorder.events)["on_reject"].limited_by == BY_BUDGET

    async def test_the_longest_wait_is_named(self, office: World) -> None:
        await self._call(office, usd=SPENT, rpm=10)
        error = await self._refusal(office)
        assert {each.limit_name for each in error.violations} >= {"usd"}
        assert error.limited_by == BY_BUDGET  # of a month; the rate comes back in a minute

    # --- calls

    async def test_a_call_over_several_resources_counts_once(self, office: World) -> None:
        for _ in range(4):
            await self._call(office)
        for _ in range(2):
            await self._refusal(office, usd="2.00")
        await office.take(TEAM, MODEL, rpm=1)
        hours = await self._hours(office)
        counted = {
            bucket: (each.calls, each.total_events, each.rejected_calls, each.rejected)
            for bucket, each in hours.items()
        }
        assert counted == {
            (KEY, MODEL): (4, 4, 2, 2),
            (KEY, ALL): (0, 4, 0, 2),
            (TEAM, MODEL): (1, 5, 0, 0),
            (TEAM, ALL): (0, 4, 0, 2),
        }
        repo = await office.open()
        summary = await repo.get_usage_summary()
        assert (summary.calls, summary.rejected, summary.rejected_calls) == (5, 2, 2)
        assert summary.limited_by == BY_BUDGET
        own = await repo.get_usage_summary(KEY)
        assert (own.calls, own.rejected, own.rejected_calls) == (4, 2, 2)
        of_team = await repo.get_usage_summary(TEAM)
        assert (of_team.calls, of_team.rejected, of_team.rejected_calls) == (1, 2, 0)

    async def test_the_ranking_by_calls_counts_each_call_once(self, office: World) -> None:
        for _ in range(3):
            await self._call(office, usd="0.10")
        await self._refusal(office, usd="9.00")
        await office.take(TEAM, MODEL, rpm=1)
        other = await office.open()
        await office.repo.close()
        ranking = await other.get_top_usage()
        found = [(each.entity_id, each.calls, each.rejected_calls) for each in ranking.consumers]
        assert found == [(KEY, 3, 1), (TEAM, 1, 0)]

    async def test_a_call_whose_parent_has_too_little_is_counted_by_neither(
        self, office: World
    ) -> None:
        await office.take(TEAM, MODEL, rpm=100)
        await office.refusal(KEY, MODEL, rpm=1)
        hours = await self._hours(office)
        found = {bucket: (each.calls, each.total_events) for bucket, each in hours.items()}
        assert found == {(KEY, MODEL): (0, 0), (TEAM, MODEL): (1, 1)}

    async def test_calls_keep_their_counts_when_the_hour_turns(self, office: World) -> None:
        await self._call(office, usd="0.10")
        await self._call(office, usd="0.10")
        office.clock.advance(hours=1)
        await self._call(office, usd="0.10")
        office.clock.advance(hours=1)
        await self._call(office, usd="0.10")
        other = await office.open()
        await office.repo.close()
        for bucket, calls in {(KEY, MODEL): [2, 1, 1], (TEAM, ALL): [0, 0, 0]}.items():
            hours, _ = await other.get_usage_snapshots(*bucket, "hourly")
            assert [each.calls for each in hours] == calls
            assert [each.total_events for each in hours] == [2, 1, 1]
        assert (await other.get_usage_summary()).calls == 4

"""Usage counts every net token exactly once."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.limit import Limit
from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.live_changes import amounts_of
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import (
    API,
    USER,
    Failure,
    World,
    failing,
    require_usage_history,
)

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)


class UsageContract(Contract):
    """Usage is counted by the hour."""

    @pytest.fixture
    def counted(self, engine_spec: EngineSpec, world: World) -> World:
        require_usage_history(engine_spec)
        return world

    @pytest.fixture
    async def counted_for_months(
        self, engine_spec: EngineSpec, clock: FakeClock
    ) -> AsyncIterator[World]:
        require_usage_history(engine_spec)
        world = World(replace(engine_spec, usage_retention_days=90), clock)
        try:
            await world.start()
            yield world
        finally:
            await world.close()

    async def test_the_usage_of_renamed_limits_stays_counted(self, counted: World) -> None:
        names = [f"limit-{number}" for number in range(60)]
        for name in names:
            await counted.configure(Limit.per_minute(name, 10))
            await counted.take(**amounts_of(name, 3))
            counted.clock.advance(minutes=3)
        hours, _ = await counted.repo.get_usage_snapshots(USER, API, window_type="hourly")
        used = [(name, amount) for hour in hours for name, amount in hour.counters.items()]
        assert sorted(each for each in used if each[1]) == sorted((name, 3) for name in names)

    async def test_an_hour_counts_tokens_and_admitted_acquires(self, counted: World) -> None:
        await counted.configure(RPM, TPM)
        counted.clock.advance(minutes=20)
        await counted.take(rpm=1, tpm=100)
        await counted.take(rpm=2)
        (hour,), _ = await counted.repo.get_usage_snapshots(USER, window_type="hourly")
        assert (hour.entity_id, hour.resource, hour.window_type) == (USER, API, "hourly")
        assert (hour.window_start, hour.window_end) == (
            "2026-01-01T00:00:00Z",
            "2026-01-01T01:00:00Z",
        )
        assert (hour.counters, hour.total_events) == ({"rpm": 3, "tpm": 100}, 2)

    async def test_every_hour_counts_what_was_taken_in_it(self, counted: World) -> None:
        await counted.configure(RPM)
        for amount in (1, 2, 3):
            await counted.take(rpm=amount)
            counted.clock.advance(hours=1)
        assert await _hours(counted) == {"00": 1, "01": 2, "02": 3}

    async def test_the_border_of_an_hour_belongs_to_the_new_one(self, counted: World) -> None:
        await counted.configure(RPM)
        counted.clock.advance(ms=3_599_999)
        await counted.take(rpm=1)
        counted.clock.advance(ms=1)
        await counted.take(rpm=2)
        assert await _hours(counted) == {"00": 1, "01": 2}

    async def test_refused_acquires_do_not_count(self, counted: World) -> None:
        await counted.configure(RPM)
        await counted.take(rpm=10)
        await counted.refusal(rpm=1)
        (hour,), _ = await counted.repo.get_usage_snapshots(USER, window_type="hourly")
        assert (hour.counters, hour.total_events) == ({"rpm": 10}, 1)

    async def test_rejections_are_counted_with_the_next_write_to_their_bucket(
        self, counted: World
    ) -> None:
        await counted.configure(RPM)
        await counted.take(rpm=10)
        for _ in range(3):
            await counted.refusal(rpm=1)
        counted.clock.advance(minutes=1)
        await counted.take(rpm=2)
        (hour,), _ = await counted.repo.get_usage_snapshots(USER, window_type="hourly")
        assert (hour.counters, hour.total_events, hour.rejected) == ({"rpm": 12}, 2, 3)
        assert (await counted.repo.get_usage_summary(USER)).rejected == 3
        (state,) = await counted.repo.get_buckets(USER, API)
        assert state.rejected == 3
        counted.clock.advance(hours=1)
        await counted.take(rpm=1)
        (state,) = await counted.repo.get_buckets(USER, API)
        assert state.rejected == 0
        hours, _ = await counted.repo.get_usage_snapshots(USER, window_type="hourly")
        assert [each.rejected for each in hours] == [3, 0]

    async def test_rejections_are_counted_when_a_client_is_closed(self, counted: World) -> None:
        await counted.configure(RPM)
        other = await counted.open()
        await counted.take(rpm=10)
        for _ in range(2):
            await counted.refusal(rpm=1)
        await counted.repo.close()
        (hour,), _ = await other.get_usage_snapshots(USER, window_type="hourly")
        assert (hour.counters, hour.total_events, hour.rejected) == ({"rpm": 10}, 1, 2)

    async def test_more_tokens_refused_within_a_lease_are_no_rejected_acquire(
        self, counted: World
    ) -> None:
        await counted.configure(RPM)
        async with counted.acquire(rpm=8) as lease:
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=3)
        counted.clock.advance(minutes=1)
        await counted.take(rpm=1)
        assert (await counted.repo.get_usage_summary(USER)).rejected == 0

    async def test_a_rejection_counts_for_the_key_and_for_the_parent_that_refused(
        self, counted: World
    ) -> None:
        await counted.configure(RPM)
        await counted.repo.create_entity("key", parent_id="team", cascade=True)
        await counted.take("team", rpm=10)
        await counted.refusal("key", rpm=1)
        counted.clock.advance(minutes=1)
        await counted.take("key", rpm=1)
        assert (await counted.repo.get_usage_summary("team")).rejected == 1
        assert (await counted.repo.get_usage_summary("key")).rejected == 1

    async def test_adjustments_count_when_they_are_written(self, counted: World) -> None:
        await counted.configure(RPM, TPM)
        async with counted.acquire(rpm=1) as lease:
            counted.clock.advance(hours=1)
            await lease.adjust(rpm=-1, tpm=300)
        found, _ = await counted.repo.get_usage_snapshots(USER, window_type="hourly")
        assert [each.counters for each in found] == [
            {"rpm": 1, "tpm": 0},
            {"rpm": -1, "tpm": 300},
        ]
        assert await _total(counted) == {"rpm": 0, "tpm": 300}

    async def test_consumes_and_releases_count_and_are_no_acquires(self, counted: World) -> None:
        await counted.configure(RPM)
        async with counted.acquire(rpm=4) as lease:
            await lease.consume(rpm=3)
            await lease.release(rpm=2)
        (hour,), _ = await counted.repo.get_usage_snapshots(USER, window_type="hourly")
        assert (hour.counters, hour.total_events) == ({"rpm": 5}, 1)

    async def test_a_failed_block_counts_nothing_in_the_end(self, counted: World) -> None:
        await counted.configure(RPM)
        with failing():
            async with counted.acquire(rpm=4):
                counted.clock.advance(hours=1)
                raise Failure
        assert await _total(counted) == {"rpm": 0}

    async def test_debts_count_in_full(self, counted: World) -> None:
        await counted.configure(RPM)
        await counted.owe(rpm=500)
        assert await _total(counted) == {"rpm": 500}

    async def test_resets_and_top_ups_are_no_usage(self, counted: World) -> None:
        await counted.configure(RPM)
        await counted.take(rpm=8)
        await counted.repo.top_up(USER, API, {"rpm": 5})
        await counted.repo.reset_bucket(USER, API)
        assert await _total(counted) == {"rpm": 8}

    async def test_usage_survives_the_entity_and_goes_on_after_it(self, counted: World) -> None:
        await counted.configure(RPM)
        await counted.repo.create_entity(USER)
        await counted.take(rpm=8)
        await counted.repo.delete_entity(USER)
        assert await _total(counted) == {"rpm": 8}
        await counted.take(rpm=5)
        assert await _total(counted) == {"rpm": 13}
        assert await _hours(counted) == {"00": 13}

    async def test_a_credit_to_a_deleted_entity_is_taken_back_from_its_usage(
        self, counted: World
    ) -> None:
        await counted.configure(RPM)
        with failing():
            async with counted.acquire(rpm=8):
                await counted.repo.delete_entity(USER)
                raise Failure
        assert await _total(counted) == {"rpm": 0}

    async def test_a_cascade_counts_for_child_and_parent(self, counted: World) -> None:
        await counted.configure(RPM)
        await counted.repo.create_entity("key", parent_id="team", cascade=True)
        async with counted.acquire("key", rpm=2) as lease:
            await lease.adjust(rpm=1)
        for entity_id in ("key", "team"):
            assert (await counted.repo.get_usage_summary(entity_id)).total == {"rpm": 3}

    async def test_what_came_through_children_is_counted_apart(self, counted: World) -> None:
        await counted.configure(RPM)
        await counted.repo.create_entity("key", parent_id="team", cascade=True)
        async with counted.acquire("key", rpm=2) as lease:
            await lease.adjust(rpm=1)
        await counted.take("team", rpm=4)
        assert await _through(counted, "key") == [(3, 0)]
        assert await _through(counted, "team") == [(7, 3)]
        assert await _once(counted) == ({"rpm": 7}, {"rpm": 3})

    async def test_hours_keep_apart_what_came_through_children(self, counted: World) -> None:
        await counted.configure(RPM)
        await counted.repo.create_entity("key", parent_id="team", cascade=True)
        for amount in (1, 2, 3):
            await counted.take("key", rpm=amount)
            counted.clock.advance(hours=1)
        await counted.take("team", rpm=5)
        assert await _through(counted, "team") == [(1, 1), (2, 2), (3, 3), (5, 0)]
        assert (await _once(counted))[0] == {"rpm": 11}

    @pytest.mark.parametrize("later_ms", [0, 3_600_000])
    async def test_refunds_of_a_cascade_are_taken_back_from_both(
        self, counted: World, later_ms: int
    ) -> None:
        await counted.configure(RPM)
        await counted.repo.create_entity("key", parent_id="team", cascade=True)
        with failing():
            async with counted.acquire("key", rpm=5):
                counted.clock.advance(ms=later_ms)
                raise Failure
        await counted.take("team", rpm=1)
        hours = [(5, 5), (-4, -5)] if later_ms else [(1, 0)]
        assert await _through(counted, "team") == hours
        assert (await _once(counted))[0] == {"rpm": 1}
        assert (await counted.repo.get_usage_summary("key")).total == {"rpm": 0}

    async def test_a_credit_of_a_cascade_to_deleted_buckets_is_taken_back_from_both(
        self, counted: World
    ) -> None:
        await counted.configure(RPM)
        await counted.repo.create_entity("key", parent_id="team", cascade=True)
        with failing():
            async with counted.acquire("key", rpm=5):
                await counted.repo.delete_entity("team")
                await counted.repo.delete_entity("key")
                raise Failure
        assert [amounts.get("rpm", 0) for amounts in await _once(counted)] == [0, 0]
        await counted.take("team", rpm=2)
        assert (await counted.repo.get_usage_summary("team")).total == {"rpm": 2}
        assert (await _once(counted))[0] == {"rpm": 2}

    async def test_tokens_that_only_the_parent_counts_are_its_own(self, counted: World) -> None:
        await counted.repo.create_entity("key", parent_id="team", cascade=True)
        await counted.repo.set_limits("key", [RPM])
        await counted.repo.set_limits("team", [RPM, TPM])
        async with counted.acquire("key", rpm=1, tpm=30) as lease:
            await lease.adjust(tpm=5)
        total, through = await _once(counted)
        assert total == {"rpm": 1, "tpm": 35}
        assert (through.get("rpm", 0), through.get("tpm", 0)) == (1, 0)

    async def test_refunds_in_a_later_hour_make_that_hour_negative(self, counted: World) -> None:
        await counted.configure(RPM)
        with failing():
            async with counted.acquire(rpm=4):
                counted.clock.advance(hours=1)
                raise Failure
        assert await _hours(counted) == {"00": 4, "01": -4}
        days, _ = await counted.repo.get_usage_snapshots(USER, window_type="daily")
        assert [day.counters for day in days] == [{"rpm": 0}]

    @pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
    async def test_a_random_history_of_a_family_adds_up(
        self, counted_for_months: World, seed: int
    ) -> None:
        counted, chance = counted_for_months, random.Random(seed)
        await counted.configure(Limit.per_minute("rpm", 50), TPM)
        for key in ("key-1", "key-2"):
            await counted.repo.create_entity(key, parent_id="team", cascade=True)
        used = dict.fromkeys(("key-1", "key-2", "team"), 0)
        for _ in range(80):
            counted.clock.advance(minutes=chance.choice([0, 1, 7, 61, 1500]))
            entity_id, amount = chance.choice(list(used)), chance.randint(0, 15)
            adjustment, lasts_ms = chance.randint(-amount, 20), chance.choice([0, 3_600_000])
            try:
                async with counted.acquire(entity_id, rpm=amount) as lease:
                    await lease.adjust(rpm=adjustment)
                    counted.clock.advance(ms=lasts_ms)
                    if chance.random() < 0.1:
                        await counted.repo.reset_bucket("team", API)
                    if chance.random() < 0.2:
                        raise Failure
                used[entity_id] += amount + adjustment
            except (Failure, RateLimitExceeded):
                pass
        everything = sum(used.values())
        assert (await _once(counted))[0]["rpm"] == everything
        assert (await counted.repo.get_usage_summary()).total["rpm"] == everything
        for entity_id in ("key-1", "key-2"):
            total = (await counted.repo.get_usage_summary(entity_id)).total
            assert total.get("rpm", 0) == used[entity_id]
        team = await counted.repo.get_usage_summary("team")
        assert team.total.get("rpm", 0) == everything
        assert team.through_children.get("rpm", 0) == everything - used["team"]

    async def test_limits_of_a_call_count_under_their_own_name(self, counted: World) -> None:
        await counted.configure(RPM)
        await counted.take(rpm=2)
        await counted.take(limits=[Limit.per_minute("rpm", 5)], rpm=3)
        assert await _total(counted) == {"rpm": 5}
        counted.clock.advance(days=2)
        await counted.take(rpm=1)
        assert await _total(counted) == {"rpm": 6}

    async def test_a_refunded_charge_under_limits_of_the_call_is_not_counted(
        self, counted: World
    ) -> None:
        own = [Limit.per_minute("rpm", 50)]
        await counted.configure(RPM)
        await counted.take(rpm=7)
        with failing():
            async with counted.acquire(limits=own, rpm=5):
                raise Failure
        await counted.take(limits=own, rpm=2)
        assert await _total(counted) == {"rpm": 9}

    async def test_a_refund_to_a_balance_of_a_call_that_was_dropped_is_not_counted(
        self, counted: World
    ) -> None:
        await counted.configure(RPM)
        await counted.take(rpm=7)
        with failing():
            async with counted.acquire(limits=[Limit.per_minute("rpm", 50)], rpm=5):
                counted.clock.advance(hours=1)
                await counted.take(rpm=2)
                await counted.take(limits=[Limit.per_minute("rpm", 77)], rpm=1)
                raise Failure
        assert await _total(counted) == {"rpm": 10}

    async def test_a_dropped_balance_of_a_call_stays_counted_in_its_own_hour(
        self, counted: World
    ) -> None:
        await counted.configure(RPM)
        await counted.take(rpm=7)
        await counted.take(limits=[Limit.per_minute("rpm", 50)], rpm=5)
        counted.clock.advance(hours=1)
        await counted.take(limits=[Limit.per_minute("rpm", 77)], rpm=2)
        hours, _ = await counted.repo.get_usage_snapshots(USER, window_type="hourly")
        assert [hour.counters for hour in hours] == [{"rpm": 12}, {"rpm": 2}]

    async def test_usage_given_out_is_not_the_store_s_own(self, counted: World) -> None:
        await counted.configure(RPM)
        for _ in range(2):
            await counted.take(rpm=1)
            counted.clock.advance(hours=1)
        for _ in range(2):
            hours, _ = await counted.repo.get_usage_snapshots(USER, window_type="hourly")
            assert [hour.counters for hour in hours] == [{"rpm": 1}, {"rpm": 1}]
            for hour in hours:
                hour.counters["rpm"] = 999

    async def test_changed_limits_do_not_disturb_the_count(self, counted: World) -> None:
        await counted.configure(RPM)
        await counted.take(rpm=5)
        await counted.configure(Limit.per_minute("rpm", 20), TPM)
        counted.clock.advance(hours=1)
        await counted.take(rpm=2, tpm=10)
        assert await _total(counted) == {"rpm": 7, "tpm": 10}

    async def test_a_clock_that_goes_back_loses_no_count(self, counted: World) -> None:
        await counted.configure(Limit.custom("rpm", 100, 1, 86_400))
        for jump in (2, -1, -1, 3, -2, 1):
            await counted.take(rpm=1)
            counted.clock.advance(hours=jump)
        await counted.repo.reset_bucket(USER, API)
        await counted.take(rpm=1)
        assert (await _total(counted))["rpm"] == 7

    @pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
    async def test_a_random_history_is_counted_to_the_token(
        self, counted_for_months: World, seed: int
    ) -> None:
        counted = counted_for_months
        await counted.configure(Limit.per_minute("rpm", 50), TPM)
        chance, net, admitted = random.Random(seed), 0, 0
        for _ in range(150):
            counted.clock.advance(minutes=chance.choice([0, 1, 7, 61, 1500]))
            amount = chance.randint(0, 20)
            adjustment = chance.randint(-amount, 20)
            try:
                async with counted.acquire(rpm=amount) as lease:
                    admitted += 1
                    await lease.adjust(rpm=adjustment)
                    if chance.random() < 0.2:
                        raise Failure
                net += amount + adjustment
            except (Failure, RateLimitExceeded):
                pass
            if chance.random() < 0.05:
                await counted.repo.delete_entity(USER)
        for window in ("hourly", "daily", "monthly"):
            found, _ = await counted.repo.get_usage_snapshots(
                USER, window_type=window, limit=10_000
            )
            assert sum(each.counters.get("rpm", 0) for each in found) == net
            assert sum(each.total_events for each in found) == admitted


async def _hours(world: World) -> dict[str, int]:
    found, _ = await world.repo.get_usage_snapshots(USER, window_type="hourly")
    return {each.window_start[11:13]: each.counters["rpm"] for each in found}


async def _through(world: World, entity_id: str) -> list[tuple[int, int]]:
    """Return net tokens by the hour, and the part of them that came through children."""
    found, _ = await world.repo.get_usage_snapshots(entity_id, window_type="hourly")
    return [(each.counters["rpm"], each.through_children.get("rpm", 0)) for each in found]


async def _once(world: World) -> tuple[dict[str, int], dict[str, int]]:
    """Return the totals of the resource over all entities, and the part through children."""
    summary = await world.repo.get_usage_summary(resource=API)
    return summary.total, summary.through_children


async def _total(world: World) -> dict[str, int]:
    return (await world.repo.get_usage_summary(USER)).total

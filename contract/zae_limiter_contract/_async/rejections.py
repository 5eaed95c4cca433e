"""The counts of acquires: each rejection, shadowed or not, and each wait counts once."""

from __future__ import annotations

import asyncio  # unasync: remove
import time
from functools import partial

import pytest

from zae_limiter._async.repository import Repository
from zae_limiter.models.limit import Limit
from zae_limiter.models.usage import UsageSnapshot
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.waiting import Call, Line, until
from zae_limiter_contract._async.world import API, USER, World, require_usage_history
from zae_limiter_contract.together import agather

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)
RPS = Limit.per_second("rps", 10)
STORED_S = 33  # counts are stored within 30 s; a busy machine needs a moment more


async def rest() -> None:
    """Leave the machine to the background."""
    await asyncio.sleep(0.1)  # unasync: remove
    # sync: time.sleep(0.1)


async def hour_of(repository: Repository, entity_id: str = USER) -> UsageSnapshot:
    """Return the only hour of an entity."""
    (hour,), _ = await repository.get_usage_snapshots(entity_id, API, "hourly")
    return hour


class RejectionContract(Contract):
    """Usage counts the acquires that were rejected or shadowed, or have waited."""

    @pytest.fixture
    def watched(self, engine_spec: EngineSpec, world: World) -> World:
        require_usage_history(engine_spec)
        return world

    @pytest.fixture
    async def stopped(self, watched: World) -> World:
        """A key below a team that has no token left."""
        await watched.configure(RPM, TPM)
        await watched.repo.create_entity("key", parent_id="team", cascade=True)
        await watched.take("team", tpm=1000)
        return watched

    async def test_a_caller_that_waited_and_was_admitted_is_not_rejected(
        self, watched: World
    ) -> None:
        await watched.configure(RPS)
        await watched.take(rps=10)
        line, clock = Line(watched), watched.clock

        async def let_them_pass() -> None:
            await until(lambda: clock.waiting >= 3)
            while len(line.entered) < 3:
                await rest()
                clock.advance(ms=1000)

        calls: list[Call] = [partial(line.wait, number) for number in range(3)]
        await agather([*calls, let_them_pass])
        await line.wait("never", 11)
        await line.wait("at once", 0)
        other = await watched.open()
        await watched.repo.close()
        hour = await hour_of(other)
        assert (hour.total_events, hour.rejected, hour.waited) == (5, 1, 3)
        summary = await other.get_usage_summary(USER)
        assert (summary.rejected, summary.waited) == (1, 3)

    async def test_a_caller_that_waited_in_vain_is_rejected_once(self, watched: World) -> None:
        await watched.repo.set_limits("key", [RPS])
        await watched.repo.set_limits("team", [Limit.per_hour("rps", 12)])
        await watched.repo.create_entity("key", parent_id="team", cascade=True)
        await watched.take("key", rps=9)
        line, clock = Line(watched), watched.clock

        async def exhaust_the_parent() -> None:
            try:
                await until(lambda: clock.waiting == 1)
                await watched.take("team", rps=2)
            finally:
                clock.advance(ms=5000)

        calls: list[Call] = [partial(line.wait, "child", 2, entity_id="key", timeout=30)]
        await agather([*calls, exhaust_the_parent])
        assert list(line.rejected) == ["child"]
        other = await watched.open()
        await watched.repo.close()
        hour = await hour_of(other, "key")
        assert (hour.total_events, hour.rejected, hour.waited) == (1, 1, 1)
        hour = await hour_of(other, "team")
        assert (hour.rejected, hour.rejected_through_children, hour.waited) == (1, 1, 0)

    async def test_a_bucket_that_was_never_used_counts_its_rejections(self, watched: World) -> None:
        await watched.configure(RPM, TPM)
        for tpm in (1500, 1001):
            await watched.refusal(rpm=1, tpm=tpm)
        other = await watched.open()
        await watched.repo.close()
        hour = await hour_of(other)
        assert (hour.total_events, hour.rejected, hour.waited) == (0, 2, 0)
        assert hour.rejected_amounts == {"tpm": 1500}
        asked = {each.limit_name: each.asked for each in await other.get_buckets(USER)}
        assert asked in ({}, {"rpm": 0, "tpm": 1500})  # a rejection need not create the bucket
        assert not any(hour.counters.values())
        (listed,), _ = await other.get_usage_snapshots(resource=API, window_type="hourly")
        assert listed == hour
        assert all(each.tokens == each.capacity for each in await other.get_buckets(USER, API))

    async def test_a_key_that_its_parent_stopped_counts_its_rejections(
        self, stopped: World
    ) -> None:
        await stopped.refusal("key", rpm=1, tpm=300)
        await stopped.refusal("key", rpm=1, tpm=200)
        await stopped.refusal("team", rpm=1, tpm=400)
        other = await stopped.open()
        await stopped.repo.close()
        key, team = await hour_of(other, "key"), await hour_of(other, "team")
        assert (key.rejected, key.rejected_through_children) == (2, 0)
        assert (team.rejected, team.rejected_through_children) == (3, 2)
        assert key.rejected_amounts == {"tpm": 300}
        assert team.rejected_amounts == {"tpm": 400}
        # Over several entities each acquire counts once.
        assert (await other.get_usage_summary()).rejected == 3
        assert (await other.get_usage_summary("team")).rejected == 3

    async def test_a_parent_that_had_enough_counts_no_rejection(self, watched: World) -> None:
        await watched.configure(RPM)
        await watched.repo.set_limits("team", [Limit.per_minute("rpm", 100)])
        await watched.repo.create_entity("key", parent_id="team", cascade=True)
        await watched.take("key", rpm=10)
        await watched.refusal("key", rpm=5)
        other = await watched.open()
        await watched.repo.close()
        assert (await hour_of(other, "key")).rejected_amounts == {"rpm": 5}
        team = await hour_of(other, "team")
        assert (team.rejected, team.rejected_amounts) == (0, {})

    async def test_a_shadowed_call_counts_once_at_the_entity_that_asked(
        self, stopped: World
    ) -> None:
        limiter = stopped.limiter
        async with limiter.acquire("key", API, {"rpm": 1, "tpm": 300}, mode="shadow") as lease:
            assert lease.shadowed
            await lease.consume(tpm=300)  # a call within the block is no acquire
        await stopped.refusal("key", rpm=1, tpm=200)
        other = await stopped.open()
        await stopped.repo.close()
        key, team = await hour_of(other, "key"), await hour_of(other, "team")
        assert (key.shadowed, key.rejected, key.rejected_amounts) == (1, 1, {"tpm": 200})
        assert (team.shadowed, team.rejected, team.rejected_through_children) == (0, 1, 1)
        assert (await other.get_usage_summary()).shadowed == 1
        ranking = await other.get_top_usage(resource=API)
        counted = {each.entity_id: each.shadowed for each in (*ranking.consumers, *ranking.parents)}
        assert (counted.get("key", 1), counted.get("team", 0)) == (1, 0)

    async def test_the_shadow_mode_of_a_bucket_counts_calls_that_do_not_fit(
        self, watched: World
    ) -> None:
        await watched.configure(RPM, TPM)
        await watched.repo.set_mode(API, mode="shadow")
        for rpm in (8, 2, 5, 5):
            async with watched.acquire(rpm=rpm):
                pass
        async with watched.limiter.acquire(USER, API, {"rpm": 1}, mode="shadow"):
            pass
        other = await watched.open()
        await watched.repo.close()
        hour = await hour_of(other)
        assert (hour.total_events, hour.shadowed, hour.rejected) == (5, 3, 0)
        assert hour.counters["rpm"] == 21
        assert hour.rejected_amounts == {}

    async def test_a_call_that_does_not_wait_in_shadow_mode_counts_once(
        self, watched: World
    ) -> None:
        await watched.configure(RPM, TPM)
        await watched.repo.set_mode(API, mode="shadow")
        await watched.take(rpm=10)
        async with watched.limiter.acquire(USER, API, {"rpm": 1}, timeout=60) as lease:
            assert lease.shadowed
        other = await watched.open()
        await watched.repo.close()
        hour = await hour_of(other)
        assert (hour.total_events, hour.shadowed, hour.waited) == (2, 1, 0)

    async def test_shadowed_calls_are_kept_with_their_hour(self, watched: World) -> None:
        await watched.configure(RPM, TPM)
        await watched.repo.set_mode(API, mode="shadow")
        for _ in range(2):
            await watched.take(rpm=10)
        watched.clock.advance(minutes=30)
        await watched.take(rpm=1)
        watched.clock.advance(hours=1)
        for rpm in (10, 1, 1):
            await watched.take(rpm=rpm)
        watched.clock.advance(hours=1)
        await watched.take(rpm=1)
        hours, _ = await watched.repo.get_usage_snapshots(USER, API, "hourly")
        assert [each.shadowed for each in hours[:1]] == [1]
        other = await watched.open()
        await watched.repo.close()
        hours, _ = await other.get_usage_snapshots(USER, API, "hourly")
        assert sum(each.shadowed for each in hours) == 3
        (day,), _ = await other.get_usage_snapshots(USER, API, "daily")
        assert (day.shadowed, day.rejected) == (3, 0)

    async def test_the_largest_rejected_amount_is_kept_with_its_hour(self, watched: World) -> None:
        await watched.configure(RPM, TPM)
        await watched.take(tpm=900)
        for tpm in (300, 700, 500):
            await watched.refusal(rpm=1, tpm=tpm)
        watched.clock.advance(seconds=30)
        await watched.take(tpm=1)
        assert (await hour_of(watched.repo)).rejected_amounts == {"tpm": 700}
        watched.clock.advance(hours=1)
        await watched.take(tpm=1000)
        await watched.refusal(tpm=200)
        watched.clock.advance(seconds=30)
        await watched.take(tpm=1)
        watched.clock.advance(hours=1)
        await watched.take(tpm=1)
        hours, _ = await watched.repo.get_usage_snapshots(USER, API, "hourly")
        assert [each.rejected_amounts for each in hours] == [{"tpm": 700}, {"tpm": 200}, {}]
        assert [each.rejected for each in hours] == [3, 1, 0]

    @pytest.mark.slow
    async def test_counts_are_stored_after_half_a_minute(self, watched: World) -> None:
        await watched.configure(RPM)
        other = await watched.open()
        await watched.take(rpm=10)
        await watched.refusal(rpm=9)
        ends_s = time.monotonic() + STORED_S
        while time.monotonic() < ends_s:
            await rest()
        hour = await hour_of(other)
        assert (hour.rejected, hour.rejected_amounts) == (1, {"rpm": 9})
        assert hour.counters == {"rpm": 10}

"""``limiter.pause``: a paused bucket admits nothing, even if it is full."""

from __future__ import annotations

import math
from functools import partial

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.naming import process_author
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.waiting import RPS, Call, Line, until
from zae_limiter_contract._async.world import API, USER, Failure, World, failing
from zae_limiter_contract.together import agather

RPM = Limit.per_minute("rpm", 60)
HOUR_MS = 3_600_000


class PauseContract(Contract):
    """Every call is rejected until the end of the pause; refill and settlements go on."""

    @pytest.fixture
    async def paused(self, world: World) -> World:
        """A bucket with 50 of 60 tokens that has just been paused for 30 seconds."""
        await world.configure(RPM)
        await world.take(rpm=10)
        await world.limiter.pause(USER, API, 30)
        return world

    async def test_calls_are_rejected_until_the_end_to_the_millisecond(self, paused: World) -> None:
        for waited_ms, left_s in ((0, 30.0), (12_345, 17.655), (17_654, 0.001)):
            paused.clock.advance(ms=waited_ms)
            refusal = await paused.refusal(rpm=1)
            assert refusal.retry_after_seconds == left_s
            assert [each.paused_seconds for each in refusal.statuses] == [left_s]
            assert "paused" in str(refusal)
        paused.clock.advance(ms=1)
        await paused.take(rpm=60)  # what accrued meanwhile is there

    async def test_an_empty_acquire_is_rejected_too(self, paused: World) -> None:
        assert (await paused.refusal()).retry_after_seconds == 30

    async def test_tokens_that_are_missing_after_the_pause_are_waited_for(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        await world.take(rpm=60)
        await world.limiter.pause(USER, API, 5)
        assert (await world.refusal(rpm=3)).retry_after_seconds == 5
        assert (await world.refusal(rpm=20)).retry_after_seconds == 20
        world.clock.advance(seconds=19.999)
        assert (await world.refusal(rpm=20)).retry_after_seconds == 0.001
        world.clock.advance(ms=1)
        await world.take(rpm=20)

    async def test_levels_and_usage_stay_as_they_are(self, paused: World) -> None:
        assert await paused.tokens() == 50
        assert await paused.spent() == 10
        assert not await paused.granted(rpm=1)
        paused.clock.advance(seconds=30)
        await paused.take(rpm=1)
        assert await paused.spent() == 11
        assert await paused.tokens() == 59
        [usage], _ = await paused.repo.get_usage_snapshots(USER, API, "hourly")
        assert (usage.counters["rpm"], usage.total_events) == (11, 2)

    async def test_it_shows_where_levels_are_asked_for(self, paused: World) -> None:
        limiter = paused.limiter
        assert await limiter.available(USER, API) == {"rpm": 0}
        assert await limiter.time_until_available(USER, API, {"rpm": 1}) == 30
        assert not (await limiter.check_availability(USER, API, {"rpm": 1})).available
        state = await paused.repo.get_bucket(USER, API, "rpm")
        assert state is not None
        assert state.paused_until_ms == paused.clock() + 30_000
        paused.clock.advance(seconds=30)
        state = await paused.repo.get_bucket(USER, API, "rpm")
        assert state is not None
        assert state.paused_until_ms is None
        assert await limiter.available(USER, API) == {"rpm": 60}

    async def test_headers_say_that_nothing_is_left_and_when_to_come_again(
        self, paused: World
    ) -> None:
        paused.clock.advance(ms=500)
        headers = (await paused.refusal(rpm=1)).headers()
        assert headers["Retry-After"] == "30"
        assert headers["RateLimit"] == '"rpm";r=0;t=30'

    async def test_a_later_end_holds_and_an_earlier_one_changes_nothing(
        self, paused: World
    ) -> None:
        await paused.limiter.pause(USER, API, 10)
        assert (await paused.refusal(rpm=1)).retry_after_seconds == 30
        await paused.limiter.pause(USER, API, 60)
        assert (await paused.refusal(rpm=1)).retry_after_seconds == 60
        paused.clock.advance(seconds=30)  # the end of the first one
        assert (await paused.refusal(rpm=1)).retry_after_seconds == 30
        paused.clock.advance(seconds=30)
        await paused.take(rpm=1)

    async def test_no_seconds_lift_it(self, paused: World) -> None:
        assert not await paused.granted(rpm=1)
        await paused.limiter.pause(USER, API, 0)
        await paused.take(rpm=1)
        assert await paused.tokens() == 49
        await paused.limiter.pause(USER, API, 0)  # nothing to lift
        await paused.take(rpm=1)

    async def test_a_bucket_can_be_paused_again_after_its_pause(self, paused: World) -> None:
        for _ in range(3):
            paused.clock.advance(seconds=30)
            await paused.take(rpm=1)
            await paused.limiter.pause(USER, API, 30)
            assert (await paused.refusal(rpm=1)).retry_after_seconds == 30
        paused.clock.advance(seconds=30)
        await paused.limiter.pause(USER, API, 7)  # without a call in between
        assert (await paused.refusal(rpm=1)).retry_after_seconds == 7

    async def test_other_buckets_are_not_paused(self, paused: World) -> None:
        await paused.take(USER, "other", rpm=1)
        await paused.take("user-2", rpm=1)

    # --- buckets that do not exist

    async def test_a_bucket_that_was_never_used_is_paused_too(self, world: World) -> None:
        await world.configure(RPM)
        await world.limiter.pause(USER, API, 30)
        [state] = await world.repo.get_buckets(USER, API)
        assert (state.tokens, state.total_consumed_milli) == (60, 0)
        assert state.paused_until_ms == world.clock() + 30_000
        assert (await world.refusal(rpm=1)).retry_after_seconds == 30
        world.clock.advance(seconds=30)
        await world.take(rpm=60)
        assert not await world.granted(rpm=1)

    async def test_so_is_that_of_an_entity_with_limits_of_its_own(self, world: World) -> None:
        await world.repo.set_limits(USER, [RPM], API)
        await world.limiter.pause(USER, API, 30)
        assert (await world.refusal(rpm=1)).retry_after_seconds == 30
        world.clock.advance(seconds=30)
        await world.take(rpm=60)

    async def test_so_is_one_whose_limits_only_calls_bring(self, world: World) -> None:
        await world.limiter.pause(USER, API, 30)
        refusal = await world.refusal(limits=[RPM], rpm=1)
        assert refusal.retry_after_seconds == 30
        world.clock.advance(seconds=30)
        await world.take(limits=[RPM], rpm=60)
        assert not await world.granted(limits=[RPM], rpm=1)

    async def test_lifting_the_pause_of_no_bucket_makes_none(self, world: World) -> None:
        await world.configure(RPM)
        await world.limiter.pause(USER, API, 0)
        assert await world.repo.get_buckets(USER) == []
        assert not [each for each in await events(world) if each[0].startswith("bucket")]

    # --- what goes on meanwhile

    async def test_a_call_under_way_is_settled_and_takes_no_more(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=10) as lease:
            await world.limiter.pause(USER, API, 30)
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=1)
            await lease.release(rpm=2)
            await lease.adjust(rpm=60)
        assert await world.tokens() == -8
        assert (await world.refusal(rpm=1)).retry_after_seconds == 30
        with failing():
            world.clock.advance(seconds=30)
            async with world.acquire(rpm=1):
                await world.limiter.pause(USER, API, 30)
                raise Failure
        assert await world.tokens() == 22
        assert await world.spent() == 68

    async def test_a_settlement_after_the_end_does_not_bring_it_back(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=10) as lease:
            await world.limiter.pause(USER, API, 1)
            world.clock.advance(seconds=1)
            await lease.adjust(rpm=5)
        assert await world.tokens() == 46
        await world.take(rpm=46)
        assert not await world.granted(rpm=1)

    async def test_reset_and_top_up_fill_the_bucket_and_leave_the_pause(
        self, paused: World
    ) -> None:
        await paused.repo.top_up(USER, API, {"rpm": 3})
        assert await paused.tokens() == 53
        await paused.repo.reset_bucket(USER, API)
        assert await paused.tokens() == 60
        assert (await paused.refusal(rpm=1)).retry_after_seconds == 30

    async def test_other_limits_apply_and_leave_the_pause(self, paused: World) -> None:
        await paused.repo.set_limits(USER, [Limit.per_minute("rpm", 600)], API)
        refusal = await paused.refusal(rpm=1)
        assert refusal.retry_after_seconds == 30
        assert [each.limit.capacity for each in refusal.statuses] == [600]
        paused.clock.advance(seconds=30)
        await paused.take(rpm=350)  # the level was kept, and grew by the new rate
        assert not await paused.granted(rpm=1)

    async def test_limits_of_a_call_beside_the_stored_ones_are_paused_too(
        self, paused: World
    ) -> None:
        own = [Limit.per_minute("rpm", 7)]
        assert (await paused.refusal(limits=own, rpm=1)).retry_after_seconds == 30
        paused.clock.advance(seconds=30)
        await paused.take(limits=own, rpm=7)

    async def test_a_deleted_entity_takes_the_pause_along(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.create_entity(USER)
        await world.limiter.pause(USER, API, 30)
        await world.repo.delete_entity(USER)
        await world.take(rpm=1)

    async def test_an_hour_that_ends_during_the_pause_is_counted(self, paused: World) -> None:
        now_ms = paused.clock()
        paused.clock.set((now_ms // HOUR_MS + 1) * HOUR_MS - 100)
        await paused.take(rpm=5)
        await paused.limiter.pause(USER, API, 30)
        paused.clock.advance(seconds=31)
        await paused.take(rpm=7)
        usage, _ = await paused.repo.get_usage_snapshots(USER, API, "hourly")
        assert sum(each.counters["rpm"] for each in usage) == 22
        assert usage[-1].counters["rpm"] == 7

    # --- cascade, slots, shadow mode

    async def test_a_paused_parent_pauses_its_children(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.create_entity("key", parent_id="team", cascade=True)
        await world.take("key", rpm=1)
        await world.limiter.pause("team", API, 30)
        refusal = await world.refusal("key", rpm=1)
        assert refusal.retry_after_seconds == 30
        assert [(each.entity_id, each.exceeded) for each in refusal.statuses] == [
            ("key", False),
            ("team", True),
        ]
        assert await world.spent("rpm", "key") == 1
        await world.take("other", rpm=1)
        world.clock.advance(seconds=30)
        await world.take("key", rpm=1)

    async def test_a_paused_child_leaves_its_parent_alone(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.create_entity("key", parent_id="team", cascade=True)
        await world.take("key", rpm=1)
        await world.limiter.pause("key", API, 30)
        assert (await world.refusal("key", rpm=1)).retry_after_seconds == 30
        await world.take("team", rpm=1)
        assert await world.spent("rpm", "team") == 2

    async def test_slots_are_given_back_during_a_pause_and_none_is_taken(
        self, world: World
    ) -> None:
        await world.configure(RPM, Limit.concurrent("parallel", 2))
        async with world.acquire(rpm=1):
            await world.limiter.pause(USER, API, 30)
            refusal = await world.refusal(rpm=1)
            assert refusal.retry_after_seconds == 30
        assert await world.tokens("parallel") == 2
        world.clock.advance(seconds=30)
        async with world.acquire(rpm=1), world.acquire(rpm=1):
            assert not await world.granted(rpm=1)

    async def test_in_shadow_mode_calls_are_let_through_uncharged(self, paused: World) -> None:
        shadow = RateLimiter(paused.repo, mode="shadow")
        async with shadow.acquire(USER, API, {"rpm": 1}) as lease:
            assert lease.consumed == {}
        assert await paused.spent() == 10

    # --- input and audit

    async def test_what_is_no_pause_is_refused(self, world: World) -> None:
        await world.configure(RPM)
        wrong = (-1, -0.001, 600.001, 10**9, math.nan, math.inf, "30", None, True, [1])
        for seconds in wrong:
            with pytest.raises(ValidationError, match="600") as caught:
                await world.limiter.pause(USER, API, seconds)  # type: ignore[arg-type]
            assert caught.value.field == "seconds"
        assert await world.repo.get_buckets(USER) == []

    async def test_events_tell_who_paused_and_until_when(self, paused: World) -> None:
        now_ms = paused.clock()
        await paused.limiter.pause(USER, API, 10)  # changes nothing
        await paused.limiter.pause(USER, API, 600, principal="ops")
        await paused.repo.pause(USER, API, 0, "ops")
        await paused.limiter.pause(USER, API, 0)  # changes nothing
        assert [each for each in await events(paused) if each[0].startswith("bucket")] == [
            ("bucket_paused", process_author(), {"until": iso_from_ms(now_ms + 30_000)}),
            ("bucket_paused", "ops", {"until": iso_from_ms(now_ms + 600_000)}),
            ("bucket_resumed", "ops", {}),
        ]

    # --- other clients

    async def test_other_clients_learn_of_it_with_their_next_call(self, world: World) -> None:
        await world.configure(RPM)
        other = RateLimiter(await world.open())
        for limiter in (world.limiter, other):
            async with limiter.acquire(USER, API, {"rpm": 1}):
                pass
        await world.limiter.pause(USER, API, 30)
        with pytest.raises(RateLimitExceeded) as caught:
            async with other.acquire(USER, API, {"rpm": 1}):
                pass
        assert caught.value.retry_after_seconds == 30
        await other.pause(USER, API, 40)
        assert (await world.refusal(rpm=1)).retry_after_seconds == 40
        world.clock.advance(seconds=40)
        for limiter in (world.limiter, other):
            async with limiter.acquire(USER, API, {"rpm": 1}):
                pass
        assert await world.spent() == 4

    async def test_that_it_was_lifted_is_learned_within_seconds(self, paused: World) -> None:
        other = RateLimiter(await paused.open())
        with pytest.raises(RateLimitExceeded):
            async with other.acquire(USER, API, {"rpm": 1}):
                pass
        await paused.limiter.pause(USER, API, 0)
        paused.clock.advance(seconds=5)  # longer than rejections are cached
        async with other.acquire(USER, API, {"rpm": 1}):
            pass

    async def test_clients_that_pause_at_once_need_not_know_of_each_other(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        pauses = [partial(world.limiter.pause, USER, API, seconds) for seconds in (5, 30, 10, 29)]
        await agather(pauses)
        assert (await world.refusal(rpm=1)).retry_after_seconds == 30


class PausedLineContract(Contract):
    """Callers with a timeout wait for the end of a pause, in order."""

    async def test_they_go_on_after_the_pause_each_when_its_token_is_there(
        self, world: World
    ) -> None:
        await world.configure(Limit.custom("rps", 2, 10, 1))
        await world.take(rps=2)
        await world.limiter.pause(USER, API, 5)
        line = Line(world)
        calls = [partial(line.wait, number) for number in range(4)]
        await line.run(calls, {0: 5000, 1: 5000, 2: 5100, 3: 5200})

    async def test_a_deadline_before_its_end_is_rejected_at_once(self, world: World) -> None:
        await world.configure(RPS)
        await world.limiter.pause(USER, API, 5)
        line = Line(world)
        await line.wait("early", timeout=4.999)
        assert line.rejected["early"].retry_after_seconds == 5
        await line.wait("large", rps=11, timeout=50)
        assert line.rejected["large"].retry_after_seconds == math.inf

    async def test_a_pause_beyond_the_horizon_is_waited_for(self, world: World) -> None:
        await world.configure(RPS)
        await world.limiter.pause(USER, API, 90)
        line = Line(world)
        await line.run([partial(line.wait, "patient", timeout=100)], {"patient": 90_000})

    async def test_callers_that_cannot_reserve_after_it_let_those_pass_that_can(
        self, world: World
    ) -> None:
        await world.configure(Limit.custom("rps", 100, 1, 1))
        await world.take(rps=80)
        await world.limiter.pause(USER, API, 5)
        line = Line(world)
        calls = [
            partial(line.wait, "large", 100, timeout=600),
            partial(line.wait, "small", 5),
        ]
        await line.run(calls, {"small": 5000, "large": 85_000})

    async def test_callers_for_slots_wait_for_its_end(self, world: World) -> None:
        await world.configure(RPS, Limit.concurrent("parallel", 2))
        await world.limiter.pause(USER, API, 20)
        line = Line(world)
        await line.wait("early", timeout=19)
        assert line.rejected["early"].retry_after_seconds == 20
        await line.run([partial(line.wait, "patient", timeout=30)], {"patient": 20_000})

    @pytest.mark.parametrize("slots", [False, True])
    async def test_a_pause_that_is_lifted_is_noticed_within_five_seconds(
        self, world: World, slots: bool
    ) -> None:
        await world.configure(RPS, *([Limit.concurrent("parallel", 2)] if slots else []))
        await world.limiter.pause(USER, API, 600)
        line, other = Line(world), RateLimiter(await world.open())

        async def lift() -> None:
            await until(lambda: world.clock.waiting == 2)
            await other.pause(USER, API, 0)
            world.clock.advance(seconds=5)

        calls: list[Call] = [partial(line.wait, number, timeout=700) for number in range(2)]
        await agather([*calls, lift])
        assert line.entered == {0: 5000, 1: 5000}

    async def test_a_reservation_made_before_the_pause_stays(self, world: World) -> None:
        await world.configure(RPS)
        await world.take(rps=10)
        line = Line(world)

        async def pause() -> None:
            await until(lambda: world.clock.waiting == 1)
            await world.limiter.pause(USER, API, 30)
            world.clock.advance(ms=100)

        calls: list[Call] = [partial(line.wait, "reserved"), pause]
        await agather(calls)
        assert line.entered == {"reserved": 100}


async def events(world: World) -> list[tuple[str, str | None, dict[str, object]]]:
    """Return action, principal and details of a bucket's events, the oldest first."""
    logged = await world.repo.get_audit_events(USER)
    return [(each.action, each.principal, each.details) for each in reversed(logged)]

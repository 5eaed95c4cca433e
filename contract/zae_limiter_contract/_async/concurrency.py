"""Many callers at once. Exactly as many are granted as the limit allows."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import (
    EntityExistsError,
    InfrastructureError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
)
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import (
    API,
    USER,
    Failure,
    World,
    failing,
    require_usage_history,
)
from zae_limiter_contract.together import agather

CALLERS = 40
HOURS, HOUR_MS = 3, 3_600_000
RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)


class ConcurrencyContract(Contract):
    """The clock stands still, so that every token can be counted."""

    async def test_exactly_as_many_callers_win_as_there_are_tokens(self, world: World) -> None:
        await world.configure(RPM)
        granted = await agather([lambda: world.granted(rpm=1)] * CALLERS)
        assert sum(granted) == 10
        assert await world.level() == 0

    async def test_exactly_as_many_callers_win_after_a_long_pause(self, world: World) -> None:
        await world.configure(RPM)
        await world.take(rpm=3)
        world.clock.advance(days=3650)
        granted = await agather([lambda: world.granted(rpm=1)] * CALLERS)
        assert sum(granted) == 10

    async def test_callers_with_different_amounts_share_what_there_is(self, world: World) -> None:
        await world.configure(TPM)
        amounts = [random.Random(seed).randint(1, 99) for seed in range(CALLERS)]

        async def attempt(amount: int) -> int:
            return amount if await world.granted(tpm=amount) else 0

        taken = await agather([partial(attempt, amount) for amount in amounts])
        assert sum(taken) <= 1000
        assert await world.tokens("tpm") == 1000 - sum(taken)
        refused = [amount for amount, got in zip(amounts, taken, strict=True) if not got]
        assert all(amount > 1000 - sum(taken) for amount in refused)

    async def test_several_limits_are_taken_together_or_not_at_all(self, world: World) -> None:
        await world.configure(RPM, TPM)
        granted = await agather([lambda: world.granted(rpm=1, tpm=300)] * CALLERS)
        assert sum(granted) == 3
        assert (await world.tokens("rpm"), await world.tokens("tpm")) == (7, 100)

    async def test_events_of_resets_and_top_ups_account_for_every_token(self, world: World) -> None:
        await world.configure(TPM)
        await world.take(tpm=400)
        top_up = partial(world.repo.top_up, USER, API, {"tpm": 700})
        reset = partial(world.repo.reset_bucket, USER, API)
        charge = partial(world.granted, tpm=90)
        outcomes: list[object] = await agather(
            [*([charge] * 6), reset, *([charge] * 6), top_up, *([charge] * 6)]
        )
        events = await world.repo.get_audit_events(USER)
        filled_milli = sum(
            (event.details.get("forgiven_milli") or event.details["added_milli"])["tpm"]
            for event in events
        )
        assert len(events) in (1, 2), "a top-up right after the reset adds nothing"
        taken_milli = 400_000 + 90_000 * sum(outcome is True for outcome in outcomes)
        assert await world.level("tpm") == 1_000_000 + filled_milli - taken_milli

    async def test_children_of_one_parent_share_its_limit(self, world: World) -> None:
        await world.repo.set_resource_defaults(API, [Limit.per_minute("rpm", 5)])
        await world.repo.set_limits("team", [Limit.per_minute("rpm", 12)])
        keys = [f"key-{number}" for number in range(5)]
        for key in keys:
            await world.repo.create_entity(key, parent_id="team", cascade=True)
        granted = sum(await agather([partial(world.granted, key, rpm=1) for key in keys * 8]))
        assert granted <= 12
        if not world.spec.capabilities.atomic_cascade:  # what one side held in vain is back
            granted += sum([await world.granted(key, rpm=1) for key in keys * 5])
        assert granted == 12
        assert await world.tokens("rpm", "team") == 0
        states = await world.repo.get_resource_buckets(API, "rpm")
        assert sum(5 - each.tokens for each in states if each.entity_id != "team") == 12

    async def test_failing_blocks_leave_nothing_behind(self, world: World) -> None:
        await world.configure(TPM)

        async def fail() -> None:
            try:
                async with world.acquire(tpm=7) as lease:
                    await lease.consume(tpm=3)
                    raise Failure
            except (Failure, RateLimitExceeded):
                pass

        await agather([fail] * CALLERS)
        assert await world.tokens("tpm") == 1000

    async def test_every_adjustment_counts(self, world: World) -> None:
        await world.configure(TPM)

        async def adjust() -> None:
            async with world.acquire(tpm=1) as lease:
                await lease.adjust(tpm=60)
                await lease.consume(tpm=2)
                await lease.release(tpm=1)

        await agather([adjust] * 15)
        assert await world.tokens("tpm") == 1000 - 15 * 62
        state = await world.repo.get_bucket(USER, API, "tpm")
        assert state is not None
        assert state.total_consumed_milli == 15 * 62 * 1000

    async def test_one_lease_may_be_used_by_many(self, world: World) -> None:
        await world.configure(TPM)
        async with world.acquire(tpm=1) as lease:

            async def use() -> None:
                await lease.consume(tpm=3)
                await lease.adjust(tpm=2)
                await lease.release(tpm=1)

            await agather([use] * 20)
            assert lease.consumed == {"tpm": 1 + 20 * 4}
        assert await world.tokens("tpm") == 1000 - 81

    async def test_a_lease_used_by_many_gives_everything_back_if_its_block_fails(
        self, world: World
    ) -> None:
        await world.configure(TPM)
        await world.take(tpm=100)
        with failing():
            async with world.acquire(tpm=10) as lease:

                async def use() -> None:
                    for _ in range(5):
                        await lease.consume(tpm=3)
                        await lease.release(tpm=1)

                await agather([use] * 8)
                assert lease.consumed == {"tpm": 10 + 8 * 5 * 2}
                raise Failure
        assert await world.tokens("tpm") == 900

    async def test_consumes_side_by_side_are_given_back_to_child_and_parent(
        self, world: World
    ) -> None:
        await world.repo.create_entity("child", parent_id="parent", cascade=True)
        await world.repo.set_limits("child", [Limit.per_minute("rpm", 200)], API)
        await world.repo.set_limits("parent", [Limit.per_minute("rpm", 60)], API)
        await world.take("parent", rpm=10)
        with failing():
            async with world.acquire("child", rpm=10) as lease:

                async def consume() -> bool:
                    try:
                        await lease.consume(rpm=3)
                    except RateLimitExceeded:
                        return False
                    return True

                # The parent has forty left for them: thirteen times three.
                assert sum(await agather([consume] * 20)) == 13
                assert lease.consumed == {"rpm": 10 + 13 * 3}
                raise Failure
        assert await world.tokens("rpm", "child") == 200
        assert await world.tokens("rpm", "parent") == 50

    async def test_a_write_that_fails_harms_none_that_is_made_at_the_same_time(
        self, world: World
    ) -> None:
        await world.configure(TPM)
        await world.repo.create_entity("key")
        await world.take(tpm=1)

        async def fail() -> None:
            with pytest.raises(EntityExistsError):
                await world.repo.create_entity("key")
            with pytest.raises(ValidationError):
                await world.repo.top_up(USER, API, {"unknown": 1})

        async def use() -> None:
            async with world.acquire(tpm=2) as lease:
                await lease.adjust(tpm=1)

        calls: list[Callable[[], Awaitable[None]]] = [fail, use] * 20
        await agather(calls)
        assert await world.tokens("tpm") == 1000 - 1 - 20 * 3

    async def test_closing_under_load_ends_every_call_and_loses_none_that_was_granted(
        self, world: World
    ) -> None:
        await world.configure(TPM)
        await world.take(tpm=1)
        busy = RateLimiter(await world.open())

        async def use() -> str:
            try:
                async with busy.acquire(USER, API, {"tpm": 1}):
                    return "granted"
            except RateLimiterUnavailable:
                return "unknown"
            except InfrastructureError:
                return "refused"

        async def close() -> str:
            assert busy.repository is not None
            await busy.repository.close()
            return "closed"

        outcomes = await agather([*[use] * 20, close, *[use] * 20])
        granted, unknown = outcomes.count("granted"), outcomes.count("unknown")
        assert 999 - granted - unknown <= await world.tokens("tpm") <= 999 - granted

    async def test_clients_with_connections_of_their_own_share_one_bucket(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        limiters = [RateLimiter(await world.open()) for _ in range(4)]

        async def attempt(limiter: RateLimiter) -> bool:
            try:
                async with limiter.acquire(USER, API, {"rpm": 1}):
                    return True
            except RateLimitExceeded:
                return False

        assert sum(await agather([partial(attempt, each) for each in limiters * 10])) == 10

    async def test_an_entity_is_created_by_exactly_one(self, world: World) -> None:
        async def create() -> bool:
            try:
                await world.repo.create_entity("key")
            except EntityExistsError:
                return False
            return True

        assert sum(await agather([create] * 10)) == 1
        assert len(await world.repo.get_audit_events("key")) == 1

    async def test_a_namespace_is_registered_once(self, world: World) -> None:
        ids = await agather([lambda: world.repo.register_namespace("red")] * 10)
        assert len(set(ids)) == 1
        assert len(await world.repo.get_audit_events("$NAMESPACE:red")) == 1

    async def test_changing_limits_under_load_mints_nothing(self, world: World) -> None:
        await world.configure(RPM)

        async def change(capacity: int) -> bool:
            await world.configure(Limit.per_minute("rpm", capacity))
            return False

        calls: list[Callable[[], Awaitable[bool]]] = [
            *[partial(world.granted, rpm=1)] * CALLERS,
            *[partial(change, capacity) for capacity in (20, 15, 30, 10)],
        ]
        random.Random(1).shuffle(calls)
        assert sum(await agather(calls)) <= 30
        await world.take(rpm=0)
        assert await world.tokens() <= max(0, 30 - await world.spent())

    async def test_a_read_that_was_under_way_does_not_bring_old_limits_back(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        for number in range(40):  # their listing keeps the readers busy
            await world.take(f"user-{number}", rpm=1)
        for capacity in range(11, 17):
            limit = Limit.per_minute("rpm", capacity)
            calls: list[Callable[[], Awaitable[object]]] = [
                partial(world.limiter.available, "other", API),
                partial(world.repo.get_resource_buckets, API),
                partial(world.configure, limit),
                partial(world.limiter.available, "other", API),
            ]
            await agather(calls)
            limits, _, _ = await world.repo.resolve_limits("other", API)
            assert limits == [limit]

    async def test_usage_of_many_adds_up(self, world: World) -> None:
        require_usage_history(world.spec)
        await world.configure(TPM)

        async def use(number: int) -> None:
            await world.take(f"user-{number % 3}", tpm=number)
            world.clock.advance(ms=1)  # so little that no other call, stamped before, is rejected

        for _ in range(HOURS):
            hour_ends_ms = (world.clock() // HOUR_MS + 1) * HOUR_MS
            world.clock.set(hour_ends_ms - 5)  # the hour ends while the calls are under way
            await agather([partial(use, number) for number in range(30)])
        found = await world.repo.get_usage_summary(resource=API)
        assert found.total == {"tpm": HOURS * sum(range(30))}

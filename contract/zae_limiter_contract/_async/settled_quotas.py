"""What a call settles at once is used, and no longer held: it stays if the call never ends."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.hooks import Hooks, SettleEvent
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import LimitStatus
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.settling_child import SettlingJob
from zae_limiter_contract._async.world import API, USER, Failure, World, failing
from zae_limiter_contract.together import in_killed_process

CHILD = "zae_limiter_contract._async.settling_child"
AMOUNT, TTL_S, DAY_S = 1000, 60, 86_400
DAILY = Limit.quota("tokens", AMOUNT, per="day", hold_ttl=TTL_S)
SESSION = Limit.quota("tokens", AMOUNT, after_first_use="5h", hold_ttl=TTL_S)
RPM = Limit.per_minute("rpm", 100)
KEY, TEAM, ALL = "key", "team", "all"

Use = tuple[Any, Any]  # used and held


async def use_of(world: World, entity_id: str = USER, resource: str = API) -> Use:
    """Return what is used and held of the quota, as the store shows it."""
    answer = await world.limiter.check_availability(entity_id, resource, {})
    return use_in(answer.statuses, entity_id)


def use_in(statuses: Any, entity_id: str = USER) -> Use:
    found: list[LimitStatus] = [
        each for each in statuses if each.limit.is_quota and each.entity_id == entity_id
    ]
    return found[0].used, found[0].held


class Told(Hooks):
    """Hooks that keep what they are told of the ends of blocks."""

    def __init__(self) -> None:
        self.settled: list[SettleEvent] = []

    def on_settle(self, event: SettleEvent) -> None:
        self.settled.append(event)


class SettledQuotaContract(Contract):
    """The settled part of a call is charged like the cost of a call that has ended."""

    async def test_what_is_settled_at_once_stays_used_when_its_call_never_ends(
        self, world: World
    ) -> None:
        await world.configure(DAILY)
        abandoned = world.acquire(tokens=500)
        lease = await abandoned.__aenter__()
        await lease.settle(tokens=400, now=True)
        assert await use_of(world) == use_in(lease.statuses) == (400, 0)
        world.clock.advance(seconds=2 * TTL_S)
        assert await use_of(world) == use_in(lease.statuses) == (400, 0)
        await world.take(tokens=600)
        assert not await world.granted(tokens=1)
        assert await world.spent("tokens") == 1000

    async def test_what_is_settled_at_once_stays_used_when_its_process_is_killed(
        self, world: World
    ) -> None:
        if not world.spec.capabilities.shared_between_processes:
            pytest.skip("this engine lives in one process")
        budget = Limit.budget("usd", "10.00", per="month", hold_ttl=TTL_S)
        await world.repo.set_resource_defaults(ALL, [budget])
        await world.configure(DAILY)
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        job = SettlingJob(
            world.spec,
            world.clock(),
            KEY,
            {API: {"tokens": 500}, ALL: {"usd": "5"}},
            {API: {"tokens": 400}, ALL: {"usd": "4"}},
        )
        in_killed_process(CHILD, job)
        world.clock.advance(seconds=10 * TTL_S)
        for entity_id in (KEY, TEAM):
            assert await use_of(world, entity_id) == (400, 0)
            assert await use_of(world, entity_id, ALL) == (4, 0)
        await world.take(KEY, tokens=600)
        assert not await world.granted(KEY, tokens=1)
        assert (await world.limiter.available(KEY, ALL))["usd"] == 6

    async def test_later_settlements_move_what_is_used(self, world: World) -> None:
        await world.configure(DAILY)
        async with world.acquire(tokens=500) as lease:
            for cost in (400, 200, 900, 0, 600):
                await lease.settle(tokens=cost, now=True)
                assert await use_of(world) == use_in(lease.statuses) == (cost, 0)
            await lease.settle(tokens=300)
            assert await use_of(world) == (600, 0)
        assert await use_of(world) == (300, 0)
        assert await world.spent("tokens") == 300

    async def test_an_overdrawn_window_is_settled_down_again(self, world: World) -> None:
        await world.configure(DAILY)
        async with world.acquire(tokens=500) as lease:
            await lease.settle(tokens=1500, now=True)
            assert not await world.granted(tokens=0)
            await lease.settle(tokens=100, now=True)
        assert await use_of(world) == (100, 0)
        await world.take(tokens=900)

    @for_each("on_error", ["refund", "keep"])
    async def test_what_is_settled_at_once_stays_when_the_block_fails(
        self, world: World, on_error: Any
    ) -> None:
        user = f"user {on_error}"
        await world.configure(DAILY)
        with failing():
            async with world.limiter.acquire(
                user, API, {"tokens": 500}, on_error=on_error
            ) as lease:
                await lease.settle(tokens=400, now=True)
                await lease.consume(tokens=50)
                assert use_in(lease.statuses, user) == (400, 50)
                assert await use_of(world, user) == (400, 50)
                raise Failure
        cost = 400 if on_error == "refund" else 450
        assert await use_of(world, user) == (cost, 0)
        assert await world.spent("tokens", user) == cost

    async def test_only_the_named_limits_are_settled_at_once(self, world: World) -> None:
        other = Limit.quota("requests", 50, per="day", hold_ttl=TTL_S)
        await world.configure(DAILY, other, RPM)
        abandoned = world.acquire(tokens=500, requests=5, rpm=1)
        lease = await abandoned.__aenter__()
        await lease.settle(tokens=400, rpm=3, now=True)
        held = {each.limit_name: each.held for each in lease.statuses if each.limit.is_quota}
        assert held == {"tokens": 0, "requests": 5}
        world.clock.advance(seconds=2 * TTL_S)
        left = await world.limiter.available(USER, API)
        assert (left["tokens"], left["requests"]) == (600, 50)

    async def test_what_was_consumed_is_settled_with_the_rest(self, world: World) -> None:
        await world.configure(DAILY)
        abandoned = world.acquire(tokens=300)
        lease = await abandoned.__aenter__()
        await lease.consume(tokens=200)
        await lease.consume(tokens=100)
        assert await use_of(world) == use_in(lease.statuses) == (0, 600)
        await lease.settle(tokens=250, now=True)
        assert await use_of(world) == use_in(lease.statuses) == (250, 0)
        world.clock.advance(seconds=2 * TTL_S)
        assert await use_of(world) == (250, 0)

    async def test_a_release_gives_back_what_is_held_before_what_is_used(
        self, world: World
    ) -> None:
        await world.configure(DAILY)
        async with world.acquire(tokens=300) as lease:
            await lease.settle(tokens=200, now=True)
            await lease.consume(tokens=100)
            await lease.release(tokens=60)
            assert await use_of(world) == use_in(lease.statuses) == (200, 40)
            await lease.release(tokens=90)
            assert await use_of(world) == use_in(lease.statuses) == (150, 0)
        assert await use_of(world) == (150, 0)
        assert await world.spent("tokens") == 150

    @for_each(("limit", "user"), [(DAILY, "user-day"), (SESSION, "user-session")])
    async def test_a_limit_that_was_not_named_is_used_when_it_is_settled(
        self, world: World, limit: Limit, user: str
    ) -> None:
        await world.repo.set_limits(user, [limit, RPM])
        abandoned = world.acquire(user, rpm=1)
        lease = await abandoned.__aenter__()
        for cost in (250, 100):
            await lease.settle(tokens=cost, now=True)
            assert await use_of(world, user) == use_in(lease.statuses, user) == (cost, 0)
            assert lease.remaining["tokens"] == AMOUNT - cost
        world.clock.advance(seconds=2 * TTL_S)
        assert await use_of(world, user) == (100, 0)

    @for_each("limit", [DAILY, SESSION])
    async def test_later_settlements_stay_in_the_window_of_their_call(
        self, world: World, limit: Limit
    ) -> None:
        user = f"user {limit.name} {limit.window!r}"[:60].replace(" ", "-")
        await world.repo.set_limits(user, [limit])
        async with world.acquire(user, tokens=500) as lease:
            await lease.settle(tokens=400, now=True)
            world.clock.advance(seconds=DAY_S)
            await world.take(user, tokens=300)
            await lease.settle(tokens=700, now=True)
            assert await use_of(world, user) == (300, 0)
            await lease.settle(tokens=100, now=True)
            assert await use_of(world, user) == (300, 0)
        assert await use_of(world, user) == (300, 0)
        assert await world.spent("tokens", user) == 400

    async def test_a_settled_call_does_not_change_a_bucket_that_was_made_again(
        self, world: World
    ) -> None:
        await world.configure(DAILY)
        async with world.acquire(tokens=500) as lease:
            await lease.settle(tokens=400, now=True)
            await world.repo.delete_entity(USER)
            await world.take(tokens=300)
            await lease.settle(tokens=700, now=True)
            await lease.settle(tokens=100, now=True)
        assert await use_of(world) == (300, 0)

    async def test_costs_that_a_reset_has_forgiven_are_not_given_back(self, world: World) -> None:
        await world.configure(DAILY)
        other = await world.open() if world.spec.shared else world.repo
        async with world.acquire(tokens=500) as lease:
            await lease.settle(tokens=400, now=True)
            await other.reset_bucket(USER, API)
            async with world.acquire(tokens=30):
                await lease.settle(tokens=100, now=True)
                assert await use_of(world) == (0, 30)
        assert await use_of(world) == (30, 0)
        await world.take(tokens=970)
        assert not await world.granted(tokens=1)

    async def test_a_client_that_knows_of_no_reset_gives_nothing_back_twice(
        self, world: World
    ) -> None:
        # Without thresholds: their marks would show the bucket to the client meanwhile.
        await world.configure(replace(DAILY, thresholds=()))
        mine = RateLimiter(await world.open() if world.spec.shared else world.repo)
        async with mine.acquire(USER, API, {"tokens": 500}) as lease:
            await lease.settle(tokens=400, now=True)
            await world.repo.reset_bucket(USER, API)
            async with world.acquire(tokens=600):
                await lease.settle(tokens=0, now=True)
                assert await use_of(world) == (0, 600)
                await world.take(tokens=400)
                assert not await world.granted(tokens=1)

    async def test_top_ups_stay_when_a_settled_cost_falls(self, world: World) -> None:
        await world.configure(DAILY)
        async with world.acquire(tokens=500) as lease:
            await lease.settle(tokens=400, now=True)
            await world.repo.top_up(USER, API, {"tokens": 50})
            await lease.settle(tokens=0, now=True)
            assert await use_of(world) == (0, 0)
        await world.take(tokens=1050)
        assert not await world.granted(tokens=1)

    async def test_a_call_that_was_settled_at_once_is_not_reported_as_lost(
        self, world: World
    ) -> None:
        await world.configure(DAILY)
        told = Told()
        limiter = RateLimiter(world.repo, hooks=[told])
        for also in (None, {"all": {"tokens": 5}}):
            async with limiter.acquire(USER, API, {"tokens": 500}, also=also) as lease:
                await lease.settle(tokens=400, now=True)
                if also is not None:
                    await lease.resource("all").settle(tokens=4, now=True)
        assert [each.lost for each in told.settled] == [False] * 3

    async def test_a_budget_shows_what_was_settled_at_once(self, world: World) -> None:
        await world.configure(Limit.budget("usd", "10.00", per="month"))
        async with world.limiter.acquire(USER, API, {"usd": "5"}) as lease:
            await lease.settle(usd="4", now=True)
            assert use_in(lease.statuses) == (Decimal(4), Decimal(0))
            assert lease.remaining == {"usd": Decimal(6)}

    async def test_a_lease_holds_its_cost_until_it_is_settled(self, world: World) -> None:
        await world.configure(DAILY)
        async with world.acquire(tokens=500) as lease:
            await lease.settle(tokens=400)
            assert use_in(lease.statuses) == (0, 400)
            await lease.adjust(tokens=200)
            assert use_in(lease.statuses) == (0, 600)
            world.clock.advance(seconds=2 * TTL_S)
            assert use_in(lease.statuses) == (0, 600)

    async def test_random_histories_use_what_was_settled_and_hold_the_rest(
        self, world: World
    ) -> None:
        await world.configure(DAILY)
        chance, before = random.Random(7), 0
        for ends in [True, False] * 12:
            call = world.acquire(tokens=chance.randrange(30))
            lease = await call.__aenter__()
            used, held = 0, int(lease.consumed["tokens"])
            steps: list[tuple[str, int]] = []
            for _ in range(chance.randrange(6)):
                step = chance.choice(["consume", "release", "settle", "adjust"])
                amount = chance.randrange(40)
                if step == "release":
                    amount = min(amount, used + held)
                steps.append((step, amount))
                if step == "settle":
                    await lease.settle(tokens=amount, now=True)
                    used, held = amount, 0
                elif step == "consume":
                    with suppress(RateLimitExceeded):
                        await lease.consume(tokens=amount)
                        held += amount
                elif step == "release":
                    await lease.release(tokens=amount)
                    from_held = min(amount, held)
                    used, held = used - amount + from_held, held - from_held
                else:
                    await lease.adjust(tokens=amount)
                assert await use_of(world) == (before + used, held), steps
            if ends:
                await call.__aexit__(Failure, Failure(), None)
                before += min(int(lease.consumed["tokens"]), _settled_in(steps))
            else:
                before += used
                world.clock.advance(seconds=2 * TTL_S)
            assert await use_of(world) == (before, 0), steps
            if before > AMOUNT // 2:
                world.clock.advance(seconds=DAY_S)
                before = 0


def _settled_in(steps: list[tuple[str, int]]) -> int:
    """Return the cost that a failed block keeps."""
    cost, kept = 0, 0
    for step, amount in steps:
        if step == "settle":
            cost = kept = amount
        else:
            cost += -amount if step == "release" else amount
            kept = min(kept, max(0, cost))
    return kept

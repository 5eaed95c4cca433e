"""Random histories of one bucket, each with a call at its end that may be rejected."""

from __future__ import annotations

import math
from contextlib import suppress
from random import Random
from typing import Any

from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.world import API, Failure, World

STEPS = 8
AMOUNTS = {"rpm": 20, "parallel": 3, "hourly": 100, "session": 100, "usd": 10}
HOUR_MS = 3_600_000


async def check_refusal(world: World, entity_id: str, seed: int) -> bool:
    """Make a random history and a call; tell whether the call was rejected.

    A rejection has a violation and a wait. After this wait the call is granted, and a millisecond
    earlier it is rejected; if the wait is infinite, it is rejected at any time.
    """
    chance = Random(seed)
    limits = _limits(chance)
    await world.repo.set_limits(entity_id, limits, API)
    names = [limit.name for limit in limits]
    steps = [await _step(world, chance, entity_id, names) for _ in range(STEPS)]
    wanted = _amounts(chance, names, most=1.5)
    refused = await _refusal(world, entity_id, wanted)
    if refused is None:
        return False
    told = f"{[str(limit) for limit in limits]}, {steps}, {wanted}: {refused}"
    assert refused.violations, told
    wait_s = refused.retry_after_seconds
    assert wait_s > 0, told
    if any(each.limit.is_concurrent for each in refused.violations):
        return True  # whoever lacks slots asks every second, since blocks may end at any moment
    if math.isinf(wait_s):
        for later_ms in (1, 90_000, HOUR_MS, 24 * HOUR_MS):
            world.clock.advance(ms=later_ms)
            assert await _refusal(world, entity_id, wanted), (told, later_ms)
        return True
    world.clock.advance(ms=round(wait_s * 1000) - 1)
    again = await _refusal(world, entity_id, wanted)
    assert again, told
    assert again.retry_after_seconds == 0.001, (told, str(again))
    world.clock.advance(ms=1)
    assert not await _refusal(world, entity_id, wanted), told
    return True


def _limits(chance: Random) -> list[Limit]:
    """Return some limits of all kinds, some of them soft."""
    soft: dict[str, bool] = {name: chance.random() < 0.15 for name in AMOUNTS}
    hold_ttl: int | None = chance.choice([20, 60, 4000, None])
    every = [
        Limit.per_minute("rpm", AMOUNTS["rpm"], soft=soft["rpm"]),
        Limit.concurrent("parallel", AMOUNTS["parallel"], 60, soft=soft["parallel"]),
        Limit.quota(
            "hourly", AMOUNTS["hourly"], per="hour", soft=soft["hourly"], hold_ttl=hold_ttl
        ),
        Limit.quota(
            "session",
            AMOUNTS["session"],
            after_first_use="40m",
            soft=soft["session"],
            hold_ttl=chance.choice([20, 60, 4000]),
        ),
        Limit.budget(
            "usd", AMOUNTS["usd"], per="day", every=1, soft=soft["usd"], hold_ttl=hold_ttl
        ),
    ]
    return chance.sample(every, chance.randint(1, 4))


def _amounts(chance: Random, names: list[str], most: float) -> dict[str, int]:
    named = chance.sample(names, chance.randint(0, len(names)))
    return {name: chance.randint(0, int(most * AMOUNTS[name])) for name in named}


async def _step(world: World, chance: Random, entity_id: str, names: list[str]) -> Any:
    """Change the bucket in one of the ways that there are; a rejected call changes nothing."""
    kind = chance.choice(["dead", "use", "use", "top up", "reset", "pause", "wait", "wait"])
    amounts = _amounts(chance, names, most=0.8)
    tokens = {name: amount for name, amount in amounts.items() if name != "parallel"}
    if kind == "wait":
        world.clock.advance(ms=chance.randrange(int(10 ** chance.uniform(3, 6.7))))
    elif kind == "pause":
        await world.repo.pause(entity_id, API, chance.choice([0, 0, 30, 300]))
    elif kind == "reset" and chance.random() < 0.3:
        await world.repo.reset_bucket(entity_id, API)
    elif kind == "top up" and tokens:
        with suppress(ValidationError):  # of a quota whose window has not begun
            await world.repo.top_up(entity_id, API, tokens)
    elif kind == "dead":
        with suppress(RateLimitExceeded):
            await world.limiter.acquire(entity_id, API, amounts).__aenter__()
    elif kind == "use":
        costs = {
            name: amount
            for name, amount in _amounts(chance, names, most=1.2).items()
            if name != "parallel"
        }
        with suppress(RateLimitExceeded):
            async with world.limiter.acquire(entity_id, API, amounts) as lease:
                await lease.settle(costs)
        amounts = costs
    return kind, amounts


async def _refusal(
    world: World, entity_id: str, amounts: dict[str, int]
) -> RateLimitExceeded | None:
    """Return the rejection of a call, or None; a call that is admitted is refunded."""
    try:
        async with world.limiter.acquire(entity_id, API, amounts):
            raise Failure
    except Failure:
        return None
    except RateLimitExceeded as refused:
        return refused

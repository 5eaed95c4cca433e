"""The scenarios whose requests are kept: what one caller does, for each kind of limit.

A script has the names of the kinds that it makes sense for. Amounts are chosen against a limit of
100 named ``tok``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

from tests.golden.player import API, ORG, POOL, USER, Play, part
from zae_limiter import Limit

Script = Callable[[Play], Awaitable[None]]

KINDS = {
    "rate": Limit.per_minute("tok", 100),
    "slow": Limit.per_day("tok", 100),
    "soft-rate": Limit.per_minute("tok", 100, soft=True),
    "slots": Limit.concurrent("tok", 100),
    "month": Limit.quota("tok", 100, per="month", zone="Europe/Berlin", thresholds=()),
    "thresholds": Limit.quota("tok", 100, per="month", thresholds=(50, 80, 100)),
    "day": Limit.quota("tok", 100, per="day", thresholds=()),
    "first-use": Limit.quota("tok", 100, after_first_use="5h", thresholds=()),
    "budget": Limit.budget("tok", "100", per="month", thresholds=()),
    "soft-quota": Limit.quota("tok", 100, per="month", soft=True, thresholds=()),
    "endless-hold": Limit.quota("tok", 100, per="week", on="mon", hold_ttl=None, thresholds=()),
}
MIXED = (
    Limit.per_minute("rpm", 60),
    Limit.per_minute("tok", 100),
    Limit.concurrent("calls", 5),
    Limit.quota("month", 1_000_000, per="month", thresholds=()),
    Limit.budget("usd", "25", per="day"),
)
RATES = ("rate", "slow", "soft-rate")
QUOTAS = ("month", "day", "first-use", "budget", "soft-quota", "endless-hold", "thresholds")
SOFT = ("soft-rate", "soft-quota")
SETTLED = RATES + QUOTAS  # what a lease can settle
HARD = tuple(kind for kind in KINDS if kind not in SOFT)


class Scenario(NamedTuple):
    topic: str
    kind: str
    limits: tuple[Limit, ...]
    script: Script


_scripts: list[tuple[Script, tuple[str, ...]]] = []


def _for(*kinds: str) -> Callable[[Script], Script]:
    def note(script: Script) -> Script:
        _scripts.append((script, kinds))
        return script

    return note


def all_scenarios() -> list[Scenario]:
    """Return every script with every kind of limit that it is for."""
    limits = {kind: (limit,) for kind, limit in KINDS.items()} | {"mixed": MIXED}
    return [
        Scenario(script.__name__.replace("_", "-"), kind, limits[kind], script)
        for script, kinds in _scripts
        for kind in kinds
    ]


# --- one call


@_for(*KINDS, "mixed")
async def one_call(play: Play) -> None:
    await play.take(tok=10)


@_for(*KINDS, "mixed")
async def three_calls(play: Play) -> None:
    for _ in range(3):
        await play.take(tok=10)
        play.clock.advance(ms=1500)


@_for(*KINDS, "mixed")
async def a_call_that_names_nothing(play: Play) -> None:
    await play.take(tok=10)
    await play.take()


@_for(*HARD, "mixed")
async def refused_and_refused_from_memory(play: Play) -> None:
    async with play.call(tok=95):
        await play.refused(tok=20)
        await play.refused(tok=20)
        play.clock.advance(seconds=3)
        await play.refused(tok=20)


@_for(*HARD)
async def more_than_the_limit(play: Play) -> None:
    await play.refused(tok=101)
    await play.take(tok=100)


@_for(*KINDS, "mixed")
async def the_block_fails(play: Play) -> None:
    await play.take(tok=10)
    await play.fail(tok=20)


@_for(*SETTLED)
async def the_block_fails_and_keeps(play: Play) -> None:
    await play.fail(tok=20, on_error="keep")


@_for(*KINDS)
async def a_bucket_that_another_process_uses(play: Play) -> None:
    other = await play.another()
    await play.take(tok=10)
    await other.take(tok=30)
    await play.take(tok=10)
    await other.take(tok=30)
    play.clock.advance(seconds=5)
    await play.take(tok=10)


@_for(*HARD)
async def a_bucket_that_another_process_empties(play: Play) -> None:
    other = await play.another()
    await play.take(tok=10)
    async with other.call(tok=90):
        await play.refused(tok=60)


# --- leases


@_for(*SETTLED, "mixed")
async def settled_below(play: Play) -> None:
    async with play.call(tok=50) as lease:
        await lease.settle(tok=12)
    await play.take(tok=10)


@_for(*SETTLED, "mixed")
async def settled_above(play: Play) -> None:
    async with play.call(tok=50) as lease:
        await lease.settle(tok=130)
    await play.settled()


@_for(*SETTLED)
async def settled_at_once(play: Play) -> None:
    async with play.call(tok=50) as lease:
        await lease.settle(tok=20, now=True)
        await lease.settle(tok=35, now=True)


@_for(*SETTLED)
async def settled_and_failed(play: Play) -> None:
    try:
        async with play.call(tok=50) as lease:
            await lease.settle(tok=20)
            raise KeyError
    except KeyError:
        await play.settled()


@_for(*SETTLED, "mixed")
async def adjusted_both_ways(play: Play) -> None:
    async with play.call(tok=50) as lease:
        await lease.adjust(tok=30)
        await lease.adjust(tok=-20)
    async with play.call(tok=10) as lease:
        await lease.adjust(tok=-5)


@_for(*SETTLED)
async def adjusted_without_a_charge(play: Play) -> None:
    async with play.call() as lease:
        await lease.adjust(tok=30)
    await play.take(tok=1)


@_for(*SETTLED, "mixed")
async def consumed_and_released(play: Play) -> None:
    async with play.call(tok=20) as lease:
        await lease.consume(tok=30)
        await play.settled()
        await lease.release(tok=15)


@_for(*SETTLED)
async def in_debt_until_it_is_repaid(play: Play) -> None:
    async with play.call(tok=50) as lease:
        await lease.settle(tok=150)
    play.clock.advance(seconds=40)
    play.clock.advance(days=32)
    await play.take(tok=5)


# --- time


@_for(*KINDS, "mixed")
async def idle_for_an_hour(play: Play) -> None:
    await play.take(tok=60)
    play.clock.advance(hours=1, seconds=1)
    await play.take(tok=30)


@_for(*KINDS, "mixed")
async def idle_for_a_day(play: Play) -> None:
    for _ in range(3):
        await play.take(tok=30)
        play.clock.advance(days=1)


@_for(*KINDS)
async def idle_for_forty_days(play: Play) -> None:
    await play.take(tok=60)
    play.clock.advance(days=40)
    await play.take(tok=60)


@_for(*SETTLED, "mixed")
async def a_block_that_ends_in_the_next_hour(play: Play) -> None:
    async with play.call(tok=50) as lease:
        play.clock.advance(hours=1)
        await lease.settle(tok=20)


@_for(*QUOTAS)
async def a_block_that_ends_in_the_next_window(play: Play) -> None:
    async with play.call(tok=50) as lease:
        play.clock.advance(days=35)
        await play.take(tok=10)
        await lease.settle(tok=80)


@_for(*QUOTAS)
async def a_hold_that_expires(play: Play) -> None:
    async with play.call(tok=50) as lease:
        play.clock.advance(hours=2)
        await play.take(tok=10)
        await lease.settle(tok=40)


# --- changes of limits


@_for(*KINDS, "mixed")
async def a_larger_limit(play: Play) -> None:
    await play.take(tok=60)
    await play.repo.set_limits(USER, [_times(play.first, 2)], API)
    await play.take(tok=35)


@_for(*KINDS)
async def a_smaller_limit_under_an_open_lease(play: Play) -> None:
    async with play.call(tok=60):
        await play.repo.set_limits(USER, [_times(play.first, 0.7)], API)
        await play.take(tok=1)
    await play.settled()


@_for(*KINDS, "mixed")
async def another_limit_beside(play: Play) -> None:
    await play.take(tok=60)
    await play.repo.set_limits(USER, [play.first, Limit.per_hour("extra", 1000)], API)
    await play.take(tok=5, extra=100)


@_for(*KINDS)
async def another_kind_of_the_same_name(play: Play) -> None:
    await play.take(tok=60)
    await play.repo.set_limits(USER, [Limit.per_hour("tok", 500)], API)
    await play.take(tok=30)
    await play.repo.set_limits(USER, [play.first], API)
    await play.take(tok=10)


@_for(*KINDS)
async def limits_of_the_call(play: Play) -> None:
    await play.take(tok=10, limits=[_times(play.first, 3)])
    await play.take(tok=10)


# --- operators


@_for(*KINDS, "mixed")
async def reset(play: Play) -> None:
    await play.take(tok=60)
    await play.repo.reset_bucket(USER, API, principal="ops")
    await play.take(tok=60)


@_for(*RATES, "month", "day", "budget", "soft-quota", "endless-hold")
async def topped_up(play: Play) -> None:
    await play.take(tok=60)
    await play.repo.top_up(USER, API, {"tok": 30}, principal="ops")
    await play.take(tok=70)


@_for("rate", "slots", "month", "budget", "mixed")
async def paused(play: Play) -> None:
    await play.take(tok=10)
    await play.repo.pause(USER, API, 60, principal="ops")
    await play.refused(tok=10)
    play.clock.advance(seconds=61)
    await play.take(tok=10)


@_for(*HARD, "mixed")
async def shadow_of_the_call(play: Play) -> None:
    await play.take(tok=70, mode="shadow")
    await play.take(tok=70, mode="shadow")


@_for("rate", "slots", "month", "budget", "mixed")
async def shadow_bypass_deny(play: Play) -> None:
    for mode in ("shadow", "bypass"):
        await play.repo.set_mode(API, mode=mode)
        async with play.call(tok=70) as lease:
            if not play.first.is_concurrent:
                await lease.adjust(tok=5)
    await play.repo.set_mode(API, mode="deny")
    await play.refused(tok=1)
    await play.repo.set_mode(API, mode=None)
    play.clock.advance(days=40)
    await play.take(tok=1)


@_for("rate", "slots", "month", "budget", "mixed")
async def deleted_and_made_again(play: Play) -> None:
    await play.repo.create_entity(USER)
    await play.take(tok=10)
    await play.repo.delete_entity(USER)
    await play.take(tok=10)


# --- parents and further resources


@_for(*KINDS, "mixed")
async def cascade(play: Play) -> None:
    await play.family()
    await play.take(tok=10)
    await play.take(tok=10)


@_for(*HARD, "mixed")
async def cascade_refused_by_the_parent(play: Play) -> None:
    await play.family()
    await play.take(tok=10)
    async with play.call(entity=ORG, tok=85):
        await play.refused(tok=20)


@_for(*SETTLED)
async def cascade_settled(play: Play) -> None:
    await play.family()
    async with play.call(tok=40) as lease:
        await lease.settle(tok=15)
    await play.fail(tok=10)


@_for(*KINDS, "mixed")
async def two_resources(play: Play) -> None:
    await play.take(resource=POOL, tok=1)  # else both resources are registered side by side
    await play.take(tok=10, also={POOL: {"tok": 20}})
    async with play.call(tok=10, also={POOL: {"tok": 20}}) as lease:
        if not play.first.is_concurrent:
            await part(lease, POOL).adjust(tok=1)


@_for(*HARD)
async def two_resources_of_which_one_refuses(play: Play) -> None:
    await play.take(resource=POOL, tok=1)
    await play.take(tok=1, also={POOL: {"tok": 1}})
    async with play.call(resource=POOL, tok=85):
        await play.refused(tok=10, also={POOL: {"tok": 20}})


def _times(limit: Limit, factor: float) -> Limit:
    """Return the limit with another amount."""
    capacity = int(limit.capacity * factor)
    refill = int(limit.refill_amount * factor)
    return replace(limit, capacity=capacity, refill_amount=refill)

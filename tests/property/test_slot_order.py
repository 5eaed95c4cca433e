"""Callers of siblings that wait for slots of their parent: in order, and no free slot stays idle.

The async tree runs on the memory engine in an event loop of simulated time: a timer costs nothing,
and looks that come too late show as time in which a slot was idle.
"""

import asyncio
import random
from typing import NamedTuple

import pytest

from sim.virtual_time import loop_clock, run_in_virtual_time
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository

SEEDS, MORE_SEEDS = range(2), range(2, 20)
WATCH_S = 0.01
PATIENT_S = 600.0


class Setting(NamedTuple):
    slots: int = 3  # of the parent
    own_slots: int | None = None  # of each child; None: as many as it likes
    children: int = 4
    callers: int = 60
    spread_s: float = 20.0
    longest_s: float = 4.0
    cancels: float = 0.0
    impatient: float = 0.0


class Caller:
    def __init__(self, number, child, arrives_s, holds_s, timeout_s):
        self.number, self.child, self.arrives_s = number, child, arrives_s
        self.holds_s, self.timeout_s = holds_s, timeout_s
        self.served_s = self.ended_s = None
        self.waits = self.was_rejected = False


class Family:
    """Children of one parent whose callers hold slots for a while."""

    def __init__(self, seed, setting):
        chance = random.Random(seed)
        self.setting, self.seed, self.chance = setting, seed, chance
        self.callers = [
            Caller(
                number,
                f"child-{chance.randrange(setting.children)}",
                number * setting.spread_s / setting.callers,
                chance.uniform(0.01, setting.longest_s),
                chance.uniform(0.1, 3) if chance.random() < setting.impatient else PATIENT_S,
            )
            for number in range(setting.callers)
        ]
        self.overtaken, self.idle_s = [], 0.0

    def run(self):
        run_in_virtual_time(self._run())
        return self

    async def _run(self):
        loop, setting = asyncio.get_running_loop(), self.setting
        async with Repository.open(url="memory://", clock=loop_clock()) as repo:
            self.limiter = RateLimiter(repo)
            own = setting.own_slots or setting.callers
            await repo.set_system_defaults([Limit.concurrent("parallel", own, lease_ttl=3600)])
            shared = Limit.concurrent("parallel", setting.slots, lease_ttl=3600)
            await repo.set_limits("parent", [shared])
            for child in range(setting.children):
                await repo.create_entity(f"child-{child}", parent_id="parent", cascade=True)
            tasks = [asyncio.create_task(self._call(each)) for each in self.callers]
            for task in tasks:
                if self.chance.random() < setting.cancels:
                    loop.call_later(self.chance.uniform(0, setting.spread_s), task.cancel)
            watch = asyncio.create_task(self._watch())
            await asyncio.gather(*tasks, return_exceptions=True)
            watch.cancel()

    async def _call(self, caller):
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(caller.arrives_s)
            caller.waits = True
            acquire = self.limiter.acquire(caller.child, "api", {}, timeout=caller.timeout_s)
            async with acquire:
                caller.waits, caller.served_s = False, loop.time()
                self._check_order(caller)
                await asyncio.sleep(caller.holds_s)
        except RateLimitExceeded:
            caller.was_rejected = True
        finally:
            caller.waits, caller.ended_s = False, loop.time()

    def in_flight(self, child=None):
        return sum(
            each.served_s is not None and each.ended_s is None
            for each in self.callers
            if child in (None, each.child)
        )

    def has_room(self, child):
        return self.setting.own_slots is None or self.in_flight(child) < self.setting.own_slots

    def _check_order(self, served):
        for each in self.callers[: served.number]:
            could_go = each.child == served.child or self.has_room(each.child)
            if each.waits and could_go:
                self.overtaken.append((each.number, served.number))

    async def _watch(self):
        """Add up the time in which a slot is free that a caller waits for."""
        while True:
            idle = self.in_flight() < self.setting.slots and any(
                each.waits and self.has_room(each.child) for each in self.callers
            )
            await asyncio.sleep(WATCH_S)
            self.idle_s += WATCH_S * idle


SETTINGS = {
    "the parent's slots": Setting(),
    "one slot": Setting(slots=1, callers=30, longest_s=1.5),
    "slots of parent and child": Setting(slots=4, own_slots=2),
    "many children": Setting(children=20, slots=5),
    "cancels": Setting(cancels=0.3, own_slots=2),
    "impatient callers": Setting(impatient=0.5, own_slots=2),
    "all at once": Setting(spread_s=0.01),
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize(
    "seeds",
    [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.slow)],
    ids=["few families", "many families"],
)
def test_no_caller_is_overtaken_and_no_free_slot_stays_idle(setting, seeds):
    for seed in seeds:
        family = Family(seed, setting).run()
        assert family.overtaken == [], f"seed {seed}"
        assert family.idle_s < 0.1, f"seed {seed}"
        assert all(each.ended_s is not None for each in family.callers)
        if not setting.impatient:
            assert not any(each.was_rejected for each in family.callers)

"""Ctrl-C at any moment of an acquire that waits, in the sync tree only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from zae_limiter._sync.limiter import SyncRateLimiter
from zae_limiter._sync.repository import SyncRepository
from zae_limiter.models.limit import Limit
from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._sync.base import Contract
from zae_limiter_contract._sync.spec import EngineSpec
from zae_limiter_contract.signal_points import SAMPLED_OR_ALL, InterruptAt, positions

CHILD, PARENT, API = "child", "parent", "api"
NEEDED = 10


class HastyClock(FakeClock):
    """Moves on by itself as soon as an acquire waits for it."""

    def listen(self, on_change: Callable[[], object]) -> None:
        super().listen(on_change)
        self.advance(ms=500)


class InterruptedWaitingContract(Contract):
    """Reserved tokens are given back, and no caller waits for an interrupted one."""

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @SAMPLED_OR_ALL
    @pytest.mark.parametrize("cascade", [False, True], ids=["alone", "cascade"])
    def test_an_interrupt_of_an_acquire_that_waits_leaves_no_charge_and_no_caller(
        self, engine_spec: EngineSpec, cascade: bool, thorough: bool
    ) -> None:
        faults = []
        with engine_spec.open(clock=HastyClock()) as repo:
            limiter = SyncRateLimiter(repo)
            repo.set_system_defaults([Limit.per_second("rps", NEEDED)])
            repo.create_entity(CHILD, parent_id=PARENT, cascade=cascade)
            for position in positions(engine_spec.capabilities, thorough=thorough):
                while limiter.available(CHILD, API)["rps"] > 0:
                    with limiter.acquire(CHILD, API, {"rps": 1}):
                        pass
                before = spent(repo)
                interrupt = InterruptAt(position)
                acquire = limiter.acquire(CHILD, API, {"rps": NEEDED}, timeout=600)
                with suppress(KeyboardInterrupt), interrupt, acquire:
                    interrupt.disarm()
                if interrupt.struck is None:
                    assert spent(repo) == [each + NEEDED for each in before]
                    break
                if spent(repo) != before or repo.charging.waiting_lines:
                    faults.append(f"{interrupt.struck}: {before} -> {spent(repo)}")
        assert not faults, "\n".join(["an interrupt at these points does harm:", *faults])


def spent(repo: SyncRepository) -> list[int]:
    """Return the net tokens of the child's bucket, and of the parent's if it is charged."""
    buckets = [repo.get_bucket(each, API, "rps") for each in (CHILD, PARENT)]
    return [(each.total_consumed_milli or 0) // 1000 for each in buckets if each is not None]

"""Ctrl-C at any moment, in the sync tree only. Cancelled tasks are the async counterpart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from zae_limiter._sync.acquire import Acquire
from zae_limiter._sync.lease import SyncLease
from zae_limiter._sync.limiter import SyncRateLimiter
from zae_limiter._sync.repository import SyncRepository
from zae_limiter.exceptions import RateLimitExceeded, ZAELimiterError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._sync.base import Contract
from zae_limiter_contract._sync.spec import EngineSpec
from zae_limiter_contract._sync.world import stored
from zae_limiter_contract.signal_points import SAMPLED_OR_ALL, InterruptAt, positions

CAPACITY = 100
TIMEOUT_S = 3.0  # also on a busy machine; only a lock that stays behind takes that long
CHILD, PARENT, API, ALL = "child", "parent", "api", "all"


def adjusting(lease: SyncLease) -> None:
    lease.adjust(rpm=7)


def consuming_and_releasing(lease: SyncLease) -> None:
    lease.consume(rpm=5)
    lease.release(rpm=3)


def failing(lease: SyncLease) -> None:
    lease.consume(rpm=5)
    raise ArithmeticError


SETTLED_AT_ONCE, SETTLED_LAST = 14, 6


# Each block with what it costs in the end, the acquire of 10 included; a failing one costs nothing.
BLOCKS: list[tuple[Callable[[SyncLease], None], int]] = [
    (adjusting, 17),
    (consuming_and_releasing, 12),
    (failing, 0),
]


def asking_too_much(limiter: SyncRateLimiter) -> None:
    with limiter.acquire(CHILD, API, {"rpm": CAPACITY + 1}):
        raise AssertionError("admitted")


def asking_what_is_there(limiter: SyncRateLimiter) -> None:
    limiter.available(CHILD, API)


CALLS: list[Callable[[SyncRateLimiter], None]] = [asking_too_much, asking_what_is_there]


class InterruptContract(Contract):
    """A lease counts wholly or not at all, and no lock stays locked."""

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @SAMPLED_OR_ALL
    @pytest.mark.parametrize(("block", "cost"), BLOCKS)
    @pytest.mark.parametrize("shape", ["alone", "cascade", "several"])
    def test_an_interrupt_at_any_point_leaves_no_half_counted_lease_and_no_lock(
        self,
        engine_spec: EngineSpec,
        clock: FakeClock,
        shape: str,
        block: Callable[[SyncLease], None],
        cost: int,
        thorough: bool,
    ) -> None:
        part = BLOCKS.index((block, cost))
        tried = positions(engine_spec.capabilities, thorough=thorough, part=part)
        faults = list(_faults(_Bench(engine_spec, clock, shape), tried, block, cost))
        assert not faults, "\n".join(["an interrupt at these points does harm:", *faults])

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @SAMPLED_OR_ALL
    def test_an_interrupt_at_any_point_keeps_what_was_settled(
        self, engine_spec: EngineSpec, clock: FakeClock, thorough: bool
    ) -> None:
        faults = []
        with _Bench(engine_spec, clock) as bench:
            for position in positions(engine_spec.capabilities, thorough=thorough):
                bench.prepare()
                interrupt, costs = InterruptAt(position), {0}
                acquire = bench.limiter.acquire(CHILD, API, {"rpm": 10})
                with suppress(KeyboardInterrupt), interrupt, acquire as lease:
                    costs.add(SETTLED_AT_ONCE)  # from here on either may be
                    lease.settle(rpm=SETTLED_AT_ONCE, now=True)
                    costs ^= {0, SETTLED_LAST}
                    lease.settle(rpm=SETTLED_LAST)
                    costs.remove(SETTLED_AT_ONCE)
                if interrupt.struck is None:
                    break
                problem = bench.silence() or bench.miscount(costs)
                if problem:
                    faults.append(f"{interrupt.struck}: {problem}")
        assert not faults, "\n".join(["an interrupt at these points does harm:", *faults])

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @SAMPLED_OR_ALL
    @pytest.mark.parametrize("call", CALLS)
    def test_an_interrupt_of_a_call_that_takes_nothing_leaves_no_charge_and_no_lock(
        self,
        engine_spec: EngineSpec,
        clock: FakeClock,
        call: Callable[[SyncRateLimiter], None],
        thorough: bool,
    ) -> None:
        faults = []
        with _Bench(engine_spec, clock) as bench:
            for position in positions(engine_spec.capabilities, thorough=thorough):
                bench.prepare()
                interrupt = InterruptAt(position)
                with suppress(KeyboardInterrupt, RateLimitExceeded), interrupt:
                    call(bench.limiter)
                if interrupt.struck is None:
                    break
                problem = bench.silence() or bench.miscount({0})
                if problem:
                    faults.append(f"{interrupt.struck}: {problem}")
        assert not faults, "\n".join(["an interrupt at these points does harm:", *faults])

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @SAMPLED_OR_ALL
    def test_an_interrupted_acquire_that_cannot_be_given_back_is_given_back_later(
        self, engine_spec: EngineSpec, thorough: bool
    ) -> None:
        clock, were_pending = _ClockThatStops(), 0
        with engine_spec.open(clock=clock) as repo:
            limiter = SyncRateLimiter(repo)
            repo.set_system_defaults([Limit.per_minute("rpm", CAPACITY)])
            with limiter.acquire(CHILD, API, {"rpm": 0}):
                pass
            for position in positions(engine_spec.capabilities, thorough=thorough):
                interrupt = InterruptAt(position, clock.stop)
                acquire = limiter.acquire(CHILD, API, {"rpm": 10})
                with suppress(KeyboardInterrupt), interrupt, acquire:
                    interrupt.disarm()
                were_pending += repo.pending_settlements
                clock.stopped = False
                stored(repo)
                kept = CAPACITY - limiter.available(CHILD, API)["rpm"]
                if interrupt.struck is None:
                    assert kept == 10
                    break
                assert kept == 0, interrupt.struck
                repo.reset_bucket(CHILD, API)
            assert repo.lost_settlements == 0
            # An engine over a network gives back at the stamp of the charge: it needs no clock.
            assert engine_spec.capabilities.infrastructure or were_pending


class _ClockThatStops(FakeClock):
    """A clock that raises once it is stopped, so that nothing can be settled."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True

    def __call__(self) -> int:
        if self.stopped:
            raise OSError("no clock")
        return super().__call__()


def _faults(
    bench: _Bench, tried: Iterator[int], block: Callable[[SyncLease], None], cost: int
) -> Iterator[str]:
    """Interrupt at one point after the other until there are no more points."""
    with bench:
        for position in tried:
            bench.prepare()
            interrupt = InterruptAt(position)
            ended = False
            with (
                suppress(KeyboardInterrupt, ArithmeticError),
                interrupt,
                bench.acquire() as lease,
            ):
                try:
                    for resource in bench.resources:
                        block(lease.resource(resource))
                finally:
                    ended = True
            if interrupt.struck is None:
                return
            silence = bench.silence()
            problem = silence or bench.miscount({0, cost} if ended else {0})
            if problem:
                yield f"{interrupt.struck}: {problem}"
            if silence and not bench.reopen():
                yield "(the store cannot be used any more: later points were not tried)"
                return


class _Bench:
    """A repository that is interrupted, and another one that checks the result."""

    def __init__(self, spec: EngineSpec, clock: FakeClock, shape: str = "alone") -> None:
        self.spec = spec
        self._clock = clock
        self._entities = [CHILD, PARENT] if shape == "cascade" else [CHILD]
        self.resources = [API, ALL] if shape == "several" else [API]

    def __enter__(self) -> _Bench:
        self._open()
        self._repo.set_system_defaults([Limit.per_minute("rpm", CAPACITY)])
        if PARENT in self._entities:
            self._repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._close()

    def _open(self) -> None:
        self._repo = self.spec.open(clock=self._clock, request_timeout=TIMEOUT_S)
        self.limiter = SyncRateLimiter(self._repo)
        self._other: SyncRepository = self._repo
        if self.spec.shared:
            self._other = self.spec.open(clock=self._clock, request_timeout=TIMEOUT_S)

    def _close(self) -> None:
        self._repo.close()
        self._other.close()

    def reopen(self) -> bool:
        """Open the repository again after a fault; False if that does not help."""
        self._close()
        return self.spec.capabilities.durable and _in_time(self._open)

    def acquire(self) -> Acquire:
        also = {ALL: {"rpm": 10}} if ALL in self.resources else None
        return self.limiter.acquire(CHILD, API, {"rpm": 10}, also=also)

    def prepare(self) -> None:
        """Fill the buckets, and empty the configuration cache."""
        self._repo.invalidate_config_cache()
        for bucket in self._buckets():
            self._repo.reset_bucket(*bucket)

    def silence(self) -> str | None:
        """Return the repository that no longer answers, if any."""
        for name, repository in (("the same", self._repo), ("another", self._other)):
            if not _in_time(partial(_acquire, repository)):
                return f"afterwards {name} repository does not answer another thread"
        return None

    def miscount(self, allowed: set[int]) -> str | None:
        """Return the tokens missing in the buckets if they are neither none nor the cost."""
        spent = [CAPACITY - self._tokens(*bucket) for bucket in self._buckets()]
        if len(set(spent)) > 1 or spent[0] not in allowed:
            return f"{spent} tokens are gone, not {' or '.join(map(str, sorted(allowed)))}"
        return None

    def _buckets(self) -> list[tuple[str, str]]:
        return [(entity_id, each) for entity_id in self._entities for each in self.resources]

    def _tokens(self, entity_id: str, resource: str) -> int:
        state = self._other.get_bucket(entity_id, resource, "rpm")
        return CAPACITY if state is None else state.tokens


def _acquire(repository: SyncRepository) -> None:
    with SyncRateLimiter(repository).acquire("bystander", API, {"rpm": 0}):
        pass


def _in_time(call: Callable[[], None], seconds: float = 10.0) -> bool:
    """Tell whether a call, in a thread of its own, succeeds within a generous time."""
    done: list[float] = []

    def run() -> None:
        with suppress(ZAELimiterError):
            call()
            done.append(time.monotonic())

    until = time.monotonic() + seconds
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(done) and done[0] < until

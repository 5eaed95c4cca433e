"""Exact also means generous: a client that takes all tokens it can gets the whole rate."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.property.strategies import periods
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock

FAIR = Fraction(99, 100)


@st.composite
def limits(draw, name):
    """Any speed, with room for at least a tenth of a second: time comes in milliseconds."""
    refill, period = draw(st.integers(1, 10**9)), draw(periods())
    least = -(-refill // (period * 10))
    capacity = draw(st.integers(least, 100 * least) | st.integers(least, 10**10))
    return Limit(name, capacity, refill, period)


class Greedy:
    """Takes all whole tokens of one limit, then waits for as many as told."""

    def __init__(self, limiter, clock, limit, batch):
        self._limiter, self._clock, self._limit = limiter, clock, limit
        self._batch = min(batch, limit.capacity)
        self.taken = 0

    def take_all(self):
        there = self._limiter.available("user-1", "gpt-4")[self._limit.name]
        with self._limiter.acquire("user-1", "gpt-4", {self._limit.name: max(0, there)}):
            self.taken += there

    def next_visit_ms(self):
        wait = self._limiter.time_until_available(
            "user-1", "gpt-4", {self._limit.name: self._batch}
        )
        return self._clock() + max(1, round(wait * 1000))


def accrued(limit, elapsed_ms):
    return Fraction(limit.refill_amount * elapsed_ms, limit.refill_period_seconds * 1000)


def run_greedily(chosen, batches, visits):
    clock = FakeClock()
    with SyncRepository.open(url="memory://", clock=clock, parallel_mode="serial") as repository:
        limiter = SyncRateLimiter(repository, clock=clock)
        repository.set_system_defaults(chosen)
        clients = [
            Greedy(limiter, clock, limit, batch)
            for limit, batch in zip(chosen, batches, strict=True)
        ]
        for client in clients:
            client.take_all()
            client.taken = 0
        start = clock()
        due = [(client.next_visit_ms(), client) for client in clients]
        for _ in range(visits):
            due.sort(key=lambda each: each[0])
            moment, client = due[0]
            clock.set(max(moment, clock()))
            client.take_all()
            due[0] = (client.next_visit_ms(), client)
        for client in clients:
            client.take_all()
        return clock() - start, [client.taken for client in clients]


@given(limits("rpm"), st.integers(1, 1000))
@settings(max_examples=10)
def test_a_greedy_client_gets_the_whole_rate(limit, batch):
    elapsed, (taken,) = run_greedily([limit], [batch], visits=200)
    exact = accrued(limit, elapsed)
    assert FAIR * exact - 1 <= taken < exact + 1


@given(st.integers(1, 50), st.integers(1, 10**6), st.integers(1, 20))
@settings(max_examples=5)
def test_a_slow_limit_beside_a_busy_one_gets_its_whole_rate(per_day, per_second, batch):
    slow, busy = Limit.per_day("rpd", per_day), Limit.per_second("rps", per_second)
    assume(batch <= per_day)
    clock = FakeClock()
    with SyncRepository.open(url="memory://", clock=clock, parallel_mode="serial") as repository:
        repository.set_system_defaults([slow, busy])
        limiter = SyncRateLimiter(repository, clock=clock)
        with limiter.acquire("user-1", "gpt-4", {"rpd": per_day}):
            start, taken = clock(), 0
        for _ in range(400):  # the busy one is used all the time, the slow one when it can be
            clock.advance(ms=10 * 60_000 + 7)
            with limiter.acquire("user-1", "gpt-4", {"rps": 1}):
                pass
            slowly = limiter.acquire("user-1", "gpt-4", {"rpd": batch})
            with suppress(RateLimitExceeded), slowly:
                taken += batch
        exact = accrued(slow, clock() - start)
        # Taken in batches at fixed times: up to a batch may still be waiting.
        assert FAIR * exact - batch - 1 <= taken < exact + 1


@pytest.mark.slow
@given(
    st.tuples(limits("rpm"), limits("tpm"), limits("rpd")),
    st.lists(st.integers(1, 1000), min_size=3, max_size=3),
)
@settings(max_examples=200)
def test_several_greedy_clients_each_get_the_whole_rate(chosen, batches):
    elapsed, taken = run_greedily(list(chosen), batches, visits=3000)
    for limit, amount in zip(chosen, taken, strict=True):
        exact = accrued(limit, elapsed)
        assert FAIR * exact - 1 <= amount < exact + 1

"""A quota is exact up to the largest debt, and no sequence of changes makes it seem full.

Debts, credits, top-ups, resets, other amounts and edges, each as large as an amount may be and
thousands of them, are compared with one number of any size. Beyond the largest debt the quota stays
overdrawn until its window ends or is reset; usage counts every token.
"""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.models.limit import MAX_TOKENS
from zae_limiter.testing import FakeClock

LARGEST_DEBT = 25 * 10**17  # tokens; amount and top-ups of a window are not larger together
CALLS = 2600  # of the largest amount: more than the largest debt
DAY_S = 86_400

steps = st.lists(
    st.one_of(
        st.tuples(st.just("debt"), st.sampled_from([0, 1, 2, 1200, 2499, 2500, 2501, 12_000])),
        st.tuples(st.just("cost"), st.sampled_from([1, 2, CALLS])),
        st.tuples(st.just("refund"), st.just(CALLS)),
        st.tuples(st.just("top up"), st.sampled_from([1, 2, 900, CALLS])),
        st.tuples(st.just("amount"), st.sampled_from([100, 10**6, MAX_TOKENS])),
        st.tuples(st.just("reset"), st.just(1)),
        st.tuples(st.just("edge"), st.just(1)),
    ),
    max_size=7,
)


class Model:
    """One quota, counted in tokens."""

    def __init__(self):
        self.amount = self.level = 100
        self.topped = self.used = 0

    def change(self, tokens):
        if self.level > -LARGEST_DEBT:
            self.level = max(self.level + tokens, -LARGEST_DEBT)

    def cost(self, tokens):
        self.change(-tokens)
        self.used += tokens

    def top_up(self, tokens):
        if self.level > -LARGEST_DEBT:
            tokens = min(tokens, max(0, LARGEST_DEBT - self.amount - self.topped))
            self.topped += tokens
            self.level += tokens

    def replace(self, amount):
        self.change(amount - self.amount)
        self.amount = amount

    def begin(self):
        self.level, self.topped = self.amount, 0


class Quota:
    """The same quota in a store, with open leases, of which some have costs."""

    def __init__(self, *, soft, first_use):
        self.clock, self.model = FakeClock(), Model()
        self.repo = SyncRepository.open(url="memory://", clock=self.clock)
        self.limiter = SyncRateLimiter(self.repo)
        self.options = {"soft": soft, "hold_ttl": None, "thresholds": ()}
        self.options |= {"after_first_use": "24h"} if first_use else {"per": "day"}
        self.amount(100)
        self.open_leases()

    def open_leases(self):
        """Open leases in the window; the first call begins it."""
        with self.limiter.acquire("user", "api", {"tokens": 1}) as lease:
            lease.settle(tokens=0)
        self.idle = [self.limiter.acquire("user", "api", {}).__enter__() for _ in range(CALLS)]
        self.costly = []
        self.debtor = self._open()

    def _open(self):
        acquire = self.limiter.acquire("user", "api", {})
        return acquire, acquire.__enter__()

    def debt(self, count):
        if self.debtor is None:
            return
        acquire, lease = self.debtor
        for _ in range(count):
            lease.adjust(tokens=MAX_TOKENS)
        acquire.__exit__(None, None, None)
        self.model.cost(count * MAX_TOKENS)
        self.debtor = self._open() if self.model.level >= 0 else None

    def cost(self, count):
        for _ in range(min(count, len(self.idle))):
            self.costly.append(self.idle.pop())
            self.costly[-1].settle(tokens=MAX_TOKENS, now=True)
            self.model.cost(MAX_TOKENS)

    def refund(self, count):
        for _ in range(min(count, len(self.costly))):
            self.idle.append(self.costly.pop())
            self.idle[-1].settle(tokens=0, now=True)
            self.model.cost(-MAX_TOKENS)

    def top_up(self, count):
        for _ in range(count):
            self.repo.top_up("user", "api", {"tokens": MAX_TOKENS})
            self.model.top_up(MAX_TOKENS)

    def amount(self, amount):
        self.repo.set_system_defaults([Limit.quota("tokens", amount, **self.options)])
        self.granted(0)  # the bucket gets the amount, also if the call is rejected
        self.model.replace(amount)

    def reset(self, _):
        if not self.costly:  # what is held is not forgiven
            self.repo.reset_bucket("user", "api")
            self.model.begin()

    def edge(self, _):
        self.clock.advance(seconds=DAY_S)
        self.model.begin()
        self.open_leases()

    def granted(self, tokens):
        try:
            with self.limiter.acquire("user", "api", {"tokens": tokens}) as lease:
                lease.settle(tokens=0)
        except RateLimitExceeded:
            return False
        return True

    def check(self, step):
        model, (state,) = self.model, self.repo.get_buckets("user", "api")
        assert self.limiter.available("user", "api")["tokens"] == model.level, step
        assert state.total_consumed_milli == model.used * 1000, step
        if not self.options["soft"]:
            for tokens in (0, model.level, model.level + 1):
                if 0 <= tokens <= MAX_TOKENS:
                    assert self.granted(tokens) == (tokens <= model.level), step


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("first_use", [False, True], ids=["calendar", "first use"])
@settings(
    max_examples=max(4, settings().max_examples // 5), phases=[Phase.explicit, Phase.generate]
)
@given(steps=steps)
def test_a_quota_is_exact_up_to_the_largest_debt(soft, first_use, steps):
    quota = Quota(soft=soft, first_use=first_use)
    try:
        for kind, count in steps:
            getattr(quota, kind.replace(" ", "_"))(count)
            quota.check((kind, count))
    finally:
        quota.repo.close()

"""Random histories of one lease, over a store that fails now and then, against three numbers.

A write that was certainly not made leaves the lease as it was, except for a cost that is known. A
write with an unknown outcome counts as made: the difference to the cost is then exactly the change
that the store did not carry out. The end of the block is different: nobody is there to handle its
error, so what was certainly not made is repeated when the store is back, and nothing else is.

``DEFECTS`` are models with one wrong rule: the histories must tell each of them from the lease.
"""

from dataclasses import dataclass, field
from uuid import uuid4

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.faulty_buckets import Fault, open_faulty
from zae_limiter import (
    Limit,
    RateLimiterUnavailable,
    RateLimitExceeded,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.exceptions import ValidationError
from zae_limiter.testing import FakeClock

NAMES = ("rpm", "tpm")
CAPACITY = 100
WRITTEN, NOT_WRITTEN, UNKNOWN_WRITTEN, UNKNOWN_NOT_WRITTEN = Fault


class Interrupted(BaseException):
    """Stands for a cancellation or Ctrl-C."""


@dataclass
class Numbers:
    """One limit of a lease: written, cost of a success, cost of a failure, and what is missing."""

    keep: bool
    written: int = 0
    success: int = 0
    failure: int = 0
    unapplied: int = 0  # of what counts as written

    def clip(self):
        if self.keep:
            self.failure = self.success
        else:
            self.failure = min(self.failure, max(0, self.success))

    def settle(self, cost):
        self.success = self.failure = cost

    def write(self, amount, fault):
        """Count a change of what is written; True if it counts as written."""
        if fault == NOT_WRITTEN and amount:
            return False
        self.written += amount
        if fault == UNKNOWN_NOT_WRITTEN:
            self.unapplied += amount
        return True


@dataclass
class Model:
    """All limits of a lease on a bucket that was full before it."""

    keep: bool
    limits: dict[str, Numbers] = field(default_factory=dict)
    numbers = Numbers

    def __post_init__(self):
        self.limits = {name: self.numbers(self.keep) for name in NAMES}

    def fits(self, amounts):
        return all(
            CAPACITY - each.written + each.unapplied >= amounts.get(name, 0)
            for name, each in self.limits.items()
        )

    def charge(self, amounts):
        for name, amount in amounts.items():
            each = self.limits[name]
            each.written += amount
            each.success += amount
            each.clip()

    def can_adjust(self, amounts):
        """Tell whether no cost would fall below zero."""
        return all(self.limits[name].success + amount >= 0 for name, amount in amounts.items())

    def adjust(self, amounts):
        for name, amount in amounts.items():
            self.limits[name].success += amount
            self.limits[name].clip()

    def release(self, amounts, fault):
        if not any(amounts.values()):
            fault = WRITTEN  # nothing to write
        for name, amount in amounts.items():
            each = self.limits[name]
            if fault != NOT_WRITTEN:
                each.write(-amount, fault)
                each.success = max(0, each.success - amount)
                each.clip()
        return fault

    def settle(self, amounts, fault, *, now):
        changes = {name: cost - self.limits[name].written for name, cost in amounts.items()}
        for name, cost in amounts.items():
            self.limits[name].settle(cost)
            if now:
                self.limits[name].write(changes[name], fault)
        return fault if now and any(changes.values()) else WRITTEN

    def end(self, fault, *, failed):
        """What is gone from each limit in the end."""
        costs = {
            name: each.failure if failed else each.success for name, each in self.limits.items()
        }
        changes = {name: costs[name] - each.written for name, each in self.limits.items()}
        return {
            name: each.written - each.unapplied + changes[name] * self.times_made(fault)
            for name, each in self.limits.items()
        }

    def times_made(self, fault):
        """How often the end of the block is made, when the store is back."""
        return 0 if fault == UNKNOWN_NOT_WRITTEN else 1


KINDS = {
    "rate": lambda name: Limit.per_minute(name, CAPACITY),
    "quota": lambda name: Limit.quota(name, CAPACITY, per="day", thresholds=()),
}
amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 60), min_size=1)
signed = st.dictionaries(st.sampled_from(NAMES), st.integers(-60, 60), min_size=1)
faults = st.sampled_from([WRITTEN] * 4 + [NOT_WRITTEN, UNKNOWN_WRITTEN, UNKNOWN_NOT_WRITTEN])
errors = st.sampled_from([RateLimiterUnavailable, Interrupted])
steps = st.one_of(
    st.tuples(st.just("consume"), amounts, st.just(WRITTEN), errors),
    st.tuples(st.just("adjust"), signed, st.just(WRITTEN), errors),
    st.tuples(st.just("release"), amounts, faults, errors),
    st.tuples(st.just("settle"), amounts, faults, errors),
    st.tuples(st.just("settle now"), amounts, faults, errors),
)


leases = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(list(KINDS)),
        "taken": amounts,
        "keep": st.booleans(),
        "history": st.lists(steps, max_size=8),
        "failed": st.booleans(),
        "fault_at_end": faults,
    }
)


@given(leases)
def test_a_lease_costs_what_its_three_numbers_say(lease):
    check_lease(Model, **lease)


def check_lease(model_type, *, kind, taken, keep, history, failed, fault_at_end):
    clock, url = FakeClock(), f"memory://{uuid4().hex}"
    repository, buckets = open_faulty(clock, url)
    other = SyncRepository.open(url=url, clock=clock)
    repository.set_system_defaults([KINDS[kind](name) for name in NAMES])
    acquire = SyncRateLimiter(repository).acquire(
        "user", "api", taken, on_error="keep" if keep else "refund"
    )
    model = model_type(keep)
    lease = acquire.__enter__()
    model.charge(taken)
    for operation, wanted, fault, error in history:
        # What a quota makes of a hold that may not be there is not the subject of these numbers.
        buckets.fault, buckets.error = WRITTEN if kind == "quota" else fault, error
        _step(lease, model, buckets, operation, wanted)
        buckets.fault = WRITTEN
        known = {name: each.success for name, each in model.limits.items()}
        assert {**dict.fromkeys(NAMES, 0), **lease.consumed} == known
    buckets.fault, buckets.error = fault_at_end, RateLimiterUnavailable
    acquire.__exit__(ArithmeticError if failed else None, None, None)  # never raises
    buckets.fault = WRITTEN
    repository.close()  # stores what is still repeated
    gone = {
        state.limit_name: (state.total_consumed_milli or 0) // 1000
        for state in other.get_buckets("user", "api")
    }
    assert gone == model.end(fault_at_end, failed=failed)


def _step(lease, model, buckets, operation, wanted):
    """Change the lease and its model alike; the lease raises what the store raised."""
    if operation == "consume":
        fits = model.fits(wanted)
        try:
            lease.consume(wanted)
        except RateLimitExceeded:
            assert not fits
        else:
            assert fits
            model.charge(wanted)
        return
    if operation == "adjust":
        if not model.can_adjust(wanted):
            with pytest.raises(ValidationError):
                lease.adjust(wanted)
            return
        lease.adjust(wanted)
        model.adjust(wanted)
        return
    if operation == "release":
        wanted = {name: min(each, model.limits[name].written) for name, each in wanted.items()}
        fault = model.release(wanted, buckets.fault)
        call = lease.release
    else:
        now = operation == "settle now"
        fault = model.settle(wanted, buckets.fault, now=now)

        def call(costs):
            lease.settle(costs, now=now)

    try:
        call(wanted)
    except (RateLimiterUnavailable, Interrupted):
        assert fault != WRITTEN
    else:
        assert fault == WRITTEN


# --- planted defects


class RefundsWhatIsKept(Numbers):
    def clip(self):
        self.failure = min(self.failure, max(0, self.success))


class CostsMoreWhenItFails(Numbers):
    def clip(self):
        if self.keep:
            self.failure = self.success


class RefundsSettledAmounts(Numbers):
    def settle(self, cost):
        self.success = cost


class WritesSettledAmountsAgain(Numbers):
    def write(self, amount, fault):
        return fault != NOT_WRITTEN


class RepeatsUnknownWrites(Numbers):
    def write(self, amount, fault):
        return super().write(amount, NOT_WRITTEN if fault == UNKNOWN_WRITTEN else fault)


class BooksWritesThatWereNotMade(Numbers):
    def write(self, amount, fault):
        return super().write(amount, UNKNOWN_NOT_WRITTEN if fault == NOT_WRITTEN else fault)


def with_numbers(kind):
    return type(kind.__name__, (Model,), {"numbers": kind})


class AddsSettledAmounts(Model):
    def settle(self, amounts, fault, *, now):
        sums = {name: cost + self.limits[name].written for name, cost in amounts.items()}
        return super().settle(sums, fault, now=now)


class ForgetsOtherAdjustments(Model):
    def settle(self, amounts, fault, *, now):
        for name in self.limits.keys() - amounts.keys():
            self.limits[name].success = self.limits[name].written
        return super().settle(amounts, fault, now=now)


class AdjustsBelowZero(Model):
    def can_adjust(self, amounts):
        return True


class ForgetsUnwrittenSettlements(Model):
    def settle(self, amounts, fault, *, now):
        before = {name: (each.success, each.failure) for name, each in self.limits.items()}
        settled = super().settle(amounts, fault, now=now)
        if settled == NOT_WRITTEN:
            for name, each in self.limits.items():
                each.success, each.failure = before[name]
        return settled


class LosesEndsThatWereNotMade(Model):
    def times_made(self, fault):
        return 0 if fault in (NOT_WRITTEN, UNKNOWN_NOT_WRITTEN) else 1


class RepeatsUnknownEnds(Model):
    def times_made(self, fault):
        return 2 if fault == UNKNOWN_WRITTEN else 1


DEFECTS = [
    with_numbers(RefundsWhatIsKept),
    with_numbers(CostsMoreWhenItFails),
    with_numbers(RefundsSettledAmounts),
    with_numbers(WritesSettledAmountsAgain),
    with_numbers(RepeatsUnknownWrites),
    with_numbers(BooksWritesThatWereNotMade),
    AddsSettledAmounts,
    AdjustsBelowZero,
    ForgetsOtherAdjustments,
    ForgetsUnwrittenSettlements,
    LosesEndsThatWereNotMade,
    RepeatsUnknownEnds,
]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_found(defect):
    @settings(max_examples=1000, phases=[Phase.generate], derandomize=True)
    @given(leases)
    def check(lease):
        check_lease(defect, **lease)

    with pytest.raises((AssertionError, ValidationError)):  # or the lease refuses the step
        check()

"""All rules on one history, and the bounds that our own limiter promises.

Excess without clock faults: 0, except for rounding (a thousandth of a token, and 2 more for each
split and merge, 1 for each change of limits). With clock faults: at most rate × the largest
difference between the clocks of hosts. The same difference, and rate × the duration of the call,
bound the shortfall of a rejection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from proof.checker.history import REJECTED, UNKNOWN, History, Terms
from proof.checker.ledger import Balance, balance, given_too_much
from proof.checker.quotas import quota_excess, windows_seen
from proof.checker.rates import Excess, Shortfall, excess, shortfalls
from proof.checker.refill import UNIT
from proof.checker.timing import (
    clock_difference_ns,
    clock_error_ns,
    longest_decision_ns,
    recovery_ns,
)

_MILLI = UNIT // 1000
_DAY_NS = 86_400 * UNIT


@dataclass(slots=True)
class Findings:
    """What the rules found in one history."""

    subject: str
    fault: str
    seed: int
    operations: int
    decisions: int
    firings: int
    excess: Excess
    shortfall: Shortfall | None
    balances: list[Balance]
    unknown: int
    longest_ns: int
    recovery_ns: int | None
    host_clocks_ns: int
    limiter_clocks_ns: int
    quota_windows: int
    broken: list[str] = field(default_factory=list)

    @property
    def missing(self) -> float:
        return sum(each.missing for each in self.balances)

    @property
    def credited_twice(self) -> float:
        return sum(each.credited_twice for each in self.balances)

    @property
    def usage_error(self) -> float:
        return sum(each.usage_error for each in self.balances)


def check(history: History) -> Findings:
    """Apply every rule; ``broken`` says which promises of our own limiter do not hold."""
    clocks_ns = clock_difference_ns(history, "host")
    error_ns = clock_error_ns(history)
    excesses = [
        quota_excess(history, terms[0], error_ns) if terms[0].is_quota else excess(history, terms)
        for terms in history.terms.values()
    ]
    wrong = _wrong_rejections(history)
    found = Findings(
        subject=history.run["subject"],
        fault=history.run["fault"],
        seed=history.run["seed"],
        operations=len(history.operations),
        decisions=len(history.decisions),
        firings=sum(each.firings for each in history.faults),
        excess=max(excesses, key=lambda each: each.billionths),
        shortfall=max(wrong, key=lambda each: each.billionths, default=None),
        balances=[balance(history, terms[-1]) for terms in history.terms.values()],
        unknown=sum(each.outcome == UNKNOWN for each in history.operations),
        longest_ns=longest_decision_ns(history),
        recovery_ns=recovery_ns(history),
        host_clocks_ns=clocks_ns,
        limiter_clocks_ns=clock_difference_ns(history, "limiter"),
        quota_windows=sum(
            windows_seen(history, terms[0])
            for terms in history.terms.values()
            if terms[0].is_quota and (terms[0].window_ns or 0) < _DAY_NS
        ),
    )
    found.broken.extend(_broken_promises(history, found, excesses, clocks_ns))
    found.broken.extend(_too_short(history, wrong, clocks_ns))
    return found


def bucket_of(series: str) -> str:
    """Return the bucket of a series."""
    return series.rpartition("/")[0]


def _wrong_rejections(history: History) -> list[Shortfall]:
    """Return the wrong rejections of all buckets whose levels are known.

    A limit that was changed in the run, or waited for, has no single level to compare with. In a
    bucket that was split, a full shard wastes its refill while another one is empty.
    """
    buckets: dict[str, list[Terms]] = {}
    for terms in history.terms.values():
        bucket = bucket_of(terms[0].series)
        is_single = len(terms) == 1 and bucket not in history.shapes
        if is_single and terms[0].is_greedy and not terms[0].is_quota:
            buckets.setdefault(bucket, []).append(terms[0])
    slack_ns = history.run.get("credits_seen_within_ns", 0)
    return [each for bucket in buckets.values() for each in shortfalls(history, bucket, slack_ns)]


def _broken_promises(
    history: History, found: Findings, excesses: list[Excess], clocks_ns: int
) -> Iterator[str]:
    for each in excesses:
        terms = history.terms[each.series]
        allowed = _MILLI * (1 + 2 * history.shapes.get(bucket_of(each.series), 0) + len(terms) - 1)
        if not terms[0].is_quota:
            allowed += max(one.refill * UNIT // one.period_ns for one in terms) * clocks_ns
        if each.billionths > allowed:
            yield (
                f"{each.series}: {each.tokens:.3f} too many in "
                f"{(each.end - each.begin) / 1e9:.3f} s (allowed: {allowed / UNIT:.3f})"
            )
    for series, terms in history.terms.items():
        if extra := given_too_much(history, series):
            yield f"{series}: a lease gave back {extra / terms[0].unit:g} more than it had taken"
    for one in found.balances:
        if one.missing:
            yield f"{one.series}: {one.missing:g} are missing"
        if one.credited_twice:
            yield f"{one.series}: {one.credited_twice:g} were credited twice"
        if one.usage_error:
            yield f"{one.series}: usage and ledger differ by {one.usage_error:g}"
    if found.recovery_ns is None:
        yield "a process was never answered again after a fault"
    if not any(each.outcome == REJECTED for each in history.decisions):
        yield "nothing was rejected, so the limits were not tried"


def _too_short(history: History, wrong: list[Shortfall], clocks_ns: int) -> Iterator[str]:
    """Tell of the worst rejection that its duration does not explain.

    A call is judged at the moment at which its write was planned.
    """
    worst, allowed, names = 0, 0, ""
    for each in wrong:
        terms = [history.terms[series][0] for series in each.rejection.amounts]
        rate = max(one.refill * UNIT // one.period_ns for one in terms)
        may_be_there = _MILLI + rate * (each.rejection.lasted_ns + clocks_ns)
        if each.billionths - may_be_there > worst - allowed:
            worst, allowed, names = each.billionths, may_be_there, ", ".join(each.rejection.amounts)
    if worst:
        yield (
            f"{names}: {worst / UNIT:.3f} were there at a rejection (allowed: {allowed / UNIT:.3f})"
        )

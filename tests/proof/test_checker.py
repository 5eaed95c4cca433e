"""The checker: it finds nothing in exact histories, and every planted defect."""

from random import Random

import pytest

from proof.checker.history import Operation, Terms, read_history
from proof.checker.rates import Amount, Credit, _worst_window
from proof.checker.refill import UNIT, Refill
from proof.checker.verdict import check
from tests.proof.simulation import BUDGET, CAPACITY, MS, RATE, SECOND, SERIES, Exact, findings

SEEDS = range(5)


class FullAgainAfterIdling(Exact):
    """Counts idle time twice: up to twice the capacity after a pause."""

    def refilled(self, level, passed_ns):
        return min(2 * CAPACITY * SECOND, level + RATE * passed_ns)


class RefillsTooFast(Exact):
    def refilled(self, level, passed_ns):
        return min(CAPACITY * SECOND, level + RATE * 11 * passed_ns // 10)


class AdmitsOneTooMany(Exact):
    def fits(self, amount):
        return self.level >= (amount - 1) * SECOND


class CreditsTwice(Exact):
    def credit(self, amount):
        super().credit(amount)
        super().credit(amount)


class LosesCredits(Exact):
    def credit(self, amount):
        pass


class RejectsTooEarly(Exact):
    def fits(self, amount):
        return self.level >= (amount + 10) * SECOND


class LosesTokens(Exact):
    def last_level(self):
        return super().last_level() - 1


class ExceedsTheQuota(Exact):
    def quota_fits(self, amount):
        return self.window_used <= 50


class CountsTwoWindows(Exact):
    """Gives a second amount in the middle of a window."""

    def quota_fits(self, amount):
        if self.now // SECOND % 4 == 0:
            self.window_used = 0
        return super().quota_fits(amount)


class MiscountsUsage(Exact):
    def counted(self):
        return self.used + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_found_in_exact_histories(seed):
    found = findings(Exact(seed))
    assert found.broken == []
    assert found.shortfall is None
    assert found.excess.tokens == 0


@pytest.mark.parametrize(
    ("defect", "steps", "words"),
    [
        (FullAgainAfterIdling, 1500, "too many"),
        (RefillsTooFast, 1500, "too many"),
        (AdmitsOneTooMany, 400, "too many"),
        (CreditsTwice, 400, "credited twice"),
        (LosesCredits, 400, "usage and ledger differ"),
        (LosesTokens, 400, "missing"),
        (ExceedsTheQuota, 1500, "budget/usd"),
        (CountsTwoWindows, 2500, "budget/usd"),
        (MiscountsUsage, 400, "usage and ledger differ"),
    ],
)
def test_a_planted_defect_is_found(defect, steps, words):
    found = [findings(defect(seed), steps) for seed in SEEDS]
    assert any(words in line for each in found for line in each.broken)


def test_rejections_with_tokens_left_are_found():
    broken = [findings(RejectsTooEarly(seed)).broken for seed in SEEDS]
    assert any("were there at a rejection" in line for lines in broken for line in lines)
    found = [findings(RejectsTooEarly(seed)).shortfall for seed in SEEDS]
    assert any(each is not None and each.tokens >= 1 for each in found)


@pytest.mark.parametrize(("lasts_ms", "is_wrong"), [(1, True), (250, False)])
def test_a_rejection_is_explained_by_its_own_duration_and_not_by_that_of_another_call(
    lasts_ms, is_wrong
):
    lines = _lines(
        *_call(1, 0, 2000, "admitted", amount=5),
        *_call(2, 3000, 3000 + lasts_ms, "rejected", amount=12),
    )
    found = check(read_history(lines))
    assert found.shortfall.tokens == CAPACITY
    assert bool(found.broken) is is_wrong


def test_a_short_rejection_is_found_beside_a_long_one_with_more_tokens():
    lines = _lines(
        *_call(1, 0, 200, "rejected", amount=12),
        *_call(2, 1000, 1000, "admitted", amount=9),
        *_call(3, 1001, 1002, "rejected", amount=11),
    )
    (line,) = check(read_history(lines)).broken
    assert line.startswith(f"{SERIES}: 11.")


def test_the_rejections_of_a_split_bucket_are_not_judged():
    rejected = list(_call(1, 0, 1, "rejected", amount=12))
    split = {"kind": "shape", "process": "p", "bucket": SERIES.rpartition("/")[0]}
    assert check(read_history(_lines(*rejected))).shortfall is not None
    found = check(read_history(_lines(*rejected, split)))
    assert found.shortfall is None
    assert found.broken == []


def test_the_worst_window_is_that_of_brute_force():
    chance = Random(7)
    for _ in range(300):
        granted = [_some_amount(chance) for _ in range(chance.randint(1, 8))]
        debts = [_some_amount(chance) for _ in range(chance.randint(0, 3))]
        returned = [_some_credit(chance) for _ in range(chance.randint(0, 4))]
        refill = Refill([Terms(SERIES, 3, 1, SECOND)], max)
        found = _worst_window(SERIES, refill, granted, debts, returned)
        expected = _brute_force(refill, granted, debts, returned)
        assert found.billionths == expected
        assert found.begin <= found.end


def _some_amount(chance):
    before = chance.randrange(20) * SECOND
    return Amount(before, before + chance.randrange(6) * SECOND, chance.randint(1, 5) * UNIT)


def _some_credit(chance):
    amount = _some_amount(chance)
    return Credit(*amount, since=chance.choice((-SECOND, amount.before)))


def _brute_force(refill, granted, debts, returned):
    begins = {each.before for each in (*granted, *debts)}
    worst = -(10**30)
    for end in {each.after for each in granted}:
        latest = max(each.before for each in granted if each.after <= end)
        for begin in begins:
            inside = [each for each in granted if begin <= each.before and each.after <= end]
            owed = [each for each in debts if begin <= each.before and each.after < latest]
            if begin > end or not (inside or owed):
                continue
            back = [
                each for each in returned if each.before <= end and each.since < begin <= each.after
            ]
            taken = sum(each.amount for each in (*inside, *owed))
            allowed = refill.capacity(begin) + refill.until(end) - refill.until(begin)
            worst = max(worst, taken - sum(each.amount for each in back) - allowed)
    return worst


def _lines(*records):
    limiter = Exact(0)
    for record in records:
        limiter.log(**record)
    return limiter.lines


def _call(number, begin_ms, end_ms, outcome, *, process="p", op="acquire", amount=1, of=None):
    yield {
        "kind": "begin",
        "op": op,
        "process": process,
        "number": number,
        "at": begin_ms * MS,
        "amounts": {SERIES: amount},
        "of": of,
    }
    if outcome is not None:
        yield {
            "kind": "end",
            "process": process,
            "number": number,
            "at": end_ms * MS,
            "outcome": outcome,
        }


def test_a_call_without_an_answer_is_unknown_and_may_have_been_charged():
    history = read_history(
        _lines(
            *_call(1, 0, 1, "admitted", amount=5),
            *_call(2, 2, None, None, amount=7),
            *_call(3, 4, 5, "rejected", amount=12),
            {"kind": "usage", "series": SERIES, "amount": 12},
        )
    )
    found = check(history)
    assert (found.unknown, found.usage_error) == (1, 0)
    assert found.shortfall is None  # 20 − 5 − 7 is below 12


def test_the_longest_decision_and_the_time_to_recovery_are_measured():
    struck = {"kind": "fault", "name": "kill", "begin": 10 * MS, "end": 20 * MS, "firings": 1}
    history = read_history(
        _lines(
            *_call(1, 0, 9, "admitted"),
            struck,
            *_call(2, 21, 22, None),
            *_call(3, 30, 70, "rejected", amount=50),
        )
    )
    found = check(history)
    assert found.longest_ns == 40 * MS
    assert found.recovery_ns == 50 * MS
    assert found.firings == 1


def test_overlapping_faults_are_one_and_a_later_process_waits_for_its_own():
    first = {"kind": "fault", "name": "full", "begin": 10 * MS, "end": 40 * MS, "firings": 1}
    second = {"kind": "fault", "name": "kill", "begin": 20 * MS, "end": 30 * MS, "firings": 1}
    third = {"kind": "fault", "name": "kill", "begin": 100 * MS, "end": 110 * MS, "firings": 1}
    history = read_history(
        _lines(
            second,
            first,
            third,
            *_call(1, 35, 36, None),
            *_call(2, 45, 46, "admitted"),
            *_call(3, 120, 121, "admitted"),
            *_call(1, 115, 130, "admitted", process="later"),
        )
    )
    assert check(history).recovery_ns == 20 * MS  # of the later process, after the third fault


def test_a_process_that_is_never_answered_again_is_found():
    struck = {"kind": "fault", "name": "kill", "begin": 10 * MS, "end": 20 * MS, "firings": 1}
    calls = [*_call(1, 0, 9, "admitted"), struck, *_call(2, 30, 31, None)]
    killed = read_history(_lines(*calls))
    assert not any("never answered" in line for line in check(killed).broken)
    went_on = read_history(_lines(*calls, {"kind": "closed", "process": "p", "lost": 0}))
    assert any("never answered" in line for line in check(went_on).broken)


def test_an_excess_within_the_difference_of_clocks_is_allowed():
    burst = [line for number in range(3) for line in _call(number, 0, 0, "admitted", amount=10)]
    rejected = list(_call(9, 0, 0, "rejected", amount=10))
    assert any("too many" in line for line in check(read_history(_lines(*burst, *rejected))).broken)
    clocks = [
        {"kind": "clock", "process": name, "at": 0, "host": off, "limiter": off}
        for name, off in (("a", 0), ("b", SECOND // 10))
    ]
    found = check(read_history(_lines(*burst, *rejected, *clocks)))
    assert found.broken == []
    assert found.excess.tokens == 10


def test_a_caller_that_leaves_may_give_back_what_it_took_before_a_window():
    """The bucket of 20 has 9 when the caller takes 5, and 20 again 160 ms later: 5 more fit."""

    def lines(outcome):
        return _lines(
            *_call(1, 0, 0, "admitted", amount=11),
            *_call(2, 0, 180, outcome, amount=5),
            *_call(3, 170, 170, "admitted", amount=20),
            *_call(4, 190, 190, "admitted", amount=7),
            *_call(5, 190, 190, "rejected", amount=99),
        )

    assert check(read_history(lines("cancelled"))).broken == []
    assert any("too many" in line for line in check(read_history(lines("rejected"))).broken)


def test_a_caller_that_leaves_gives_nothing_to_a_window_that_contains_it():
    lines = _lines(
        *_call(1, 0, 0, "admitted", amount=20),
        *_call(2, 1, 180, "cancelled", amount=5),
        *_call(3, 200, 200, "admitted", amount=23),
        *_call(4, 200, 200, "rejected", amount=99),
    )
    assert any("too many" in line for line in check(read_history(lines)).broken)


def test_a_rejected_cascade_may_have_taken_and_given_back():
    def lines(*others):
        both = dict.fromkeys((SERIES, *others), 5)
        return _lines(
            *({**each, "amounts": both} for each in _call(1, 1, 180, "rejected")),
            *_call(2, 60, 60, "admitted", amount=20),
            *_call(3, 181, 181, "admitted", amount=17),
        )

    assert check(read_history(lines("org/rpm"))).broken == []
    assert any("too many" in line for line in check(read_history(lines())).broken)


def test_a_change_of_limits_allows_either_until_it_is_over():
    def lines(at_ms):
        changed = {
            "kind": "limit",
            "series": SERIES,
            "capacity": 40,
            "refill": 100,
            "period_ns": SECOND,
            "since": [100 * MS, 200 * MS],
        }
        burst = _call(1, at_ms, at_ms, "admitted", amount=40)
        return _lines(changed, *burst, *_call(2, at_ms, at_ms, "rejected", amount=99))

    assert any("too many" in line for line in check(read_history(lines(50))).broken)
    assert check(read_history(lines(150))).broken == []
    assert check(read_history(lines(250))).broken == []


def test_a_change_of_a_killed_process_is_over_when_the_next_one_is():
    def change(capacity, begin_ms, end_ms):
        end = None if end_ms is None else end_ms * MS
        words = {"capacity": capacity, "refill": RATE, "period_ns": SECOND}
        return {"kind": "limit", "series": SERIES, **words, "since": [begin_ms * MS, end]}

    def lines(at_ms):
        burst = _call(1, at_ms, at_ms, "admitted", amount=40)
        back = change(CAPACITY, 300, None), change(CAPACITY, 300, 400)
        rejected = _call(2, at_ms, at_ms, "rejected", amount=99)
        return _lines(*back, change(40, 100, None), *burst, *rejected)

    assert any("too many" in line for line in check(read_history(lines(50))).broken)
    assert check(read_history(lines(150))).broken == []
    assert check(read_history(lines(350))).broken == []
    assert any("too many" in line for line in check(read_history(lines(450))).broken)


def test_a_hold_of_a_dead_process_costs_nothing_in_the_end():
    lines = _lines_of_a_quota(
        _call(1, 0, 1, "admitted", amount=30), _call(2, 0, 1, "rejected", amount=99), level=100
    )
    assert check(read_history(lines)).broken == []


@pytest.mark.parametrize(
    ("outcome", "level", "is_right"),
    [
        ("written", 80, True),
        ("written", 100, False),
        ("written", 70, False),
        (None, 100, True),
        (None, 80, True),
        (None, 70, False),
    ],
)
def test_what_a_dead_process_has_settled_is_used(outcome, level, is_right):
    lines = _lines_of_a_quota(
        _call(1, 0, 1, "admitted", amount=30),
        _call(2, 5, 6, outcome, op="settle", amount=-10, of=1),
        _call(3, 0, 1, "rejected", amount=99),
        level=level,
    )
    assert (check(read_history(lines)).broken == []) is is_right


def test_a_settlement_that_another_one_follows_counts_once():
    lines = _lines_of_a_quota(
        _call(1, 0, 1, "admitted", amount=30),
        _call(2, 5, 6, "written", op="settle", amount=-10, of=1),
        _call(3, 7, 8, "written", op="exit", amount=5, of=1),
        _call(4, 0, 1, "rejected", amount=99),
        level=75,
    )
    assert check(read_history(lines)).broken == []


def _lines_of_a_quota(*calls, level):
    held = {"kind": "limit", "series": "held/usd", "capacity": 100}
    return _lines(
        {**held, "window_ns": 3600 * SECOND, "hold_ttl_ns": 2 * SECOND},
        *(
            {**record, "amounts": {"held/usd": record["amounts"][SERIES]}}
            if record["kind"] == "begin"
            else record
            for call in calls
            for record in call
        ),
        {"kind": "level", "series": "held/usd", "at": 9 * SECOND, "amount": level},
    )


def test_a_lease_that_gives_more_back_than_it_took_is_found():
    lines = _lines(
        *_call(1, 0, 1, "admitted", amount=5),
        *_call(2, 2, 3, "written", op="settle", amount=2, of=1),
        *_call(3, 4, 5, "written", op="exit", amount=-8, of=1),
        *_call(4, 6, 7, "rejected", amount=99),
    )
    assert check(read_history(lines)).broken == [
        f"{SERIES}: a lease gave back 1 more than it had taken"
    ]


def test_a_hold_that_has_expired_is_free_before_its_stopped_process_ends_the_call():
    def lines(hold_ttl_s):
        held = {"kind": "limit", "series": BUDGET, "capacity": 50, "window_ns": 3600 * SECOND}
        calls = [
            *_call(1, 0, 1, "admitted", amount=50),
            *_call(2, 3000, 3001, "admitted", amount=50, process="q"),
            *_call(3, 5000, 5001, "written", op="exit", amount=-50, of=1),
            *_call(4, 5002, 5003, "rejected", amount=99),
        ]
        both = [
            {**each, "amounts": {BUDGET: each["amounts"][SERIES]}} if "amounts" in each else each
            for each in calls
        ]
        return [
            line
            for line in _lines({**held, "hold_ttl_ns": hold_ttl_s * SECOND}, *both)
            if '"window_ns": 60000000000' not in line  # the limit of the simulation
        ]

    assert not any("too many" in line for line in check(read_history(lines(2))).broken)
    assert any("too many" in line for line in check(read_history(lines(60))).broken)


def test_an_operation_knows_its_lease():
    assert Operation("exit", "p", 3, 0, {}, of=1).lease == ("p", 1)
    assert Operation("acquire", "p", 3, 0, {}).lease == ("p", 3)

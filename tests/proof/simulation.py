"""An exact limiter in made-up time that logs histories as the harness does, and broken ones.

A defect is a subclass with one wrong rule. The checker must find nothing in the histories of the
exact limiter and something in those of each defect.
"""

import json
from random import Random

from proof.checker.history import read_history
from proof.checker.verdict import check

MS = 1_000_000
SECOND = 1000 * MS
RATE, CAPACITY = 100, 20
QUOTA, WINDOW_S = 50, 60
SERIES, BUDGET = "plain/rpm", "budget/usd"


class Exact:
    """A rate with refunds and debts, and a quota with calendar windows."""

    def __init__(self, seed):
        self.chance = Random(seed)
        self.now = 10**12
        self.level = CAPACITY * SECOND  # in billionths, like the refill of a nanosecond
        self.used = self.window_used = self.used_in_all = 0
        self.window = None
        self.lines, self.numbers = [], 0
        self.log(kind="run", subject="simulated", fault="none", seed=seed, wall_ns=0)
        self.log(kind="limit", series=SERIES, capacity=CAPACITY, refill=RATE, period_ns=SECOND)
        self.log(kind="limit", series=BUDGET, capacity=QUOTA, window_ns=WINDOW_S * SECOND)

    # --- rules, each of which a defect replaces

    def refilled(self, level, passed_ns):
        return min(CAPACITY * SECOND, level + RATE * passed_ns)

    def fits(self, amount):
        return self.level >= amount * SECOND

    def credit(self, amount):
        self.level = min(CAPACITY * SECOND, self.level + amount * SECOND)
        self.used -= amount

    def quota_fits(self, amount):
        return self.window_used + amount <= QUOTA

    def last_level(self):
        return self.refilled(self.level, 5 * SECOND) // SECOND

    def lasts(self):
        return self.chance.randrange(3 * MS)

    def counted(self):
        return self.used

    # --- a history

    def log(self, **record):
        self.lines.append(json.dumps(record))

    def pass_time(self, ns):
        self.now += ns
        self.level = self.refilled(self.level, ns)
        window = self.now // (WINDOW_S * SECOND)
        if window != self.window:
            self.window, self.window_used = window, 0

    def operation(self, op, series, amount, act, of=None):
        """Begin, act at some moment, and end."""
        self.numbers += 1
        number = self.numbers
        self.log(
            kind="begin",
            op=op,
            process="p",
            number=number,
            at=self.now,
            amounts={series: amount},
            of=of,
        )
        self.pass_time(self.lasts())
        outcome = act()
        self.pass_time(self.lasts())
        if outcome is not None:
            self.log(kind="end", process="p", number=number, at=self.now, outcome=outcome)
        return number, outcome

    def take(self, amount):
        def act():
            if not self.fits(amount):
                return "rejected"
            self.level -= amount * SECOND
            self.used += amount
            return "admitted"

        return self.operation("acquire", SERIES, amount, act)

    def settle(self, lease, change):
        def act():
            if change < 0:
                self.credit(-change)
            else:
                self.level -= change * SECOND
                self.used += change
            return "written"

        self.operation("exit", SERIES, change, act, lease)

    def spend(self, amount):
        def act():
            if not self.quota_fits(amount):
                return "rejected"
            self.window_used += amount
            self.used_in_all += amount
            return "admitted"

        number, outcome = self.operation("acquire", BUDGET, amount, act)
        if outcome == "admitted":
            self.operation("exit", BUDGET, 0, lambda: "written", number)

    def step(self):
        kind = self.chance.random()
        if kind < 0.1:
            self.spend(self.chance.randint(1, 3))
            return
        if kind < 0.11:
            self.pass_time(self.chance.randrange(SECOND))
        amount = self.chance.randint(1, 6)
        number, outcome = self.take(amount)
        if outcome == "admitted":
            self.settle(number, self.chance.choice((0, 0, 0, -1, -amount, 1, 3)))

    def history(self, steps=400):
        for _ in range(steps):
            self.step()
        self.log(kind="level", series=SERIES, at=self.now + 5 * SECOND, amount=self.last_level())
        self.log(kind="usage", series=SERIES, amount=self.counted())
        return read_history(self.lines)


def findings(limiter, steps=400):
    return check(limiter.history(steps))

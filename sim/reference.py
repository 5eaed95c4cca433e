"""What a limit must hold, in exact fractions, written from the documents and without the package.

Amounts and moments are in the units of whoever asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass
class Pot:
    """One limit of a bucket: a value at a moment that grows by rate times time.

    What is above the capacity is cut when something is taken.
    """

    capacity: int
    refill: int
    period: int
    since: Fraction | float
    value: Fraction

    @property
    def terms(self) -> tuple[int, int, int]:
        return self.capacity, self.refill, self.period

    def grown(self, now: Fraction | float) -> Fraction:
        """Return the value without a bound; the clock of whoever asks may be behind."""
        return self.value + Fraction(self.refill, self.period) * Fraction(now - self.since)

    def level(self, now: Fraction | float) -> Fraction:
        """Return what can be taken."""
        return min(Fraction(self.capacity), self.grown(now))

    def set(self, value: Fraction | int, now: Fraction | float) -> None:
        self.value, self.since = Fraction(value), now

    def take(self, amount: Fraction | int, now: Fraction | float) -> None:
        """Take an amount whether or not it is there; a negative amount is given back."""
        self.set(min(self.level(now) - amount, Fraction(self.capacity)), now)

    def turn(self, terms: tuple[int, int, int], now: Fraction | float) -> None:
        """Change the limit: the level stays, and what does not fit any more is gone."""
        self.set(min(self.level(now), Fraction(terms[0])), now)
        self.capacity, self.refill, self.period = terms

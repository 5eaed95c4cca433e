"""One caller's part of a write to a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Wanted, held_milli
from zae_limiter.admission.request import Settlement


class Part(NamedTuple):
    """Amounts by stored name: of a charge all limits in force, else debts and credits (negative).

    ``admitted`` is what it adds to the count of acquires.
    """

    in_force: InForce
    amounts_milli: dict[str, int]
    is_charge: bool
    admitted: int = 0
    refreshed: bool = False

    @classmethod
    def of_settlement(cls, settlement: Settlement, admitted: int = 0) -> Part:
        return cls(settlement.in_force, settlement.amounts_milli, False, admitted)

    def within(self, image: BucketImage) -> Part:
        """Without credits for limits that the bucket does not have: those are full."""
        amounts = self.amounts_milli
        if self.is_charge or amounts.keys() <= image.limits.keys():
            return self
        known = {key: amount for key, amount in amounts.items() if key in image.limits}
        return self._replace(amounts_milli=known)

    def goes_with(self, other: Part) -> bool:
        """Whether both may be written under one condition."""
        mine, theirs = self.in_force, other.in_force
        if mine is not theirs and (mine.keys, mine.rates, mine.keep_ms, mine.version) != (
            theirs.keys,
            theirs.rates,
            theirs.keep_ms,
            theirs.version,
        ):
            return False
        return self.refreshed == other.refreshed or not (self.is_charge and other.is_charge)


class Chosen(NamedTuple):
    """Who is written, who has to wait or be refused, by position."""

    taken: list[int]
    skipped: list[int]


def fits_alone(part: Part, image: BucketImage, now_ms: int) -> bool:
    """Whether a charge fits if nothing else is written with it."""
    limits = image.limits
    for key, amount in part.amounts_milli.items():
        if held_milli(limits[key], 0, now_ms) < amount:
            return False
    return True


def choose(parts: Sequence[Part], image: BucketImage, now_ms: int) -> Chosen:
    """Credits first, then debts, then the charges that fit, in the order in which they came."""
    if len(parts) == 1 and parts[0].is_charge:
        return Chosen([0], []) if fits_alone(parts[0], image, now_ms) else Chosen([], [0])
    totals = total(part.within(image) for part in parts if not part.is_charge)
    held = {
        key: held_milli(image.limits[key], wanted.returned_milli, now_ms) - wanted.owed_milli
        for key, wanted in totals.items()
    }
    chosen = Chosen([], [])
    for position, part in enumerate(parts):
        if not part.is_charge:
            chosen.taken.append(position)
            continue
        for key in part.amounts_milli.keys() - held.keys():
            held[key] = held_milli(image.limits[key], 0, now_ms)
        if all(held[key] >= amount for key, amount in part.amounts_milli.items()):
            for key, amount in part.amounts_milli.items():
                held[key] -= amount
            chosen.taken.append(position)
        else:
            chosen.skipped.append(position)
    return chosen


def total(parts: Iterable[Part]) -> dict[str, Wanted]:
    """What several parts want of each limit."""
    parts = list(parts)
    if len(parts) == 1 and parts[0].is_charge:
        amounts = parts[0].amounts_milli
        return {key: Wanted(amount, 0, 0, True) for key, amount in amounts.items()}
    sums: dict[str, tuple[int, int, int]] = {}
    asked: set[str] = set()
    for part in parts:
        for key, amount in part.amounts_milli.items():
            charged, owed, returned = sums.get(key) or (0, 0, 0)
            if part.is_charge:
                asked.add(key)
                charged += amount
            elif amount > 0:
                owed += amount
            else:
                returned -= amount
            sums[key] = (charged, owed, returned)
    return {key: Wanted(*amounts, key in asked) for key, amounts in sums.items()}

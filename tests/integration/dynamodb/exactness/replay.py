"""A bucket's writes, replayed in exact fractions.

Written from the documents alone: a limit holds a value that grows by its rate; what is above the
capacity is cut when something is taken. A write shows what was consumed by it and what the store
holds after it; whether the latter follows from the former is what is checked here.
"""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from sim import reference
from tests.support.dynamodb.stored import limits_of, parameters, value_at
from tests.support.dynamodb.world import rate_of


def plain(key):
    """The name of a limit, also of one that a call brought beside it."""
    return key.partition("~")[0]


def number(item, name):
    return int(item[name]["N"])


def hour_of(item):
    return number(item, "h") if "h" in item else None


def began(item, key):
    """What a limit had consumed when the hour began."""
    name = "b" + item[f"p_{key}"]["S"].split(":")[3]
    return number(item, name) if name in item else 0


@dataclass
class Pot(reference.Pot):
    """One limit, in millitokens and milliseconds. ``turned`` counts changes since it was exact."""

    turned: int = 0

    @property
    def tolerance(self):
        """Rounding down at each end, and once for each change of the limits."""
        return 1 + self.turned

    def turn(self, terms, now_ms):
        super().turn(terms, now_ms)
        self.turned += 1

    def follow(self, taken_net, stored, now_ms, most_returned):
        """Whether a write may have left ``stored``, and how it is then."""
        value, slack = self.grown(now_ms), self.tolerance
        after = (self.level(now_ms) if taken_net > 0 else value) - taken_net
        if abs(stored - after) <= slack:
            self.set(after, now_ms)
            if taken_net > 0 and value > self.capacity + slack:
                self.turned = 0  # cut for certain, and so exact again
            return
        taken = self.capacity - stored  # a surplus was cut that what came back was part of
        returned = taken - taken_net
        assert taken >= 0, ("more than the capacity is left", self, stored)
        assert 0 <= returned <= most_returned, ("more came back than was returned", self, returned)
        assert value + returned >= self.capacity - slack, ("filled without reason", self, stored)
        self.set(self.capacity - taken, now_ms)
        self.turned = 0


@dataclass
class Replay:
    """One bucket from its first write on."""

    pots: dict = field(default_factory=dict)
    consumed: dict = field(default_factory=dict)
    admitted: int = 0
    writes: int = 0
    hour: int | None = None
    of_hour: int = 0  # admitted in the hour
    began: dict = field(default_factory=dict)  # consumed when the hour began
    of_earlier_hours: Counter = field(default_factory=Counter)  # of limits that are gone

    def follow(self, item, now_ms, most_returned=None):
        """The next write, as the store showed the item after it."""
        assert number(item, "wc") == self.writes + 1, "a write was not seen"
        most_returned = most_returned or Counter()
        admitted = number(item, "ac") - (self.of_hour if self.hour == hour_of(item) else 0)
        self.admitted += admitted
        inherited = self._drop_missing(item, now_ms)
        for key in limits_of(item):
            pot = self._pot(key, parameters(item, key), now_ms)
            net = number(item, f"c_{key}") - self.consumed.get(key, 0) - inherited.pop(key, 0)
            stored = value_at(item, key, now_ms)
            pot.follow(net, stored, now_ms, most_returned[plain(key)])
            if admitted > 0 and net > 0:
                assert pot.grown(now_ms) >= -pot.tolerance, ("too much was admitted", key, pot)
                assert stored >= 0, ("too much was admitted", key, pot)
        assert not inherited
        self._note(item)

    def mended(self, item, now_ms, added=None):
        """It was filled by hand, or some was ``added``."""
        assert number(item, "wc") == self.writes + 1
        for key, pot in self.pots.items():
            if added is None:
                pot.set(pot.capacity, now_ms)
            elif key in added:
                pot.set(min(pot.grown(now_ms) + added[key], pot.capacity), now_ms)
            assert abs(value_at(item, key, now_ms) - pot.grown(now_ms)) <= pot.tolerance
        self._note(item)

    def is_full(self, now_ms):
        return all(pot.grown(now_ms) >= pot.capacity - pot.tolerance for pot in self.pots.values())

    def totals(self):
        """Net consumption by name."""
        totals = Counter(self.of_earlier_hours)
        for key, consumed in self.consumed.items():
            totals[plain(key)] += consumed
        return totals

    def level(self, limit, now_ms):
        """Of a limit wherever it lives; one that is not there is full."""
        for key, pot in self.pots.items():
            if plain(key) == limit.name and pot.terms == rate_of(limit):
                return pot.level(now_ms)
        return Fraction(limit.capacity_milli)

    def _pot(self, key, rate, now_ms):
        pot = self.pots.get(key)
        if pot is None:
            pot = self.pots[key] = Pot(*rate, now_ms, Fraction(rate[0]))
        elif pot.terms != rate:
            pot.turn(rate, now_ms)
        return pot

    def _drop_missing(self, item, now_ms):
        """Limits that are gone were full; another of the name has what they consumed."""
        inherited = Counter()
        for key in self.pots.keys() - set(limits_of(item)):
            pot = self.pots.pop(key)
            assert "~" in key
            assert pot.grown(now_ms) >= pot.capacity - pot.tolerance, ("was not full", key, pot)
            heirs = [each for each in limits_of(item) if plain(each) == plain(key)]
            heir = plain(key) if plain(key) in heirs else self._heir(heirs, item, key)
            inherited[heir] += self.consumed.pop(key) - self.began.get(key, 0)
            self.of_earlier_hours[plain(key)] += self.began.get(key, 0)
        return inherited

    def _heir(self, heirs, item, key):
        gone = self.consumed[key] - self.began.get(key, 0)
        for each in heirs:
            if number(item, f"c_{each}") - self.consumed.get(each, 0) == gone:
                return each
        raise AssertionError(f"what {key} consumed is not counted any more")

    def _note(self, item):
        self.consumed = {key: number(item, f"c_{key}") for key in limits_of(item)}
        self.began = {key: began(item, key) for key in limits_of(item)}
        self.hour, self.of_hour, self.writes = hour_of(item), number(item, "ac"), number(item, "wc")

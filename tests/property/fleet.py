"""Clients with clocks of their own behind a jittering link to one server, in simulated time.

True time is the server's. Nothing sleeps: a client's boot clock and wall clock are functions of the
moment that the simulation is at.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from zae_limiter.clock import ServerClock

SECOND_NS = 1_000_000_000
START_NS = 1_800_000_000 * SECOND_NS


class Setting(NamedTuple):
    """What a fleet is like. Times in seconds; ``front_end_s`` is how far front ends differ."""

    round_trip_s: float
    host_off_s: float = 1.5
    calls_per_s: float = 10.0
    drift_ppm: float = 30.0
    front_end_s: float = 0.001
    jitter: float = 0.2  # mean of an exponential, in round trips
    odd_dates: float = 0.0  # share of answers whose Date is hours off
    clients: int = 50
    lasting_s: float = 75.0  # bounds are renewed after 60
    settled_s: float = 30.0


class Client:
    """One client: asks the server, reads its clock for every call, and never sees it go back."""

    def __init__(self, setting: Setting, chance: random.Random) -> None:
        self._setting, self._chance = setting, chance
        self._moment_s = 0.0
        # Calls are not in step with the server's seconds.
        self._start_ns = START_NS + chance.randrange(SECOND_NS)
        self._boot_at_start_ns = chance.randrange(10**15)
        self._rate = 1 + chance.uniform(-1, 1) * setting.drift_ppm / 1e6
        self._wall_off_s = chance.uniform(-1, 1) * setting.host_off_s
        self._latest_ms = 0
        self._last_date_s = 0
        self.clock = ServerClock(self._wall_ns, self._boot_ns)

    def errors_ms(self) -> list[float]:
        """Live through the simulation; the clock's error at every second after settling."""
        setting, errors = self._setting, []
        sample_s, call_s = setting.settled_s, self._pause_s()
        for _ in range(2):  # opening a repository takes two answers, before the first charge
            self._call(self._moment_s)
        while call_s < setting.lasting_s:
            while sample_s < call_s:
                self._moment_s = max(self._moment_s, sample_s)
                errors.append(self._read_ms() - (self._start_ns / 1e6 + self._moment_s * 1e3))
                sample_s += 1
            self._moment_s = max(self._moment_s, call_s)
            self._read_ms()
            self._call(self._moment_s)
            call_s += self._pause_s()
        return errors

    def _read_ms(self) -> int:
        now_ms = self.clock()
        assert now_ms >= self._latest_ms, "a stamp went back"
        self._latest_ms = now_ms
        return now_ms

    def _call(self, sent_s: float) -> None:
        sent_ns = self._boot_ns()
        server_s = sent_s + self._one_way_s()
        front_end_s = self._chance.uniform(-1, 1) * self._setting.front_end_s
        date_s = int(self._start_ns / SECOND_NS + server_s + front_end_s)
        if self._chance.random() < self._setting.odd_dates:
            date_s += self._chance.choice((-7200, 7200))
        self._moment_s = server_s + self._one_way_s()
        if date_s == self._last_date_s and sent_ns < self.clock.urgent_from_ns:
            self.clock.repeated += 1  # as DynamoClient does
            self.clock.repeated_sent_ns = sent_ns
            return
        self._last_date_s = date_s
        self.clock.observe(date_s * 1000, sent_ns, self._boot_ns())

    def _pause_s(self) -> float:
        return self._chance.uniform(0.5, 1.5) / self._setting.calls_per_s

    def _one_way_s(self) -> float:
        half_s = self._setting.round_trip_s / 2
        return half_s * (1 + self._chance.expovariate(1 / self._setting.jitter))

    def _boot_ns(self) -> int:
        return self._boot_at_start_ns + int(self._moment_s * self._rate * SECOND_NS)

    def _wall_ns(self) -> int:
        return self._start_ns + int((self._moment_s + self._wall_off_s) * SECOND_NS)


def pairs_ms(setting: Setting, seed: int = 1) -> list[float]:
    """How far the two clients that differ most are apart, at each second after settling."""
    chance = random.Random(seed)
    errors = [Client(setting, chance).errors_ms() for _ in range(setting.clients)]
    return [max(at_once) - min(at_once) for at_once in zip(*errors, strict=False)]


def worst_pair_ms(setting: Setting, seed: int = 1) -> float:
    """How far any two clients are apart at any second after settling."""
    return max(pairs_ms(setting, seed))

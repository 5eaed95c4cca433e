"""Rounds of all cases, so that a noisy minute falls on all of them alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median

from benchmarks.arrivals import LINKS_MS, ArrivalsRun, run_arrivals
from benchmarks.cases import TWO_LIMITS, Case, Contestant, Shape
from benchmarks.crowd import CROWDS, CrowdRun, run_crowds
from benchmarks.imports import ImportRun, time_import
from benchmarks.measure import Sample, take_samples
from benchmarks.writers import WritersRun, run_writers

WRITER_ROUNDS = 3
IMPORT_ROUNDS = 11
ARRIVAL_ROUNDS = 4
REMOTE_ROUNDS = 5  # at most: a server's samples are long
REMOTE_LENGTH = 4  # times that of other samples, so that there are enough waits for a 99 %

Show = Callable[[str], None]  # gets a line about each measurement before it begins


@dataclass
class Results:
    """Everything measured; samples of a case are in the order of the rounds."""

    cases: list[Case]
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    writers: dict[str, list[WritersRun]] = field(default_factory=dict)
    imports: list[ImportRun] = field(default_factory=list)
    arrivals: dict[int, list[ArrivalsRun]] = field(default_factory=dict)
    crowds: dict[str, CrowdRun] = field(default_factory=dict)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def wall_us(self, case: Case) -> float:
        return median(sample.wall_us for sample in self.samples[case.id])

    def cpu_us(self, case: Case) -> float:
        return median(sample.cpu_us for sample in self.samples[case.id])

    def per_second(self, case: Case) -> float:
        return median(sample.per_second for sample in self.samples[case.id])

    def p50_ms(self, case: Case) -> float:
        return median(sample.p50_ms for sample in self.samples[case.id])

    def p99_ms(self, case: Case) -> float:
        return median(sample.p99_ms for sample in self.samples[case.id])

    def ratio(self, case: Case, other: Case, figure: str = "wall_us") -> float:
        """How many times as long, by the median of the rounds: noise hits neighbours alike."""
        pairs = zip(self.samples[case.id], self.samples[other.id], strict=True)
        return float(median(getattr(one, figure) / getattr(two, figure) for one, two in pairs))

    def find(self, name: str, shape: Shape, scenario: str = TWO_LIMITS) -> Case | None:
        """A case, if it was measured."""
        wanted = (name, shape, scenario)
        for case in self.cases:
            if (case.contestant.name, case.shape, case.contestant.scenario) == wanted:
                return case
        return None

    def reference(self, case: Case) -> Case | None:
        """Return the case that another one is compared with."""
        peers = (each for each in self.cases if each.group == case.group)
        return next((each for each in peers if each.contestant.reference), None)


@dataclass(frozen=True)
class Plan:
    """The cases and rounds of a run."""

    cases: list[Case]
    writers: list[Contestant]
    imports: bool
    arrivals: bool
    crowds: bool
    rounds: int
    seconds: float
    writer_seconds: float

    @property
    def steps(self) -> int:
        samples = sum(self.rounds_of(group[0]) for group in self.groups)
        writers = len(self.writers) * WRITER_ROUNDS + self.imports * IMPORT_ROUNDS
        arrivals = self.arrivals * ARRIVAL_ROUNDS * len(LINKS_MS)
        return samples + writers + arrivals + self.crowds * len(CROWDS)

    @property
    def groups(self) -> list[list[Case]]:
        """Return the cases that are measured together."""
        return [list(group) for _, group in groupby(self.cases, lambda case: case.group)]

    def rounds_of(self, case: Case) -> int:
        return min(self.rounds, REMOTE_ROUNDS) if case.contestant.remote else self.rounds

    def seconds_of(self, case: Case) -> float:
        return self.seconds * REMOTE_LENGTH if case.contestant.remote else self.seconds


def run(plan: Plan, show: Show) -> Results:
    """Run the whole plan."""
    results = Results(plan.cases)
    _run_cases(plan, results, show)
    _run_server(plan, results, show)
    for contestant in plan.writers:
        for number in range(WRITER_ROUNDS):
            show(f"{contestant.writers} writing processes: {contestant.name}, {number + 1}")
            found = run_writers(contestant, plan.writer_seconds)
            results.writers.setdefault(contestant.name, []).append(found)
    if plan.imports:
        for number in range(IMPORT_ROUNDS):
            show(f"import time, {number + 1} of {IMPORT_ROUNDS}")
            results.imports.append(time_import())
    return results


def _run_cases(plan: Plan, results: Results, show: Show) -> None:
    for number in range(plan.rounds):
        for group in in_turn(plan.groups, number, plan.rounds):
            rounds = plan.rounds_of(group[0])
            if number < rounds:
                show(f"round {number + 1} of {rounds}: {group[0].group}")
                for case, sample in zip(
                    group, take_samples(group, plan.seconds_of(group[0])), strict=True
                ):
                    results.samples.setdefault(case.id, []).append(sample)


def _run_server(plan: Plan, results: Results, show: Show) -> None:
    """Measure the figures that belong to no case."""
    seconds = plan.seconds * 3 * REMOTE_LENGTH
    for number in range(ARRIVAL_ROUNDS if plan.arrivals else 0):
        for link_ms in LINKS_MS:
            show(f"100 arrivals/s, link of {link_ms} ms, {number + 1} of {ARRIVAL_ROUNDS}")
            found = run_arrivals(link_ms, seconds, number)
            results.arrivals.setdefault(link_ms, []).append(found)
    if plan.crowds:
        results.crowds = run_crowds(seconds, show)


def in_turn(groups: Sequence[list[Case]], number: int, rounds: int) -> list[list[Case]]:
    """Each round starts elsewhere, and every other one runs backwards."""
    start = len(groups) * number // rounds
    order = [*groups[start:], *groups[:start]]
    return order[::-1] if number % 2 else order

"""Rounds of all cases, so that a noisy minute falls on all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.cases import TWO_LIMITS, Case, Contestant, Shape
from benchmarks.imports import ImportRun, time_import
from benchmarks.measure import Sample, take_sample
from benchmarks.writers import WritersRun, run_writers

WRITER_ROUNDS = 3
IMPORT_ROUNDS = 11

Show = Callable[[str], None]  # told what is being measured, before it is


@dataclass
class Results:
    """Everything measured; samples of a case are in the order of the rounds."""

    cases: list[Case]
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    writers: dict[str, list[WritersRun]] = field(default_factory=dict)
    imports: list[ImportRun] = field(default_factory=list)

    def wall_us(self, case: Case) -> float:
        return median(sample.wall_us for sample in self.samples[case.id])

    def cpu_us(self, case: Case) -> float:
        return median(sample.cpu_us for sample in self.samples[case.id])

    def per_second(self, case: Case) -> float:
        return median(sample.per_second for sample in self.samples[case.id])

    def ratio(self, case: Case, other: Case) -> float:
        """How many times as long, by the median of the rounds: noise hits neighbours alike."""
        pairs = zip(self.samples[case.id], self.samples[other.id], strict=True)
        return median(one.wall_us / two.wall_us for one, two in pairs)

    def find(self, name: str, shape: Shape, scenario: str = TWO_LIMITS) -> Case | None:
        """A case, if it was measured."""
        wanted = (name, shape, scenario)
        for case in self.cases:
            if (case.contestant.name, case.shape, case.contestant.scenario) == wanted:
                return case
        return None

    def reference(self, case: Case) -> Case | None:
        """What a case is compared with."""
        peers = (each for each in self.cases if each.group == case.group)
        return next((each for each in peers if each.contestant.reference), None)


@dataclass(frozen=True)
class Plan:
    """What is to be run."""

    cases: list[Case]
    writers: list[Contestant]
    imports: bool
    rounds: int
    seconds: float
    writer_seconds: float

    @property
    def steps(self) -> int:
        samples = len(self.cases) * self.rounds
        return samples + len(self.writers) * WRITER_ROUNDS + self.imports * IMPORT_ROUNDS


def run(plan: Plan, show: Show) -> Results:
    """Run the whole plan."""
    results = Results(plan.cases)
    for number in range(plan.rounds):
        for case in in_turn(plan.cases, number, plan.rounds):
            show(f"round {number + 1} of {plan.rounds}: {case.id}")
            results.samples.setdefault(case.id, []).append(take_sample(case, plan.seconds))
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


def in_turn(cases: Sequence[Case], number: int, rounds: int) -> list[Case]:
    """Each round starts elsewhere, and every other one runs backwards; neighbours stay so."""
    start = len(cases) * number // rounds
    order = [*cases[start:], *cases[:start]]
    return order[::-1] if number % 2 else order

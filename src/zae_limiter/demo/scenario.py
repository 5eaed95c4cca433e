"""Who calls in the demo: tenants (projects), their keys, their limits and their habits."""

from __future__ import annotations

from dataclasses import dataclass

from zae_limiter.models.limit import Limit

RESOURCE = "gpt-4"

NAMES = ("acme", "globex", "initech", "hooli", "stark", "wayne", "tyrell", "umbrella")


@dataclass(frozen=True, slots=True)
class Habit:
    """How the callers of one key behave."""

    calls_per_second: int
    tokens: int  # what a call costs on average
    guess: float  # what its caller expects it to cost, as a multiple of the truth
    patient: bool = False  # waits as long as the rejection says
    bursts: bool = False  # calls only part of the time


STEADY = Habit(calls_per_second=18, tokens=90, guess=1.2, patient=True)
GREEDY = Habit(calls_per_second=90, tokens=60, guess=1.1)
CAUTIOUS = Habit(calls_per_second=45, tokens=160, guess=1.6)  # gives much back
NAIVE = Habit(calls_per_second=35, tokens=200, guess=0.6)  # runs into debt
BURSTY = Habit(calls_per_second=120, tokens=50, guess=1.3, bursts=True)
HABITS = (STEADY, GREEDY, CAUTIOUS, NAIVE, BURSTY)

# Bursts are short, so that limits bite within the first second.
KEY_LIMITS = (
    Limit.per_minute("rpm", 1_800, burst=30),
    Limit.per_minute("tpm", 180_000, burst=4_000),
)
BATCH_LIMITS = (
    Limit.per_minute("rpm", 1_200, burst=40),
    Limit.per_minute("tpm", 150_000, burst=6_000),
)
SMALL_PROJECT = (
    Limit.per_minute("rpm", 2_100, burst=50),
    Limit.per_minute("tpm", 210_000, burst=7_000),
)
LARGE_PROJECT = (
    Limit.per_minute("rpm", 3_600, burst=80),
    Limit.per_minute("tpm", 360_000, burst=12_000),
)


@dataclass(frozen=True, slots=True)
class Key:
    """A child entity; each of its calls is charged to its project as well."""

    entity_id: str
    name: str
    parent_id: str
    limits: tuple[Limit, ...]
    habit: Habit


@dataclass(frozen=True, slots=True)
class Project:
    """A tenant."""

    entity_id: str
    limits: tuple[Limit, ...]
    keys: tuple[Key, ...]

    @property
    def name(self) -> str:
        return self.entity_id

    @property
    def parent_id(self) -> None:
        return None


Member = Project | Key


def projects(tenants: int) -> tuple[Project, ...]:
    """The first so many tenants, always the same."""
    return tuple(_project(index) for index in range(tenants))


def members(cast: tuple[Project, ...]) -> tuple[Member, ...]:
    """Every entity, projects before their keys."""
    found: list[Member] = []
    for project in cast:
        found += [project, *project.keys]
    return tuple(found)


def _project(index: int) -> Project:
    name = NAMES[index] if index < len(NAMES) else f"tenant-{index + 1}"
    web = Key(f"{name}-web", "web", name, KEY_LIMITS, HABITS[index % len(HABITS)])
    batch = Key(f"{name}-batch", "batch", name, BATCH_LIMITS, HABITS[(index + 1) % len(HABITS)])
    return Project(name, LARGE_PROJECT if index % 2 else SMALL_PROJECT, (web, batch))

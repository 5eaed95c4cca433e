"""The demo's tenants (projects), with their keys, limits and calling habits."""

from __future__ import annotations

from dataclasses import dataclass

from zae_limiter.models.limit import Limit

RESOURCE = "gpt-4"

NAMES = ("acme", "globex", "initech", "hooli", "stark", "wayne", "tyrell", "umbrella")


@dataclass(frozen=True, slots=True)
class Habit:
    """How the callers of one key behave."""

    calls_per_second: int
    tokens: int  # average cost of a call
    estimate_factor: float  # estimated cost as a multiple of the true cost
    patient: bool = False  # waits for retry_after_seconds when rejected
    bursts: bool = False  # calls during bursts only


STEADY = Habit(calls_per_second=18, tokens=90, estimate_factor=1.2, patient=True)
GREEDY = Habit(calls_per_second=90, tokens=60, estimate_factor=1.1)
CAUTIOUS = Habit(calls_per_second=45, tokens=160, estimate_factor=1.6)  # gives back a lot
NAIVE = Habit(calls_per_second=35, tokens=200, estimate_factor=0.6)  # runs into debt
BURSTY = Habit(calls_per_second=120, tokens=50, estimate_factor=1.3, bursts=True)
HABITS = (STEADY, GREEDY, CAUTIOUS, NAIVE, BURSTY)

# Capacities are small against the rates, so that limits reject calls within the first second.
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
class ApiKey:
    """A child entity; its calls are charged to its project as well."""

    entity_id: str
    name: str
    parent_id: str
    limits: tuple[Limit, ...]
    habit: Habit


@dataclass(frozen=True, slots=True)
class Project:
    """A tenant: the parent entity of its keys."""

    entity_id: str
    limits: tuple[Limit, ...]
    keys: tuple[ApiKey, ...]

    @property
    def name(self) -> str:
        return self.entity_id

    @property
    def parent_id(self) -> None:
        return None


DemoEntity = Project | ApiKey


def make_projects(tenants: int) -> tuple[Project, ...]:
    """Return that many tenants, the same ones in every run."""
    return tuple(_project(index) for index in range(tenants))


def all_entities(projects: tuple[Project, ...]) -> tuple[DemoEntity, ...]:
    """Return projects and keys, projects before their keys."""
    entities: list[DemoEntity] = []
    for project in projects:
        entities += [project, *project.keys]
    return tuple(entities)


def _project(index: int) -> Project:
    name = NAMES[index] if index < len(NAMES) else f"tenant-{index + 1}"
    web = ApiKey(f"{name}-web", "web", name, KEY_LIMITS, HABITS[index % len(HABITS)])
    batch = ApiKey(f"{name}-batch", "batch", name, BATCH_LIMITS, HABITS[(index + 1) % len(HABITS)])
    return Project(name, LARGE_PROJECT if index % 2 else SMALL_PROJECT, (web, batch))

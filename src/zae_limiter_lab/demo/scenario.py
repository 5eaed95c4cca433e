"""The demo's tenants (projects) and their keys: limits and calling habits."""

from __future__ import annotations

from dataclasses import dataclass

from zae_limiter.models.limit import Limit

RESOURCE = "gpt-4"
NAMES = ("acme", "globex", "initech", "hooli", "stark", "wayne", "tyrell", "umbrella")

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
class Habit:
    """How the callers of one key behave."""

    calls_per_second: int
    tokens: int  # average cost of a call
    estimate_factor: float  # estimated cost as a multiple of the true cost
    is_patient: bool = False  # waits for retry_after_seconds when rejected


STEADY = Habit(calls_per_second=18, tokens=90, estimate_factor=1.2, is_patient=True)
GREEDY = Habit(calls_per_second=90, tokens=60, estimate_factor=1.1)
CAUTIOUS = Habit(calls_per_second=45, tokens=160, estimate_factor=1.6)  # gives back a lot
NAIVE = Habit(calls_per_second=35, tokens=200, estimate_factor=0.6)  # runs into debt
HABITS = (STEADY, GREEDY, CAUTIOUS, NAIVE)


@dataclass(frozen=True, slots=True)
class DemoEntity:
    """A project, or a key: a child whose calls are charged to its project as well."""

    entity_id: str
    name: str
    limits: tuple[Limit, ...]
    parent_id: str | None = None
    habit: Habit | None = None  # of the callers; a project has none of its own


def make_entities(tenants: int) -> list[DemoEntity]:
    """Return that many projects, each before its two keys; the same ones in every run."""
    entities = []
    for index in range(tenants):
        name = NAMES[index] if index < len(NAMES) else f"tenant-{index + 1}"
        habit, other = HABITS[index % len(HABITS)], HABITS[(index + 1) % len(HABITS)]
        entities += [
            DemoEntity(name, name, LARGE_PROJECT if index % 2 else SMALL_PROJECT),
            DemoEntity(f"{name}-web", "web", KEY_LIMITS, name, habit),
            DemoEntity(f"{name}-batch", "batch", BATCH_LIMITS, name, other),
        ]
    return entities

"""The cases that are measured: a contestant in a shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

# More than any contestant reaches, so that only the scenario of rejections rejects.
REQUESTS_PER_MINUTE = 10**7
TOKENS_PER_MINUTE = 10**9
TOKENS = 100

TWO_LIMITS = "two limits"  # the scenario unless a contestant names another

Acquire = Callable[[str], bool]
AsyncAcquire = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True)
class Setting:
    """The arguments of a contestant; the folder is empty and goes away with the sample."""

    keys: tuple[str, ...]
    folder: Path


Open = Callable[[Setting], AbstractContextManager[Acquire]]
OpenAsync = Callable[[Setting], AbstractAsyncContextManager[AsyncAcquire]]


@dataclass(frozen=True)
class Shape:
    """How the acquires come in. Without tasks they are sync calls."""

    keys: int = 1
    tasks: int = 0
    threads: int = 1

    @property
    def label(self) -> str:
        parts = ["async" if self.tasks else "sync"]
        if self.tasks:
            parts.append(_plural(self.tasks, "task"))
        if self.threads > 1:
            parts.append(_plural(self.threads, "thread"))
        return ", ".join([*parts, _plural(self.keys, "key")])


SYNC = Shape()
SYNC_MANY = Shape(keys=1000)
SYNC_THREADS = Shape(threads=4)
ASYNC = Shape(tasks=1)
ASYNC_MANY = Shape(tasks=1, keys=1000)
ASYNC_TASKS = Shape(tasks=50)
ASYNC_TASKS_MANY = Shape(tasks=50, keys=1000)
ASYNC_CROWD = Shape(tasks=200)
SYNC_TEN = Shape(threads=10)
ALL_SHAPES = (
    SYNC,
    SYNC_MANY,
    SYNC_THREADS,
    ASYNC,
    ASYNC_MANY,
    ASYNC_TASKS,
    ASYNC_TASKS_MANY,
)


@dataclass(frozen=True)
class Contestant:
    """A limiter on a store, doing one thing.

    Contestants of one family and scenario are compared; the ``reference`` is what the others are
    shown as multiples of. ``open`` and ``open_async`` are module-level functions, so that other
    processes can be told to call them.
    """

    name: str
    family: str
    open: Open
    open_async: OpenAsync | None = None
    shapes: tuple[Shape, ...] = ALL_SHAPES
    scenario: str = TWO_LIMITS
    grants: bool = True
    reference: bool = False
    writers: int = 0  # so many processes at once on one store
    remote: bool = False  # on a server: waits are measured too, and samples are longer


@dataclass(frozen=True)
class Case:
    """One line of the result."""

    contestant: Contestant
    shape: Shape

    @property
    def group(self) -> str:
        """Cases of one group are compared."""
        return f"{self.contestant.family}, {self.contestant.scenario}, {self.shape.label}"

    @property
    def id(self) -> str:
        return f"{self.contestant.name}, {self.contestant.scenario}, {self.shape.label}"


def cases_of(contestants: list[Contestant]) -> list[Case]:
    """Return every contestant in each of its shapes; compared ones stand side by side."""
    cases = [Case(contestant, shape) for contestant in contestants for shape in contestant.shapes]
    groups = list(dict.fromkeys(case.group for case in cases))
    return sorted(cases, key=lambda case: groups.index(case.group))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

"""Print the modules and functions that one acquire visits, in the order of their first call.

    python tools/walk.py                                  a warm acquire on DynamoDB
    python tools/walk.py --engine sqlite --case rejected   another engine, another case
    python tools/walk.py --tree sync --summary            one line: modules and calls

Cases: `warm` (everything is cached), `rejected` (the bucket is empty), `cascading` (the parent is
charged, too), `first` (nothing is cached and no bucket exists). DynamoDB is the server that the
tests use; `make tools` installs it.

A call is a function of this package being entered; a coroutine that resumes is not entered again,
and comprehensions belong to the function that holds them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "zae_limiter"
ENGINES = ("memory", "sqlite", "dynamodb")
CASES = ("warm", "rejected", "cascading", "first")
WARM_UP = 5  # acquires before the one that is shown: caches fill, connections open
_INNER = frozenset({"<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})

Repository = Any  # of either tree
Limiter = Any


class Call(NamedTuple):
    """One function that was entered."""

    module: str
    function: str


class Walk:
    """Records calls between ``start`` and ``stop``, in every thread that begins after it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._frames: set[FrameType] = set()  # kept alive: a freed frame's address is used again
        self._is_recording = False
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def start(self) -> None:
        self._is_recording = True

    def stop(self) -> None:
        self._is_recording = False

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if not self._is_recording or event != "call":
            return
        if frame.f_code.co_name in _INNER or frame in self._frames:
            return
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return
        self._frames.add(frame)
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        self.calls.append(Call(module, frame.f_code.co_qualname))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_KeepLayout)
    parser.add_argument("--engine", choices=ENGINES, default="dynamodb")
    parser.add_argument("--case", choices=CASES, default="warm")
    parser.add_argument("--tree", choices=("async", "sync"), default="async")
    parser.add_argument("--summary", action="store_true", help="print only the counts")
    options = parser.parse_args(arguments)
    calls = walk(options.engine, options.case, options.tree)
    if not options.summary:
        print("\n".join(report(calls)))
    print(f"{len({call.module for call in calls})} modules, {len(calls)} calls")


def walk(engine: str, case: str, tree: str) -> list[Call]:
    """Make one acquire on an engine and return its calls."""
    recorded = Walk()
    with _store(engine) as url:
        if tree == "async":
            asyncio.run(_acquire_async(url, case, recorded))
        else:
            _acquire_sync(url, case, recorded)
    return recorded.calls


def report(calls: list[Call]) -> Iterator[str]:
    """Yield a line per module with the functions that were called there."""
    modules: dict[str, dict[str, int]] = {}
    for call in calls:
        functions = modules.setdefault(call.module, {})
        functions[call.function] = functions.get(call.function, 0) + 1
    width = max(len(module) for module in modules)
    for module, functions in modules.items():
        named = [name + (f" ×{count}" if count > 1 else "") for name, count in functions.items()]
        yield f"{module:<{width}}  {sum(functions.values()):>3}  {', '.join(named)}"


class _KeepLayout(argparse.RawDescriptionHelpFormatter):
    """Print the module's docstring as it is."""


@contextmanager
def _store(engine: str) -> Iterator[str]:
    if engine == "memory":
        yield "memory://"
    elif engine == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/walk.db"
    else:
        sys.path.insert(0, str(ROOT))
        import os

        from tests.support.dynamodb import DynamoServer
        from tests.support.dynamodb.tables import store_url

        os.environ.setdefault("AWS_ACCESS_KEY_ID", "walk")
        os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "walk")
        with DynamoServer() as server:
            yield store_url("walk", server.url)


def _limits(case: str) -> list[Any]:
    from zae_limiter import Limit

    rate = WARM_UP if case == "rejected" else 10_000
    return [Limit.per_day("rpd", rate), Limit.per_minute("tpm", 100_000)]


CONSUME = {"rpd": 1, "tpm": 100}


async def _acquire_async(url: str, case: str, recorded: Walk) -> None:
    from zae_limiter import RateLimiter, RateLimitExceeded, Repository

    async with await Repository.open(url=url, provision="table") as repository:
        limiter = RateLimiter(repository=repository)
        await limiter.set_system_defaults(_limits(case))
        if case == "cascading":
            await limiter.create_entity("project")
            await limiter.create_entity("key", parent_id="project", cascade=True)
        for _ in range(0 if case == "first" else WARM_UP):
            async with limiter.acquire("key", "api", CONSUME):
                pass
        await repository.list_resources()  # waits for background writes
        recorded.start()
        try:
            async with limiter.acquire("key", "api", CONSUME):
                recorded.stop()
        except RateLimitExceeded:
            pass
        finally:
            recorded.stop()


def _acquire_sync(url: str, case: str, recorded: Walk) -> None:
    from zae_limiter import RateLimitExceeded, SyncRateLimiter, SyncRepository

    with SyncRepository.open(url=url, provision="table") as repository:
        limiter = SyncRateLimiter(repository=repository)
        limiter.set_system_defaults(_limits(case))
        if case == "cascading":
            limiter.create_entity("project")
            limiter.create_entity("key", parent_id="project", cascade=True)
        for _ in range(0 if case == "first" else WARM_UP):
            with limiter.acquire("key", "api", CONSUME):
                pass
        repository.list_resources()
        recorded.start()
        try:
            with limiter.acquire("key", "api", CONSUME):
                recorded.stop()
        except RateLimitExceeded:
            pass
        finally:
            recorded.stop()


if __name__ == "__main__":
    main()

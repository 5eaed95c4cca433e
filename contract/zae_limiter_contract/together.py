"""Many calls at once, in tasks, threads or processes. ``gather`` is the sync ``agather``."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

CHILD_TIMEOUT_S = 60


async def agather(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run each call in a task of its own; return the results in order."""
    return list(await asyncio.gather(*(call() for call in calls)))


def gather(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run each call in a thread of its own, all started together; return results in order."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        gate.wait(CHILD_TIMEOUT_S)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]


def in_processes(module: str, jobs: Sequence[Any]) -> list[str]:
    """Run a module once for each job, all started together; return the output of each.

    The module reads its pickled job from stdin, prints "ready", and waits for a line.
    """
    children = [start_process(module, job) for job in jobs]
    try:
        for child in children:
            line = _pipe(child.stdout).readline()
            assert line == b"ready\n", line
        answers = []
        for child in children:
            _pipe(child.stdin).write(b"go\n")
            _pipe(child.stdin).flush()
        for child in children:
            answers.append(child.communicate(timeout=CHILD_TIMEOUT_S)[0].decode())
            assert child.returncode == 0
        return answers
    finally:
        for child in children:
            child.kill()
            child.communicate()


def in_killed_process(module: str, job: Any) -> None:
    """Run a module as ``in_processes`` does, and kill it (SIGKILL) when it is ready."""
    child = start_process(module, job)
    try:
        line = _pipe(child.stdout).readline()
        assert line == b"ready\n", line
    finally:
        child.kill()
        child.communicate()


def start_process(module: str, job: Any) -> subprocess.Popen[bytes]:
    """Start a child process with its job and with the same import path as this process."""
    path = os.pathsep.join(filter(None, sys.path))
    child = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    _pipe(child.stdin).write(pickle.dumps(job))
    _pipe(child.stdin).flush()
    return child


def _pipe(pipe: T | None) -> T:
    assert pipe is not None
    return pipe

"""Calls that no caller waits for."""

import asyncio
import os
import threading

import pytest

from zae_limiter.runtime.background import ABackground, Background
from zae_limiter.runtime.parallel import Parallel

PATIENCE_S = 30


async def test_a_task_goes_on_beside_its_caller():
    background, may_end, done = ABackground(Parallel("serial")), asyncio.Event(), []

    async def call():
        await may_end.wait()
        done.append(1)

    background.start(call)
    await background.wait(0.01)
    assert (background.running, done) == (1, [])
    may_end.set()
    await background.wait(PATIENCE_S)
    assert (background.running, done) == (0, [1])


def test_tasks_of_a_loop_that_was_closed_are_not_waited_for():
    background = ABackground(Parallel("serial"))
    loop = asyncio.new_event_loop()

    async def start():
        background.start(asyncio.Event().wait)
        [left] = asyncio.all_tasks() - {asyncio.current_task()}
        return left

    task = loop.run_until_complete(start())
    assert background.running == 1
    loop.close()
    task._log_destroy_pending = False  # noqa: SLF001 - it is, on purpose
    assert background.running == 0
    asyncio.run(background.wait(PATIENCE_S))


def test_a_thread_goes_on_beside_its_caller():
    parallel, may_end, done = Parallel("threadpool"), threading.Event(), []
    background = Background(parallel)

    def call():
        assert may_end.wait(PATIENCE_S)
        done.append(threading.get_ident())

    background.start(call)
    background.wait(0.01)
    assert (background.running, done) == (1, [])
    may_end.set()
    background.wait(PATIENCE_S)
    parallel.close()
    assert background.running == 0
    assert done != [threading.get_ident()]


def test_without_threads_a_call_runs_at_once():
    background, done = Background(Parallel("serial")), []
    background.start(lambda: done.append(1))
    assert (background.running, done) == (0, [1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_does_not_wait_for_threads_of_its_parent():
    parallel, may_end = Parallel("threadpool"), threading.Event()
    background = Background(parallel)
    background.start(lambda: may_end.wait(PATIENCE_S) and None)
    child = os.fork()
    if child == 0:
        os._exit(background.running)
    may_end.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    background.wait(PATIENCE_S)
    parallel.close()

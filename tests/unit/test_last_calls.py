"""Calls that outlive their owners: who closes a store waits for them, but not for ever."""

import asyncio
import threading
from time import monotonic

from zae_limiter.runtime.background import ALastCalls, LastCalls

LONG_S = 30.0


async def test_a_call_that_was_just_started_is_waited_for():
    ended = []

    async def call():
        await asyncio.sleep(0.05)
        ended.append(True)

    assert ALastCalls().run(call)
    await ALastCalls.wait(LONG_S)
    assert ended == [True]


async def test_a_call_that_hangs_is_left_alone():
    release = asyncio.Event()
    ALastCalls().run(release.wait)
    began_s = monotonic()
    await ALastCalls.wait(0.05)
    assert monotonic() - began_s < LONG_S / 2
    release.set()
    await ALastCalls.wait(LONG_S)


def test_a_thread_that_was_just_started_is_waited_for():
    go_on, ended = threading.Event(), []

    def call():
        go_on.wait(LONG_S)
        LastCalls.wait(LONG_S)  # not for itself
        ended.append(True)

    assert LastCalls().run(call)
    threading.Timer(0.05, go_on.set).start()
    LastCalls.wait(LONG_S)
    assert ended == [True]


def test_a_thread_that_hangs_is_left_alone():
    release = threading.Event()
    LastCalls().run(release.wait)
    began_s = monotonic()
    LastCalls.wait(0.05)
    assert monotonic() - began_s < LONG_S / 2
    release.set()
    LastCalls.wait(LONG_S)

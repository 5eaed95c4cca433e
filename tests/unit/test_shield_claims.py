"""Which thread runs a shielded call, and what is left of one whose caller was interrupted."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref

import pytest

from zae_limiter.runtime.finishing import _Job, ashield

SOON_S = 5


def _ends(work):
    """Run it in a daemon thread; return whether it ends in time."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SOON_S)
    return not thread.is_alive()


@pytest.fixture
def ran():
    return []


@pytest.fixture
def job(ran):
    return _Job(lambda: ran.append("once"))


# --- claims


def test_an_interrupt_right_after_the_callers_claim_does_not_make_it_wait_for_ever(job, ran):
    """The first look has claimed the job and was interrupted before it could say so."""
    assert job.claim("caller")
    assert _ends(job.wait_or_withdraw)
    job.run()
    assert ran == []


def test_a_shield_may_be_claimed_again_after_it_is_done(job, ran):
    for _ in range(3):
        assert _ends(job.wait_or_withdraw)
    job.run()
    assert ran == []


def test_what_the_runner_has_claimed_is_seen_through(ran):
    may_end, began = threading.Event(), threading.Event()

    def work():
        began.set()
        assert may_end.wait(SOON_S)
        ran.append("once")

    job = _Job(work)
    runner = threading.Thread(target=job.run)
    runner.start()
    assert began.wait(SOON_S)
    caller = threading.Thread(target=job.wait_or_withdraw)
    caller.start()
    caller.join(0.1)
    assert caller.is_alive()
    may_end.set()
    caller.join(SOON_S)
    assert not caller.is_alive()
    assert ran == ["once"]
    runner.join()


def test_what_has_ended_is_not_waited_for(job, ran):
    job.run()
    assert _ends(job.wait_or_withdraw)
    assert ran == ["once"]
    assert job.outcome() is None


def test_the_first_claim_is_the_only_one(job):
    assert job.claim("runner")
    assert not job.claim("caller")
    assert job.claim("runner")


# --- in a process of its own: what goes wrong there can not be interrupted


def _said_by(code):
    """What a program prints before it ends, which it must."""
    program = [sys.executable, "-c", code]
    done = subprocess.run(program, check=True, capture_output=True, text=True, timeout=20)
    assert done.stderr == ""
    return done.stdout.split()


TWO_INTERRUPTS = """
import sys
from zae_limiter.runtime.finishing import shield

struck, ran = [], []

def before_the_job_is_handed_over(frame, event, arg):
    if event == "call" and frame.f_code.co_name == "_hand_to_runner":
        struck.append("first")
        raise KeyboardInterrupt

def after_a_claim(frame, event, arg):
    if event == "return" and struck:
        struck.append("second")
        raise KeyboardInterrupt
    return after_a_claim

shield(lambda: None)  # the thread that runs jobs stands
sys.setprofile(before_the_job_is_handed_over)
sys.settrace(lambda frame, *_: after_a_claim if frame.f_code.co_name == "claim" else None)
try:
    shield(lambda: ran.append("ran"))
except KeyboardInterrupt:
    print("interrupted", *struck, *ran)
print(shield(lambda: "usable"))
"""


def test_a_second_interrupt_while_the_first_is_seen_to_does_not_hang():
    assert _said_by(TWO_INTERRUPTS) == ["interrupted", "first", "second", "usable"]


def test_a_shield_works_while_the_process_ends():
    code = """
import atexit
from zae_limiter.runtime.finishing import shield

atexit.register(lambda: print(shield(lambda: "ran")))
"""
    assert _said_by(code) == ["ran"]


def test_without_a_thread_a_shielded_call_is_run_by_its_caller():
    code = """
import threading
from zae_limiter.runtime.finishing import shield

def start(thread):
    raise RuntimeError("can't start new thread")

found, threading.Thread.start = threading.Thread.start, start
print(shield(threading.get_ident) == threading.get_ident())
threading.Thread.start = found
print(shield(threading.get_ident) == threading.get_ident())
"""
    assert _said_by(code) == ["True", "False"]


# --- what is left


class Held:
    """What a write holds on to."""


@pytest.fixture
def no_collector():
    """What is in a cycle stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def _cancelled(wait, *, fails):
    """Cancel a shielded write in the middle; a weak reference to what it held."""
    held = Held()
    remembered = weakref.ref(held)

    async def write(held=held):
        await wait
        if fails:
            raise OSError("gone")
        return held

    task = asyncio.ensure_future(ashield(write))
    del held, write
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    wait.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await task
    return remembered


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
async def test_a_cancelled_write_leaves_no_cycle(no_collector, fails):
    wait = asyncio.get_running_loop().create_future()
    remembered = await _cancelled(wait, fails=fails)
    del wait
    await asyncio.sleep(0)
    assert remembered() is None

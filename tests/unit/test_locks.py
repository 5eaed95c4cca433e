"""Locks in signal handlers and forked children, and the private parts of Python they rest on."""

import os
import threading
import time
import warnings

import pytest

from zae_limiter.exceptions import InfrastructureError
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.runtime.locks import Counter, SignalSafeLock
from zae_limiter.runtime.worker import Worker

SOON_S = 5


def exit_code_of_child(work):
    """Run the work in a forked child, which is killed if it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads
        pid = os.fork()
    if pid == 0:
        os._exit(0 if work() else 1)
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        if (ended := os.waitpid(pid, os.WNOHANG))[0]:
            return os.waitstatus_to_exitcode(ended[1])
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hung"


class Holder:
    """A thread that holds a lock until the test ends."""

    def __init__(self, lock):
        self._lock = lock
        self._taken, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self):
        with self._lock:
            self._taken.set()
            self._end.wait(SOON_S)

    def __enter__(self):
        self._thread.start()
        assert self._taken.wait(SOON_S)

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


# --- RLock._at_fork_reinit


def test_a_lock_that_another_thread_holds_is_free_in_a_forked_child():
    lock = SignalSafeLock()
    with Holder(lock):
        assert not lock.acquire(timeout=0.01)
        assert exit_code_of_child(lambda: lock.acquire(timeout=1)) == 0
        assert not lock.acquire(timeout=0.01)


def test_the_thread_that_holds_a_lock_may_take_it_again():
    lock = SignalSafeLock()
    with lock, lock:
        assert lock.acquire(blocking=False)
        lock.release()
    with Holder(lock):
        pass


def test_counters_count_and_are_due_once_in_a_while():
    counter = Counter()
    counter.add()
    counter.add(2)
    assert counter.value == 3
    assert [counter.is_due(60) for _ in range(3)] == [True, False, False]


# --- the worker that takes one operation at a time


@pytest.fixture
def worker():
    return Worker(lambda _: None, lambda operation: operation.run("store"), 1.0)


def test_an_operation_inside_of_another_one_is_refused(worker):
    """A signal handler would run such an operation."""

    def nested(_):
        with pytest.raises(InfrastructureError, match="a signal handler must not use a store"):
            worker.run(lambda store: store, (), Receipt())
        return "outer"

    assert worker.run(nested, (), Receipt()) == "outer"
    assert worker.run(lambda store: store, (), Receipt()) == "store"


def test_an_operation_waits_for_that_of_another_thread(worker):
    began, seen = threading.Event(), []

    def slow(_):
        began.set()
        time.sleep(0.05)
        seen.append("slow")

    thread = threading.Thread(target=worker.run, args=(slow, (), Receipt()))
    thread.start()
    assert began.wait(SOON_S)
    worker.run(lambda _: seen.append("next"), (), Receipt())
    thread.join()
    assert seen == ["slow", "next"]

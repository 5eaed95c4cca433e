"""A signal strikes anywhere; its handler may wait for threads that want what was interrupted."""

import signal
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from zae_limiter.exceptions import InfrastructureError
from zae_limiter.items.counters import Counters
from zae_limiter.transport.calls import InFlightCall, InFlightCalls

EVERY_S = 0.0007
AT_LEAST = 150
LONGEST_S = 20


class Interrupt(Exception):
    """As a KeyboardInterrupt comes."""


@contextmanager
def struck(handler, *, again_s=EVERY_S):
    """Call a handler again and again, or once. One that raises must not strike its own removal."""
    before = signal.signal(signal.SIGALRM, lambda *_: handler())
    try:
        signal.setitimer(signal.ITIMER_REAL, EVERY_S, again_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def strike(interrupted, other):
    """Do one thing again and again while a handler has another thread do the other."""
    waited, handling = [], []

    def handler():
        if handling:  # the next signal comes before the thread is done
            return
        handling.append(True)
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(5)
        waited.append(not thread.is_alive())
        handling.clear()

    until = time.monotonic() + LONGEST_S
    with struck(handler):
        while len(waited) < AT_LEAST and time.monotonic() < until and all(waited):
            interrupted()
    assert waited
    assert all(waited), f"after {len(waited)} signals nothing went on"


def make_call(calls):
    with suppress(InfrastructureError), InFlightCall(calls):
        pass


def test_counts_are_read_while_others_count():
    counters = Counters()
    counters.writes.add()
    strike(counters.read, lambda: counters.add(retries=1))


def test_calls_are_refused_while_others_are():
    calls = InFlightCalls()
    calls.close()
    strike(lambda: make_call(calls), lambda: make_call(calls))


def test_calls_are_made_while_the_client_is_closed():
    current = [InFlightCalls()]

    def closed():
        current[0] = InFlightCalls()
        assert current[0].close().result(5) is None

    strike(closed, lambda: make_call(current[0]))


@pytest.mark.parametrize("known", [0, 100])
def test_counts_are_the_same_however_often_reading_them_is_broken_off(known):
    counters, broken_off = Counters(), []

    def handler():
        broken_off.append(1)
        raise Interrupt

    for _ in range(known):
        counters.calls.add()
        counters.granted.add()
        counters.writes.add()
    until = time.monotonic() + LONGEST_S
    while len(broken_off) < AT_LEAST and time.monotonic() < until:
        try:
            with struck(handler, again_s=0):
                while True:
                    counters.read()
        except Interrupt:
            pass
    found = counters.read()
    assert (found.calls, found.granted, found.charges) == (known, known, known)
    assert found.writes == known

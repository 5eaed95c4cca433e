"""A stopwatch excuses what the machine was late, and nothing else."""

import sys
import time

from zae_limiter_contract.stopwatch import SLACK_S, Stopwatch


def test_twice_the_promised_time_is_too_long():
    watch = Stopwatch()
    watch.seconds = 1.0
    assert not watch.within(0.5)
    watch.seconds = 0.5 + SLACK_S - 0.01
    assert watch.within(0.5)


def test_what_the_machine_was_late_is_added_to_the_promise():
    watch = Stopwatch()
    watch.seconds, watch.late_s = 1.2, 0.5
    assert watch.within(0.5)
    assert "1.20 s" in repr(watch)


def test_a_thread_that_gets_no_core_is_late():
    usual = sys.getswitchinterval()
    try:
        with Stopwatch() as watch:
            time.sleep(0.02)
            sys.setswitchinterval(10)  # no other thread runs meanwhile
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                pass
    finally:
        sys.setswitchinterval(usual)
    assert watch.seconds > 0.2
    assert watch.late_s > 0.15

"""Threads that carry what blocks."""

import threading
import time

import pytest

from zae_limiter.transport.crew import Crew


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


def crew_threads(before):
    return [thread for thread in threading.enumerate() if thread not in before]


def wait_until(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_no_more_threads_than_allowed_and_every_job_is_done(gate):
    before, done = threading.enumerate(), []

    def work(number):
        gate.wait()
        done.append(number)

    crew = Crew(work, 4, 0.1)
    assert all(crew.take(number) for number in range(50))
    assert len(crew_threads(before)) == 4
    gate.set()
    wait_until(lambda: len(done) == 50)
    assert sorted(done) == list(range(50))
    wait_until(lambda: not crew_threads(before))


def test_threads_are_used_again_and_end_without_work():
    before, names = threading.enumerate(), []
    crew = Crew(lambda _: names.append(threading.current_thread().name), 8, 0.2)
    for number in range(20):
        crew.take(number)
        time.sleep(0.02)
    assert len(crew_threads(before)) <= 2
    wait_until(lambda: not crew_threads(before))
    crew.take(20)
    wait_until(lambda: len(names) == 21)


def test_what_waits_is_done_although_it_is_closed(gate):
    before, done = threading.enumerate(), []

    def work(number):
        gate.wait()
        done.append(number)

    crew = Crew(work, 2, 60)
    for number in range(6):
        crew.take(number)
    crew.close()
    assert not crew.take(7)
    gate.set()
    wait_until(lambda: not crew_threads(before))
    assert sorted(done) == list(range(6))


def test_idle_threads_end_at_once_when_it_is_closed():
    before, done = threading.enumerate(), []
    crew = Crew(done.append, 2, 60)
    crew.take(1)
    wait_until(lambda: done)
    crew.close()
    wait_until(lambda: not crew_threads(before))


def test_jobs_from_many_threads_are_each_done_once():
    done = []
    crew = Crew(done.append, 5, 0.001)  # threads end all the time

    def bring(base):
        for number in range(base, base + 300):
            crew.take(number)
            if number % 7 == 0:
                time.sleep(0.001)

    threads = [threading.Thread(target=bring, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(done) == 1200)
    assert len(set(done)) == 1200

"""Counters of the engine."""

import threading

from zae_limiter.dynamodb.counters import Counters, LockFreeCount


def test_a_lock_free_count_is_read_without_advancing_it():
    """It reads the repr of `itertools.count`, which must stay as documented."""
    counter = LockFreeCount()
    assert counter.value() == 0
    for _ in range(1234):
        counter.add()
    assert (counter.value(), counter.value()) == (1234, 1234)


def test_writes_are_counted_by_their_moves():
    counters = Counters()
    for _ in range(3):
        counters.writes[2, 1].add()
    counters.writes[1, 0].add()
    stats = counters.read()
    assert (stats.writes, stats.plain_moves, stats.clamp_moves) == (4, 7, 3)


def test_no_write_of_many_threads_is_lost():
    counters, start = Counters(), threading.Barrier(8)

    def write():
        start.wait()
        for _ in range(1000):
            counters.writes[1, 0].add()

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.read().writes == 8000

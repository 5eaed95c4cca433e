"""Counters of the engine."""

import threading

from zae_limiter.dynamodb.counters import Counters


def test_writes_are_counted_with_their_moves():
    counters = Counters()
    for _ in range(3):
        counters.add(writes=1, plain_moves=2, clamp_moves=1)
    counters.add(writes=1, plain_moves=1)
    stats = counters.read()
    assert (stats.writes, stats.plain_moves, stats.clamp_moves) == (4, 7, 3)


def test_no_write_of_many_threads_is_lost():
    counters, start = Counters(), threading.Barrier(8)

    def write():
        start.wait()
        for _ in range(1000):
            counters.add(writes=1)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.read().writes == 8000

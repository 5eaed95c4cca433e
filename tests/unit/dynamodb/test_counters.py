"""Counters of the engine."""

import threading

from zae_limiter.items.counters import Counters


def test_every_charge_was_granted_rejected_or_failed():
    counters = Counters()
    for counted in [counters.granted] * 3 + [counters.rejected] * 2 + [counters.failed]:
        counted.add()
    stats = counters.read()
    assert (stats.granted, stats.rejected, stats.charges) == (3, 2, 6)


def test_common_and_rare_events_are_read_together():
    counters = Counters()
    counters.writes.add()
    counters.add(refused_writes=2, splits=1)
    counters.group(3)
    counters.group(2)
    stats = counters.read()
    assert (stats.writes, stats.refused_writes, stats.splits) == (1, 2, 1)
    assert (stats.groups, stats.grouped, stats.largest_group) == (2, 5, 3)


def test_no_write_of_many_threads_is_lost():
    counters, start = Counters(), threading.Barrier(8)

    def write():
        start.wait()
        for _ in range(1000):
            counters.writes.add()
            counters.add(retries=1)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.read().writes == 8000
    assert counters.read().retries == 8000

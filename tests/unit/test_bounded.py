"""The bounded dict of all caches."""

import threading
import time

from zae_limiter.runtime.bounded import BoundedDict

LARGE, PUTS = 50_000, 20_000


def filled(size):
    entries = BoundedDict(size)
    for number in range(size):
        entries.put(number, number)
    return entries


def test_the_entry_written_longest_ago_is_evicted():
    entries = filled(3)
    entries.put(0, "again")
    entries.put(3, 3)
    assert list(entries) == [2, 0, 3]
    assert entries[0] == "again"


def test_an_eviction_takes_no_longer_in_a_large_cache():
    entries = filled(LARGE)
    start = time.thread_time()
    for number in range(LARGE, LARGE + PUTS):
        entries.put(number, number)
    assert time.thread_time() - start < 0.3  # 0.02 s; a plain dict takes 1 s
    assert len(entries) == LARGE


def test_threads_need_no_lock():
    entries, errors = filled(10), []

    def work(seed):
        try:
            for number in range(5000):
                entries.put((seed, number % 15), number)
                entries.pop((1 - seed, number % 15), None)
        except Exception as error:  # noqa: BLE001 - for the assertion
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    assert len(entries) <= 11

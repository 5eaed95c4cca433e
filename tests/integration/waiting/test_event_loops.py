"""Callers for slots in several event loops and threads of one process wait in one line."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

PATIENCE_S = 60
CHILDREN = ("key-1", "key-2", "key-3")


@contextmanager
def loop_in_thread():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def family(url):
    """Yield the repository of a parent with one slot, and of children that share it."""
    provision = "table" if url.startswith("dynamodb") else "stack"
    with SyncRepository.open(url=url, provision=provision, request_timeout=20) as repo:
        repo.set_system_defaults([Limit.concurrent("parallel", 9)])
        repo.set_limits("parent", [Limit.concurrent("parallel", 1)])
        for child in CHILDREN:
            repo.create_entity(child, parent_id="parent", cascade=True)
        yield repo


class Waiting:
    """Callers in two event loops and in threads, and the order in which they are served."""

    def __init__(self, url, repo):
        self.url, self.lines = url, repo.charging.slot_lines
        self.limiter, self.served, self.ends = SyncRateLimiter(repo), [], []

    def in_loop(self, number, loop):
        """Start a caller in a loop, through a repository of its own."""

        async def call():
            async with Repository.open(url=self.url, request_timeout=20) as repo:
                child = CHILDREN[number % len(CHILDREN)]
                async with RateLimiter(repo).acquire(child, "api", {}, timeout=PATIENCE_S):
                    self.served.append(number)

        return self._started(asyncio.run_coroutine_threadsafe(call(), loop))

    def in_thread(self, number):
        def call():
            child = CHILDREN[number % len(CHILDREN)]
            with self.limiter.acquire(child, "api", {}, timeout=PATIENCE_S):
                self.served.append(number)

        thread = threading.Thread(target=call)
        thread.start()
        return self._started(thread)

    def _started(self, end):
        self.ends.append(end)
        for _ in range(1000 * PATIENCE_S):
            if self.waiting() == len(self.ends):
                return end
            threading.Event().wait(0.001)
        return pytest.fail("the caller does not wait")

    def waiting(self):
        return sum(self.lines.waiting((child, "api")) for child in CHILDREN)

    def join(self):
        for end in self.ends:
            if isinstance(end, threading.Thread):
                end.join(PATIENCE_S)
            elif not end.cancelled():
                end.result(PATIENCE_S)


def test_callers_of_loops_and_threads_are_served_in_the_order_of_arrival(any_url):
    with family(any_url) as repo, loop_in_thread() as one, loop_in_thread() as other:
        waiting = Waiting(any_url, repo)
        with waiting.limiter.acquire("key-1", "api", {}):
            waiting.in_loop(0, one)
            waiting.in_loop(1, other)
            waiting.in_thread(2)
            cancelled = waiting.in_loop(3, one)
            waiting.in_loop(4, other)
            waiting.in_thread(5)
            cancelled.cancel()
        waiting.join()
        assert waiting.served == [0, 1, 2, 4, 5]
        assert waiting.waiting() == 0

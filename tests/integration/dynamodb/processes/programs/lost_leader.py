"""An event loop is closed while a caller in it writes for a bucket; others come later."""

import asyncio
import logging
import os
import sys
import time
from urllib.parse import parse_qs, urlsplit

from tests.support.dynamodb import Proxy
from tests.support.dynamodb.tables import store_url
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, Repository
from zae_limiter.testing import FakeClock

LIMITS = [Limit.per_minute("rpm", 1000)]
TIMEOUT_S = 2.0
NOT_LONG_S = 10  # on any machine; a leader that is silent counts as lost after 60 s


async def take(limiter):
    async with limiter.acquire("user-1", "api", {"rpm": 1}, limits=LIMITS):
        return True


def close_in_mid_write(limiter, proxy):
    """The task is kept, so that nothing else lets go of it."""
    proxy.link.answer_ms = 300
    loop = asyncio.new_event_loop()
    task = loop.create_task(take(limiter))
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    proxy.link.answer_ms = 0
    return task


async def later_callers(limiter):
    refused, slowest = 0, 0.0
    for _ in range(60):
        started = time.monotonic()
        try:
            await take(limiter)
        except RateLimiterUnavailable:
            refused += 1
        slowest = max(slowest, time.monotonic() - started)
    return refused, slowest


def main(namespace, url):
    logging.disable(logging.CRITICAL)
    place = urlsplit(url)
    with Proxy(parse_qs(place.query)["endpoint_url"][0]) as proxy:
        repo = asyncio.run(
            Repository.open(
                namespace,
                url=store_url(place.netloc, proxy.url),
                clock=FakeClock(),
                request_timeout=TIMEOUT_S,
            )
        )
        limiter = RateLimiter(repo)
        asyncio.run(take(limiter))
        kept = close_in_mid_write(limiter, proxy)
        refused, slowest = asyncio.run(later_callers(limiter))
        sys.stdout.write(f"refused {'one' if refused <= 1 else refused}\n")
        sys.stdout.write(f"waited {'not long' if slowest < NOT_LONG_S else slowest}\n")
        sys.stdout.flush()
        os._exit(0 if kept is not None else 1)  # what the closed loop has left would complain


if __name__ == "__main__":
    main(*sys.argv[1:])

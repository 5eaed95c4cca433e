"""A process that holds a slot; run as ``python slot_holder.py URL MODE``.

It says "held", waits for a line, and says whether its lease is lost.
"""

import sys

if sys.argv[2] == "gevent":
    from gevent import monkey

    monkey.patch_all()

import asyncio
import os

from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def hold_async(url):
    async with (
        await Repository.open(url=url, provision="never") as repo,
        RateLimiter(repo).acquire("user", "api", {}) as lease,
    ):
        say("held")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        say(f"lost {lease.lost}")


def hold(url, mode):
    with (
        SyncRepository.open(url=url, provision="never") as repo,
        SyncRateLimiter(repo).acquire("user", "api", {}) as lease,
    ):
        if mode == "fork":
            pid = os.fork()
            if pid == 0:
                say(f"in the child: lost {lease.lost}")
                return
            os.waitpid(pid, 0)
        say("held")
        if mode == "gevent":
            import gevent

            gevent.get_hub().threadpool.apply(sys.stdin.readline)  # others go on meanwhile
        else:
            sys.stdin.readline()
        say(f"lost {lease.lost}")


if __name__ == "__main__":
    if sys.argv[2] == "async":
        asyncio.run(hold_async(sys.argv[1]))
    else:
        hold(sys.argv[1], sys.argv[2])

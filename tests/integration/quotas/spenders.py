"""Processes with calls in flight on a budget; run as ``python -m ... URL PROCESSES CALLS``.

This process imports the package and forks the others. Each of them settles some calls, begins
``CALLS`` more, says what it has settled, and waits for a line: then it settles those as well, and
says how much they have cost.
"""

import asyncio
import json
import os
import sys
from decimal import Decimal
from random import Random

from zae_limiter import RateLimiter, Repository

ESTIMATE = "0.05"


def say(**words):
    os.write(1, (json.dumps(words) + "\n").encode())


def some_cost(chance):
    return chance.randrange(10**8) * Decimal("0.000000001")


async def spend(url, calls, chance):
    async with await Repository.open(url=url, provision="never", request_timeout=30) as repo:
        limiter, settled = RateLimiter(repo), Decimal(0)

        async def call(is_begun, is_over):
            async with limiter.acquire("team", "gpt-4", {"usd": ESTIMATE}) as lease:
                is_begun.set()
                await is_over.wait()
                cost = some_cost(chance)
                await lease.settle(usd=cost)
            return cost

        over = asyncio.Event()
        over.set()
        settled += sum(await asyncio.gather(*[call(asyncio.Event(), over) for _ in range(3)]))
        begun, over = [asyncio.Event() for _ in range(calls)], asyncio.Event()
        tasks = [asyncio.create_task(call(each, over)) for each in begun]
        for each in begun:
            await each.wait()
        say(pid=os.getpid(), settled=str(settled))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        over.set()
        say(pid=os.getpid(), late=str(sum(await asyncio.gather(*tasks))))


def main(url, processes, calls):
    pids = []
    for number in range(processes):
        pid = os.fork()
        if not pid:
            asyncio.run(spend(url, calls, Random(number)))
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

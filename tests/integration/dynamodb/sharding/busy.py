"""A process that uses one bucket all the time and tells what it does; made to be killed.

Each line is written at once, before or after a step. ``try``: what the step may take of each
limit, from the least to the most; ``done``: what it has taken. A step that is not done when the
process is killed, or that ended in doubt, may have taken anything in between.
"""

import asyncio
import json
import os
import random
import sys
import time
from contextlib import suppress
from itertools import count

from tests.support.dynamodb.trees import AsyncTree, SyncTree
from zae_limiter import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.clock import Deadline
from zae_limiter.items.stored.keys import BucketId

USER, API = "user-1", "api"


KINDS = ("plain", "more", "less", "release", "consume", "raise")


class Failure(Exception):
    """What goes wrong in a block."""


class Diary:
    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._numbers = count()

    def tell(self, *what):
        os.write(self._file, (json.dumps(what) + "\n").encode())

    def begin(self, least, most):
        number = next(self._numbers)
        self.tell("try", number, least, most)
        return number

    def end(self, number, net):
        self.tell("done", number, net)


class Busy:
    """One process: tasks that acquire, and one that changes the shape of the bucket."""

    def __init__(self, repo, limiter, diary, seed, plan):
        self.repo, self.limiter, self.diary, self.plan = repo, limiter, diary, plan
        self.chance = random.Random(seed)

    async def run(self, seconds):
        ends = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(self.plan["tasks"]):
                group.create_task(self._until(ends, self._use))
            if self.plan["shapes"]:
                group.create_task(self._until(ends, self._reshape))
        self.diary.tell("over", self.repo_of().lost_settlements)

    def repo_of(self):
        return getattr(self.repo, "blocking", self.repo)

    async def _until(self, ends, work):
        while time.monotonic() < ends:
            await work()
            await asyncio.sleep(self.chance.random() * self.plan["pause_s"])

    # --- leases

    async def _use(self):
        large = self.chance.random() < self.plan["large"]
        kinds = ("raise", "raise", "raise", "release", "less") if large else KINDS
        spans = self.plan["much" if large else "little"]
        wanted = {name: self.chance.randint(*span) for name, span in spans.items()}
        work = self._lease(wanted, self.chance.choice(kinds))
        if self.chance.random() < self.plan["stopped"]:
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(work, self.chance.random() * 0.03)
        else:
            await work

    async def _lease(self, wanted, what):
        """Its steps: the charge, something in the block, and the end of the block."""
        step, ending, loose = self.diary.begin({}, wanted), {}, []
        acquire = self.limiter.acquire(USER, API, wanted)
        try:
            lease = await acquire.__aenter__()
        except (RateLimitExceeded, asyncio.CancelledError) as error:
            self.diary.end(step, {})
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        except RateLimiterUnavailable as error:
            self.diary.tell("doubt", step, repr(error))
            return
        self.diary.end(step, wanted)
        held = dict(wanted)
        error = None
        try:
            await self._in_block(lease, held, what, loose)
            if what == "raise":
                raise Failure
            ending = self._adjustment(what, held)
            if ending:
                await lease.adjust(**ending)
        except (Failure, asyncio.CancelledError) as problem:
            error = problem
            ending = {name: -amount for name, amount in held.items()}
        await self._end(acquire, error, ending, loose)
        if isinstance(error, asyncio.CancelledError):
            raise error

    async def _in_block(self, lease, held, what, loose):
        await asyncio.sleep(self.chance.random() * 0.01)
        if what == "release":
            back = {name: self.chance.randint(0, amount) for name, amount in held.items()}
            await self._step(lease.release, held, back, -1, loose)
        elif what == "consume":
            more = {name: self.chance.randint(0, amount) for name, amount in held.items()}
            with suppress(RateLimitExceeded):
                await self._step(lease.consume, held, more, 1, loose)

    async def _step(self, call, held, amounts, sign, loose):
        net = {name: sign * amount for name, amount in amounts.items()}
        step = self.diary.begin(*(({}, net) if sign > 0 else (net, {})))
        try:
            await call(**amounts)
        except RateLimitExceeded:
            self.diary.end(step, {})
            raise
        except RateLimiterUnavailable as error:
            self.diary.tell("doubt", step, repr(error))
            return
        except asyncio.CancelledError:
            loose.append(step)  # a release may stand; the end of the lease gives back the rest
            raise
        self.diary.end(step, net)
        for name, amount in net.items():
            held[name] += amount

    def _adjustment(self, what, held):
        if what == "more":
            return {name: self.chance.randint(0, amount) for name, amount in held.items()}
        if what == "less":
            return {name: -self.chance.randint(0, amount) for name, amount in held.items()}
        return {}

    async def _end(self, acquire, error, net, loose):
        least = {name: min(amount, 0) for name, amount in net.items()}
        most = {name: max(amount, 0) for name, amount in net.items()}
        step = self.diary.begin(least, most)
        lost = self.repo_of().lost_settlements
        try:
            await acquire.__aexit__(type(error) if error else None, error, None)
        finally:
            if self.repo_of().lost_settlements > lost:
                self.diary.tell("doubt", step, "a settlement was lost")
            else:
                self.diary.end(step, net)
                for each in loose:
                    self.diary.end(each, {})

    # --- the shape

    async def _reshape(self):
        repo = self.repo_of()
        context = repo._context  # noqa: SLF001 - below the public API
        shaper, clock = context.engine.buckets.resharder, context.clock
        bucket_id, within = BucketId(repo.namespace_id, USER, API), Deadline(10)
        self.diary.tell("shape")
        try:
            reader = shaper._reader  # noqa: SLF001
            found = await self._called(reader.read_all, bucket_id, clock, within)
            pairs = [each for each in found if each.n > 1 and each.survives]
            splits = not pairs or self.chance.random() < self.plan["splits"]
            shard = self.chance.choice(sorted(found if splits else pairs))
            if splits:
                word, made = "split", self._called(shaper.split, bucket_id, shard, clock, within)
            else:
                in_force = await self._in_force(repo)
                word, made = (
                    "merge",
                    self._called(shaper.merge, bucket_id, shard, in_force, clock, within),
                )
            if await made:
                self.diary.tell(word, shard)
        except RateLimiterUnavailable as error:
            self.diary.tell("shapeless", repr(error))

    async def _in_force(self, repo):
        resolved = await self._called(repo.charging.resolve, USER, API, repo.charging.clock())
        return resolved.in_force

    async def _called(self, function, *arguments):
        if asyncio.iscoroutinefunction(function):
            return await function(*arguments)
        return await asyncio.to_thread(function, *arguments)


async def main(tree, url, namespace, seed, seconds, path, plan):
    chosen, settings = {"async": AsyncTree, "sync": SyncTree}[tree](), json.loads(plan)
    repo = await chosen.open(
        namespace=namespace,
        url=url,
        provision="never",
        request_timeout=20,
        config_cache_ttl=0.3,
        rejection_cache_ttl=float(settings["refusals"]),
    )
    busy = Busy(repo, chosen.limiter(repo), Diary(path), int(seed), settings)
    busy.diary.tell("begin")
    await busy.run(float(seconds))
    await repo.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Starting work in order, and waiting for what another thread sees."""

import asyncio

from zae_limiter import RateLimiterUnavailable

PATIENT_S = 30  # for what takes milliseconds, on a busy machine


async def answered(call):
    """Repeat a call of a client with a short timeout until a busy machine answers in time."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            try:
                return await call()
            except RateLimiterUnavailable:
                await asyncio.sleep(0)


async def until(condition):
    async with asyncio.timeout(PATIENT_S):
        while not condition():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.001)


async def carried_out(measured, operation="UpdateItem", count=1):
    """Return when the store has answered that many requests, told or not."""
    await until(lambda: sum(bool(each.raw_answer) for each in measured.of(operation)) >= count)


async def started(work):
    """A task that has come to where it writes or waits for others; no time passes meanwhile."""
    task = asyncio.ensure_future(work)
    for _ in range(10):
        await asyncio.sleep(0)
    return task

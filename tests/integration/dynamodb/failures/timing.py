"""How long clients of these tests wait."""

import asyncio

from tests.support.dynamodb.world import PATIENT_S
from zae_limiter import RateLimiterUnavailable

TIMEOUT_S = 1.0  # long enough for a busy machine to answer, short enough to wait for in vain
ATTEMPTS = 50


async def answered(call):
    """Repeat a call of a client with a short timeout until a busy machine answers in time."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            try:
                return await call()
            except RateLimiterUnavailable:
                await asyncio.sleep(0)


async def until(holds, scenario):
    """Run a scenario, with another entity each time, until it shows what it must show.

    On a machine that stalls, a caller may come so late that it writes apart. That changes the id
    by which the other write would be recognised, and the outcome of that one is then unknown.
    """
    for number in range(ATTEMPTS):
        shown = await scenario(f"user-{number}")
        if shown == holds:
            break
    assert shown == holds

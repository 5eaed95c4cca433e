"""Sleep of tasks."""

from __future__ import annotations

import asyncio


async def asleep(seconds: float) -> None:
    await asyncio.sleep(seconds)

"""Messages that are long on their way."""

import asyncio

from tests.support.dynamodb.world import PATIENT_S


def late(proxy, **options):
    """The next write reaches the store when ``arrived`` says so: no caller waits for it any more.

    It goes over a new connection: what is lost on a reused one is repeated.
    """
    proxy.drop_connections()
    return proxy.fault("late", operation="UpdateItem", times=1, delay_ms=None, **options)


async def arrived(fault, measured):
    """Let the store get what was late, and wait until it has."""
    fault.delay_ms = 0
    (message,) = (each for each in measured.requests if each.fault == fault.kind)
    async with asyncio.timeout(PATIENT_S):
        while not message.raw_answer:  # noqa: ASYNC110 - another thread sees it
            await asyncio.sleep(0.005)

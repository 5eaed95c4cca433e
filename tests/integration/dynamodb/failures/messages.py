"""Messages that are long on their way."""

import asyncio


def late(proxy, **options):
    """The next write reaches the store when no caller waits for it any more.

    It goes over a new connection: what is lost on a reused one is repeated.
    """
    proxy.drop_connections()
    return proxy.fault("late", operation="UpdateItem", times=1, **options)


async def arrived(measured):
    """Wait until the store has got what was late."""
    (message,) = (each for each in measured.requests if each.fault == "late")
    async with asyncio.timeout(5):
        while not message.raw_answer:  # noqa: ASYNC110 - another thread sees it
            await asyncio.sleep(0.005)

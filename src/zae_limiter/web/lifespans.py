"""The lifespan of an ASGI application: its end closes the limiter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter._async.limiter import RateLimiter

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def lifespan(
    limiter: RateLimiter, start: Callable[[RateLimiter], Awaitable[object]] | None = None
) -> Lifespan:
    """Return a lifespan for FastAPI or Starlette whose end closes the limiter.

    ``app = FastAPI(lifespan=web.lifespan(limiter))``

    ``start`` is an async function of the limiter. It runs before the first request, for example to
    store default limits; if it raises, the application does not start. Without it the store is
    opened by the first request. An application that has a lifespan of its own enters this one
    in it: ``async with web.lifespan(limiter)(app): yield``. A repository that was given to the
    limiter stays open.
    """

    @asynccontextmanager
    async def run(app: Any) -> AsyncIterator[None]:
        async with limiter:
            if start is not None:
                await start(limiter)
            yield

    return run

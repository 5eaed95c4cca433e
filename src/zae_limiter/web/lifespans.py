"""A lifespan for ASGI applications, which closes the limiter at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from zae_limiter.web.options import ASYNC, check_limiter

if TYPE_CHECKING:
    from zae_limiter._async.limiter import RateLimiter

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def lifespan(
    limiter: RateLimiter, start: Callable[[RateLimiter], Awaitable[object]] | None = None
) -> Lifespan:
    """Return a lifespan for FastAPI or Starlette that closes the limiter at the end.

    ``app = FastAPI(lifespan=web.lifespan(limiter))``

    ``start`` is an async function of the limiter. It runs before the first request, for example to
    store default limits; if it raises, the application does not start. Without ``start``, the first
    request opens the store. An application that has a lifespan of its own enters this one inside:
    ``async with web.lifespan(limiter)(app): yield``. A repository that was passed to the limiter
    stays open.
    """
    check_limiter(limiter, ASYNC)

    @asynccontextmanager
    async def run(app: Any) -> AsyncIterator[None]:
        async with limiter:
            if start is not None:
                await start(limiter)
            yield

    return run

"""A Starlette service, as any ASGI application: every key has its limit.

ZAEL_KEY_SECRET=change-me uvicorn examples.starlette_app:app --workers 2
"""

import os

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from zae_limiter import Limit, RateLimiter, web

limiter = RateLimiter(url=os.environ.get("ZAEL_URL", "sqlite:///limits.db"))


async def set_up(limiter: RateLimiter) -> None:
    """Store limits where there are none: a restart keeps what an operator has set."""
    limits = [Limit.per_hour("rph", 10)]
    await limiter.set_resource_defaults("starlette", limits, if_missing=True)


async def index(request: Request) -> JSONResponse:
    remaining = request.state.lease.remaining  # empty if an outage let the request pass
    return JSONResponse({"requests_left": remaining.get("rph")})


app = Starlette(
    routes=[Route("/", index)],
    middleware=[
        Middleware(
            web.AsgiMiddleware,
            limiter,
            key=web.hashed_header("x-api-key"),
            resource="starlette",
            cost={"rph": 1},
        )
    ],
    lifespan=web.lifespan(limiter, set_up),
)

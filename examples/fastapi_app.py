"""A FastAPI service: every key has its limit, and a search costs the tokens that it used.

ZAEL_KEY_SECRET=change-me uvicorn examples.fastapi_app:app --workers 2
"""

import os
from typing import Annotated, Any

from fastapi import Depends, FastAPI

from zae_limiter import Lease, Limit, RateLimiter, web

REQUESTS = [Limit.per_hour("rph", 10)]
TOKENS = [Limit.per_hour("tph", 1_000)]

# Opens the store with the first call, in each worker.
limiter = RateLimiter(url=os.environ.get("ZAEL_URL", "sqlite:///limits.db"))
api_key = web.hashed_header("x-api-key")


async def set_up(limiter: RateLimiter) -> None:
    """Store limits where there are none: a restart keeps what an operator has set."""
    await limiter.set_resource_defaults("fastapi", REQUESTS, if_missing=True)
    await limiter.set_resource_defaults("fastapi-search", TOKENS, if_missing=True)


app = FastAPI(lifespan=web.lifespan(limiter, set_up))
app.add_middleware(
    web.AsgiMiddleware,
    limiter,
    key=api_key,
    resource="fastapi",
    cost={"rph": 1},
    skip=lambda request: request.path == "/health",
)
search_limit = web.rate_limit(limiter, key=api_key, resource="fastapi-search", cost={"tph": 100})


@app.get("/")
async def index() -> dict[str, str]:
    return {"hello": "world"}


@app.get("/search")
async def search(q: str, lease: Annotated[Lease, Depends(search_limit)]) -> dict[str, Any]:
    found = [word for word in ("limit", "limiter", "lease") if q in word]
    await lease.settle(tph=10 * len(found))  # the true cost replaces the 100 that were charged
    return {"found": found, "tokens_left": lease.remaining.get("tph")}  # None in an outage


@app.get("/health")
async def health() -> dict[str, bool]:
    return {"ok": True}

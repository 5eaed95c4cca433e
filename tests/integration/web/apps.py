"""One application for each framework, limited by the same options on the store of ZAEL_URL.

gunicorn imports this module and calls ``wsgi()`` or ``django()``; uvicorn serves the others in the
process of the test. The options are JSON, so that they reach gunicorn's processes.
"""

import json
import os
from typing import Annotated

from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from fastapi import Depends, FastAPI
from fastapi.responses import JSONResponse

from tests.integration.web import django_site
from zae_limiter import Lease, SyncRateLimiter, SyncRepository, web

SECRET = "a secret for tests"
KEYS = {
    "header": lambda: web.header("x-api-key"),
    "authorization": lambda: web.header("authorization"),
    "hashed_authorization": lambda: web.hashed_header("authorization", SECRET),
    "comma": lambda: web.header("x-api-key", allow_comma=True),
    "hashed": lambda: web.hashed_header("x-api-key", SECRET),
    "address": lambda: web.client_address,
}
SKIPS = {"probes": lambda request: request.headers.get("user-agent") == "probe"}


def rule(options):
    options = dict(options)
    if "skip" in options:
        options["skip"] = SKIPS[options["skip"]]
    return {"key": KEYS[options.pop("key")](), **options}


# --- served by uvicorn


def asgi(limiter, options):
    app = FastAPI()

    @app.get("/")
    async def hello():
        return JSONResponse({"hello": "world"})

    return web.AsgiMiddleware(app, limiter, **rule(options))


def fastapi(limiter, options):
    app = FastAPI()
    dependency = web.rate_limit(limiter, **rule(options))

    @app.get("/")
    async def hello(lease: Annotated[Lease | None, Depends(dependency)]):
        return {"lease": None if lease is None else lease.consumed}

    return app


def django_asgi(limiter, options):
    return _django(limiter, options, ASGIHandler)


# --- served by gunicorn


def wsgi():
    def hello(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [repr(environ["zae_limiter.lease"]).encode()]

    return web.WsgiMiddleware(hello, _sync_limiter(), **rule(_options()))


def django():
    return _django(_sync_limiter(), _options(), WSGIHandler)


def _django(limiter, options, handler):
    changes = {name.upper(): value for name, value in rule(options).items()}
    return django_site.handler(handler, LIMITER=limiter, COST={"rpm": 1}, **changes)


def _options():
    return json.loads(os.environ["WEB_OPTIONS"])


def _sync_limiter():
    return SyncRateLimiter(repository=SyncRepository.open(url=os.environ["ZAEL_URL"]))

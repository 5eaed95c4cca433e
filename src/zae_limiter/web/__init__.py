"""Limits for web services: ASGI middleware, FastAPI dependency, WSGI and Flask, Django.

A request is charged before it is served, and its lease lasts until the response has ended, even if
the response streams. A rejection is answered by 429, a request without a key by 401, and an outage
by 503 if ``on_unavailable`` is "block". The middleware for Django is
``zae_limiter.web.django.RateLimitMiddleware``; name it in the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter._lazy import import_name

if TYPE_CHECKING:
    from zae_limiter.web.answers import refusal
    from zae_limiter.web.asgi import AsgiMiddleware
    from zae_limiter.web.fastapi import rate_limit
    from zae_limiter.web.keys import client_address, hashed_header, hashed_key, header
    from zae_limiter.web.lifespans import lifespan
    from zae_limiter.web.requests import WebRequest
    from zae_limiter.web.rules import WebOutcome
    from zae_limiter.web.wsgi import WsgiMiddleware, init_flask

_MODULES = {
    "AsgiMiddleware": "asgi",
    "WebOutcome": "rules",
    "WebRequest": "requests",
    "WsgiMiddleware": "wsgi",
    "client_address": "keys",
    "hashed_header": "keys",
    "hashed_key": "keys",
    "header": "keys",
    "init_flask": "wsgi",
    "lifespan": "lifespans",
    "rate_limit": "fastapi",
    "refusal": "answers",
}

__all__ = [
    "AsgiMiddleware",
    "WebOutcome",
    "WebRequest",
    "WsgiMiddleware",
    "client_address",
    "hashed_header",
    "hashed_key",
    "header",
    "init_flask",
    "lifespan",
    "rate_limit",
    "refusal",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, name, _MODULES)  # imports only the framework that is in use


def __dir__() -> list[str]:
    return __all__

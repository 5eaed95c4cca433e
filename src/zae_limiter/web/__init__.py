"""Limits for web services: ASGI middleware, FastAPI dependency, WSGI and Flask, Django.

Requests are charged before they are served, and the charge lasts until the response has ended, also
while it streams. Rejections become 429 with ``as_dict()`` as JSON and headers; an outage becomes
503 where ``on_unavailable`` says "block". Django's middleware is named in its settings:
``zae_limiter.web.django.RateLimitMiddleware``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter._lazy import import_name

if TYPE_CHECKING:
    from zae_limiter.web.asgi import AsgiMiddleware
    from zae_limiter.web.fastapi import rate_limit
    from zae_limiter.web.rules import WebOutcome, WebRequest, header, refusal
    from zae_limiter.web.wsgi import WsgiMiddleware, init_flask

_MODULES = {
    "AsgiMiddleware": "asgi",
    "WebOutcome": "rules",
    "WebRequest": "rules",
    "WsgiMiddleware": "wsgi",
    "header": "rules",
    "init_flask": "wsgi",
    "rate_limit": "fastapi",
    "refusal": "rules",
}

__all__ = [
    "AsgiMiddleware",
    "WebOutcome",
    "WebRequest",
    "WsgiMiddleware",
    "client_address",
    "header",
    "init_flask",
    "rate_limit",
    "refusal",
]


def client_address(request: Any) -> str | None:
    """Return the address of the client as the server sees it: a key for any framework.

    Behind a proxy that is the proxy's, unless the server is configured to trust its headers.
    """
    client = getattr(request, "client", None)
    if client is None:  # Django
        return getattr(request, "META", {}).get("REMOTE_ADDR")
    return client if isinstance(client, str) else client.host


def __getattr__(name: str) -> Any:
    return import_name(__name__, name, _MODULES)  # no framework is needed but the one in use


def __dir__() -> list[str]:
    return __all__

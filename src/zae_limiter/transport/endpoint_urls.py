"""Endpoints from the URLs that users write."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

from zae_limiter.exceptions import ValidationError
from zae_limiter.transport.messages import Endpoint

HOST = re.compile(r"[\w.:%-]+")


def parse_endpoint(url: str) -> Endpoint:
    """Parse ``http(s)://HOST[:PORT][/PATH]``; raises ValidationError for anything else."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad_endpoint(url) from None
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not HOST.fullmatch(host):
        raise _bad_endpoint(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise ValidationError(
            "endpoint_url", host, "must not contain a user, a query or a fragment"
        )
    if port is None:
        port = 443 if parts.scheme == "https" else 80
    path = quote(parts.path, safe="/~%") or "/"
    return Endpoint(parts.scheme, host, port, path)


def _bad_endpoint(url: str) -> ValidationError:
    shown = url if "@" not in url else "…"  # there may be a password before the @
    return ValidationError("endpoint_url", shown, "must be like http://localhost:8000")

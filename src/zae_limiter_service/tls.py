"""TLS of the HTTP server, and the name in the certificate of a client."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Receive, Scope, Send

    from zae_limiter_service.settings import ServiceSettings


def uvicorn_options(settings: ServiceSettings) -> dict[str, Any]:
    """Return the options of the server that concern TLS."""
    if settings.certificate is None:
        return {}
    options: dict[str, Any] = {
        "ssl_certfile": settings.certificate,
        "ssl_keyfile": settings.key,
    }
    if settings.client_ca is not None:
        # With tokens as well, a caller has the choice; the gate refuses those that have neither.
        needed = ssl.CERT_OPTIONAL if settings.tokens is not None else ssl.CERT_REQUIRED
        options |= {"ssl_ca_certs": str(settings.client_ca), "ssl_cert_reqs": needed}
    return options


class CertificateProtocol(HttpToolsProtocol):
    """HTTP that tells the application the common name in the verified certificate of a client."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        name = common_name(transport.get_extra_info("peercert"))
        if name is not None:
            self.app = _with_name(self.app, name)


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """Return the common name of a certificate that the authority has signed."""
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return None


def _with_name(app: ASGIApp, name: str) -> ASGIApp:
    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "zae_limiter.common_name": name}, receive, send)

    return named

"""How the HTTP server is used: TLS, names in certificates of clients, answers in one write."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Receive, Scope, Send

    from zae_limiter_service.settings import ServiceSettings


Headers = list[tuple[bytes, bytes]]
CLOSE = (b"connection", b"close")


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


# The key, in the scope of a request, of a function that sends a whole answer. The application takes
# the function out of the scope: both refer to each other, and only the garbage collector would free
# them.
REPLY = "zae_limiter.reply"


class ServiceProtocol(HttpToolsProtocol):
    """HTTP that tells the application the common name in the verified certificate of a client.

    It also offers to send an answer at once. The messages of ASGI are a write to the socket for the
    headers and another one for the body, and each is looked through for wrong characters.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        name = common_name(transport.get_extra_info("peercert"))
        if name is not None:
            self.app = _with_name(self.app, name)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        scope: Scope = cycle.scope  # type: ignore[assignment]
        scope[REPLY] = lambda status, headers, body: reply(cycle, status, headers, body)
        super()._start_asgi_task(cycle, app)


def reply(cycle: RequestResponseCycle, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole answer in one write. Its headers have its length and no line breaks."""
    if cycle.disconnected:
        return
    is_last = not cycle.keep_alive or CLOSE in headers
    content = [STATUS_LINE[status]]
    for name, value in (*cycle.default_headers, *headers):
        content += (name, b": ", value, b"\r\n")
    if is_last and CLOSE not in headers:
        content.append(b"connection: close\r\n")
    content += (b"\r\n", body)
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"".join(content))
    cycle.message_event.set()
    if is_last:
        cycle.transport.close()
    cycle.on_response()


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

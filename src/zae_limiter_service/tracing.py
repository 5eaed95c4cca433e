"""A span of OpenTelemetry for each request, under the span that the client has sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import propagate, trace

from zae_limiter._version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


def traced(app: ASGIApp, provider: TracerProvider | None = None) -> ASGIApp:
    """Return the application with a span around each request; names have no ids.

    By default the global provider is used.
    """
    tracer = trace.get_tracer("zae_limiter_service", __version__, provider)

    async def with_span(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        carrier = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        context = propagate.extract(carrier)
        with tracer.start_as_current_span(
            f"{scope['method']} zae-limiter", context=context, kind=trace.SpanKind.SERVER
        ) as span:

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            span.set_attribute("http.request.method", scope["method"])
            by_messages = {name: scope[name] for name in scope if name != "zae_limiter.reply"}
            await app(by_messages, receive, sending)

    return with_span

"""The start of the service: sockets, the announcement, then one worker here or several below."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from zae_limiter.exceptions import ValidationError
from zae_limiter.settings import named_namespace
from zae_limiter_service.stores import open_sync
from zae_limiter_service.supervisor import Supervisor
from zae_limiter_service.worker import WorkerPlace, run_loop, run_worker, start_logging

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from zae_limiter_service.settings import ServiceSettings

BACKLOG = 1024


def launch(settings: ServiceSettings, say: Callable[[str], None]) -> None:
    """Serve until a signal comes."""
    start_logging()
    listener = bind(settings.host, settings.port, "port")
    listener.listen(BACKLOG)
    settings = replace(settings, port=listener.getsockname()[1])
    held: socket.socket | None = None
    if settings.grpc_port is not None:
        # Bound and not listening: it keeps the port for the workers, which share it.
        held = bind(settings.host, settings.grpc_port, "grpc_port", shared=True)
        settings = replace(settings, grpc_port=held.getsockname()[1])
    page = make_page(settings, say) if settings.dashboard else None
    envoy = "" if settings.grpc_port is None else f", Envoy's protocol at port {settings.grpc_port}"
    say(f"serving at {settings.address}{envoy}")
    host = settings.advertise or f"{socket.gethostname()}:{settings.port}"
    if settings.workers == 1:
        run_loop(run_worker(settings, WorkerPlace(host), listener, page))
    else:
        Supervisor(settings, host, listener).run()
    listener.close()
    if held is not None:
        held.close()


def bind(host: str, port: int, field: str, *, shared: bool = False) -> socket.socket:
    """Return a bound socket; raise ValidationError if the port cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Event loops send small answers without delay on sockets that say that they are of TCP.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        option = f"--{field.replace('_', '-')}"
        reason = f"cannot be used: {error.strerror}; choose another one with {option}"
        raise ValidationError(field, port, reason) from error
    return bound


def make_page(settings: ServiceSettings, say: Callable[[str], None]) -> ASGIApp:
    """Return the operator's page on the store of the service, and say its address."""
    from urllib.parse import urlsplit

    from zae_limiter_dashboard.app import make_app
    from zae_limiter_dashboard.session import Sessions
    from zae_limiter_dashboard.settings import DashboardSettings
    from zae_limiter_dashboard.store import Stores as PageStores
    from zae_limiter_ops.views.advice import GivenOptions

    public = () if settings.advertise is None else (urlsplit(settings.advertise).netloc,)
    of_page = DashboardSettings(
        host=settings.host,
        port=settings.port,
        certificate=settings.certificate,
        key=settings.key,
        public_hosts=public,
    )
    token, namespace = Sessions.new_token(), named_namespace(settings.namespace)
    say(f"dashboard at {of_page.address}#token={token}")
    stores = PageStores(lambda: open_sync(settings.url, namespace))
    return make_app(stores, of_page, token, GivenOptions(), namespace)

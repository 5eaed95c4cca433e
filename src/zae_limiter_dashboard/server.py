"""The server: a socket on this machine, a token, and a browser that opens the page."""

from __future__ import annotations

import socket
import threading
import webbrowser
from dataclasses import replace
from typing import TYPE_CHECKING

import uvicorn

from zae_limiter.exceptions import ValidationError
from zae_limiter_dashboard.app import make_app
from zae_limiter_dashboard.session import Sessions
from zae_limiter_dashboard.store import Stores

if TYPE_CHECKING:
    from collections.abc import Callable

    from zae_limiter import SyncRepository
    from zae_limiter_dashboard.settings import DashboardSettings
    from zae_limiter_ops.views.advice import GivenOptions

NEXT_PORTS = 20  # tried after the default port if it is taken


def bind(settings: DashboardSettings, *, is_port_named: bool) -> tuple[socket.socket, int]:
    """Return a listening socket and its port; without a named port, the first free one."""
    tries = 1 if is_port_named else NEXT_PORTS
    reason: str | None = None
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    for port in range(settings.port, settings.port + tries):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, port))
        except OSError as error:
            listener.close()
            reason = error.strerror
            continue
        listener.listen(128)
        return listener, listener.getsockname()[1]
    raise ValidationError(
        "port", settings.port, f"cannot be used: {reason}; choose another one with --port"
    )


class DashboardServer:
    """A server of the page. ``url`` contains the token in its fragment, which is never sent."""

    def __init__(
        self,
        open_store: Callable[[], SyncRepository],
        settings: DashboardSettings,
        given: GivenOptions,
        namespace: str,
        *,
        is_port_named: bool = True,
    ) -> None:
        settings.check()
        self._listener, port = bind(settings, is_port_named=is_port_named)
        self.settings = replace(settings, port=port)
        token = Sessions.new_token()
        self.url = f"{self.settings.address}#token={token}"
        app = make_app(Stores(open_store), self.settings, token, given, namespace)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses contain ids
            server_header=False,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            timeout_graceful_shutdown=2,
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until Ctrl-C."""
        self._server.run(sockets=[self._listener])

    def start(self) -> threading.Thread:
        """Serve in a thread, until ``stop``."""
        # Signal handlers belong to the main thread.
        thread = threading.Thread(target=self.run, name="dashboard", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._server.should_exit = True


def open_browser(url: str) -> None:
    """Open the page in a browser of this machine, if there is one."""
    webbrowser.open(url)

"""One worker of the service: its store, its leases, and its servers for HTTP and gRPC."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import uvicorn

from zae_limiter_service.access import open_access
from zae_limiter_service.access_log import AccessLog
from zae_limiter_service.app import ServiceApp
from zae_limiter_service.config_routes import ConfigRoutes
from zae_limiter_service.counters import ServiceCounters
from zae_limiter_service.gate import Gate
from zae_limiter_service.idempotency import KeptAnswers
from zae_limiter_service.lease_routes import LeaseRoutes
from zae_limiter_service.leases import LeaseTable
from zae_limiter_service.openapi import describe
from zae_limiter_service.peers import Peers, answer_message, request_from
from zae_limiter_service.question_routes import QuestionRoutes, own_snapshot
from zae_limiter_service.requests import Routes
from zae_limiter_service.settings import ServiceSettings
from zae_limiter_service.stores import NamespaceStores
from zae_limiter_service.tls import ServiceProtocol, uvicorn_options

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from zae_limiter_service.counters import Snapshot
    from zae_limiter_service.envoy.server import EnvoyServer

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
COLLECTED_AFTER = 20_000  # new objects; Python's own default is 700
CLOSING_S = 5.0  # for the last answers, and for the ends of leases, after the time of draining
KEEP_ALIVE_S = 120  # longer than clients keep an idle connection: Node 4 s, Go 90 s
PATHS = ("tokens", "certificate", "key", "client_ca", "rules")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_logger = logging.getLogger(__name__)


class WorkerPlace(NamedTuple):
    """The host and the number of a worker; ``folder`` has the sockets of all workers."""

    host: str
    number: int = 0
    folder: Path | None = None


class _Server(uvicorn.Server):
    """A server that leaves signals to the worker, which drains before it stops."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ServiceWorker:
    """Serves until ``stop`` is called; then it drains, ends its leases and closes its store."""

    def __init__(
        self,
        settings: ServiceSettings,
        place: WorkerPlace,
        stores: NamespaceStores,
        page: ASGIApp | None = None,
    ) -> None:
        self._settings, self._place, self.stores = settings, place, stores
        self.counters = ServiceCounters()
        self._table = LeaseTable(
            place.host, place.number, self.counters, max_leases=settings.max_leases
        )
        self._peers = Peers(place.number, settings.workers, place.folder)
        self._access = open_access(
            settings.tokens,
            no_auth=settings.no_auth,
            has_client_ca=settings.client_ca is not None,
            namespace=stores.namespace,
        )
        self._log = (
            None if settings.access_log is None else AccessLog(settings.access_log, place.number)
        )
        self._routes = self._make_routes()
        self.app = ServiceApp(
            self._routes,
            Gate(settings, self._access),
            self.counters,
            namespace=stores.namespace,
            max_requests=settings.max_requests,
            log=self._log,
            page=page,
        )
        self._envoy: EnvoyServer | None = None
        if settings.grpc_port is not None:
            from zae_limiter_service.envoy.server import EnvoyServer

            self._envoy = EnvoyServer(settings, stores, self._access, self.counters, self._log)
        self._stopping = asyncio.Event()

    def _make_routes(self) -> Routes:
        leases = LeaseRoutes(self.stores, self._table, KeptAnswers(), self._peers, self._place.host)
        questions = QuestionRoutes(
            self.stores,
            self._settings.url,
            self._peers,
            self._snapshot,
            lambda: self._table.is_closing,
            lambda: describe(self._routes),
        )
        return Routes((*leases.routes(), *questions.routes(), *ConfigRoutes(self.stores).routes()))

    async def serve(self, listener: socket.socket) -> None:
        """Serve on a listening socket until ``stop`` is called."""
        server = _Server(
            uvicorn.Config(
                self._application(),
                http=ServiceProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(CLOSING_S),
                **uvicorn_options(self._settings),
            )
        )
        await self._peers.listen(self._respond)
        if self._envoy is not None:
            await self._envoy.start()
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await self._table.drain(self._settings.drain_s)
        finally:
            stopping.cancel()
            server.should_exit = True
            await self._close(serving)

    def _application(self) -> ASGIApp:
        if not self._settings.telemetry:
            return self.app
        from zae_limiter_service.tracing import traced

        return traced(self.app)

    def stop(self) -> None:
        """Take no new leases, wait for the open ones for a while, then end."""
        self._table.is_closing = True
        self._stopping.set()

    async def _close(self, serving: asyncio.Task[None]) -> None:
        if self._envoy is not None:
            await self._envoy.stop(CLOSING_S)
        await serving
        still_open = await self._table.close(CLOSING_S)
        if still_open:
            _logger.warning("%d leases could not be ended; their holds expire", still_open)
        await self._peers.close()
        await self.stores.close()
        if self._log is not None:
            self._log.close()

    async def _respond(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer another worker."""
        if message.get("ask") == "metrics":
            return {"metrics": self._snapshot()}
        request = request_from(message, self._routes)
        return answer_message(await self.app.perform_forwarded(request))

    def _snapshot(self) -> Snapshot:
        rules = None if self._envoy is None else self._envoy.rules_file
        files = [file for file in (self._access.file, rules) if file is not None]
        return own_snapshot(
            self.counters,
            leases_open=len(self._table),
            requests_in_progress=self.app.in_progress,
            settlements_lost_total=self.stores.lost_settlements(),
            uncharged_total=self.stores.uncharged(),
            file_reloads_total=sum(file.reloads for file in files),
            file_reload_errors_total=sum(file.failed_reloads for file in files),
            workers=1,
        )


async def run_worker(
    settings: ServiceSettings,
    place: WorkerPlace,
    listener: socket.socket,
    page: ASGIApp | None = None,
    parent: int | None = None,
) -> None:
    """Open the store and serve until SIGTERM or SIGINT, or until the pipe of the parent ends."""
    hooks = None
    if settings.telemetry:
        from zae_limiter.telemetry import OpenTelemetryHooks

        hooks = OpenTelemetryHooks()
    stores = await NamespaceStores.open(settings.url, settings.namespace, hooks)
    worker = ServiceWorker(settings, place, stores, page)
    loop = asyncio.get_running_loop()
    for each in STOP_SIGNALS:
        loop.add_signal_handler(each, worker.stop)
    if parent is not None:
        # The parent writes nothing more: the pipe becomes readable when the parent is gone.
        loop.add_reader(parent, _stop_once, loop, parent, worker)
    tune_garbage_collection()
    await worker.serve(listener)


def _stop_once(loop: asyncio.AbstractEventLoop, parent: int, worker: ServiceWorker) -> None:
    loop.remove_reader(parent)
    worker.stop()


def settings_text(settings: ServiceSettings, place: WorkerPlace) -> str:
    """Return the settings as a line of JSON for another process."""
    data = {name: _plain(value) for name, value in asdict(settings).items()}
    return json.dumps([data, place.host, place.number, str(place.folder)])


def parse_settings(text: str) -> tuple[ServiceSettings, WorkerPlace]:
    data, host, number, folder = json.loads(text)
    known = {field.name for field in fields(ServiceSettings)}
    values = {name: value for name, value in data.items() if name in known}
    for name in PATHS:
        values[name] = None if values[name] is None else Path(values[name])
    return ServiceSettings(**values), WorkerPlace(host, number, Path(folder))


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def run_loop(serving: Coroutine[Any, Any, None]) -> None:
    """Run a worker on uvloop, which needs less CPU for each request, except on Windows."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)


def tune_garbage_collection() -> None:
    """Take imported modules out of all later collections, and collect less often.

    Requests leave no cycles behind, and a collection visits every open lease.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AFTER, 20, 20)


def start_logging() -> None:
    """Log to stderr. Malformed requests are not logged: strangers would fill the disk."""
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def main() -> None:
    """Run one of several workers: settings come by stdin, the socket by its number."""
    start_logging()
    settings, place = parse_settings(sys.stdin.readline())
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        run_loop(run_worker(settings, place, listener, parent=sys.stdin.fileno()))


if __name__ == "__main__":
    main()

"""Where the table is and who we are, found once and renewed before it runs out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.transport.choosing import Route, choose
from zae_limiter.transport.errors import NotSent
from zae_limiter.transport.signing import Credentials, Signer
from zae_limiter.transport.sources import Sources, frozen, unusable
from zae_limiter.transport.wire import Endpoint, parse_endpoint

_CHECK_EVERY_S = 1.0
_FRUITLESS_FOR_S = 5.0


class Access(NamedTuple):
    """Everything that a request needs beside its content. Replaced when credentials change."""

    endpoint: Endpoint
    signer: Signer
    credentials: Credentials


class AccessSource:
    """Finds access when it is first needed and renews it.

    That may take seconds (a credential process, a metadata service), so it happens in a thread
    of its own, one at a time; as long as there is some access, nobody waits for a new one.
    """

    def __init__(
        self,
        region: str | None,
        endpoint_url: str | None,
        transport: str = "lean",
        settle: Callable[[Route], None] | None = None,
    ) -> None:
        """``settle`` is told once how requests travel, before there is access."""
        self._region = region
        self._transport = transport
        self._settle = settle
        self._endpoint = parse_endpoint(endpoint_url) if endpoint_url else None
        self._access: Access | None = None
        self._provider: Any = None
        self._check_at = 0.0
        self._fruitless_until = 0.0
        self._pending: Future[Access] | None = None
        self._lock = threading.RLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The thread that was finding it is the parent's."""
        self._lock = threading.RLock()
        self._pending = None

    def current(self) -> Access | None:
        """What is known, None before it is found. Has it renewed when that is due."""
        if self._provider is not None and time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + _CHECK_EVERY_S
            if self._provider.refresh_needed():
                self.find()
        return self._access

    def find(self, refused: Access | None = None) -> Future[Access]:
        """Look it up anew; ``refused`` is known to be of no use any more."""
        with self._lock:
            if self._pending is None:
                self._pending = Future()
                self._pending.set_running_or_notify_cancel()  # so that no waiter can cancel it
                return self._started(self._pending, refused)
            return self._pending

    def _started(self, future: Future[Access], refused: Access | None) -> Future[Access]:
        thread = threading.Thread(
            target=self._find_into, args=(future, refused), daemon=True, name="zael-credentials"
        )
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the process is ending
            self._finished()
            future.set_exception(
                NotSent(f"AWS credentials were not looked up: {error}; try again", cause=error)
            )
        return future

    def _find_into(self, future: Future[Access], refused: Access | None) -> None:
        try:
            access = self._access = self._look_up(self._access, refused)
        except Exception as error:  # noqa: BLE001 - whatever botocore and its helpers raise
            self._finished()
            future.set_exception(unusable(error))
        else:
            self._finished()
            future.set_result(access)

    def _finished(self) -> None:
        with self._lock:
            self._pending = None

    def _look_up(self, known: Access | None, refused: Access | None) -> Access:
        if known is None:
            sources = Sources()
            endpoint, region = sources.place(self._endpoint, self._region)
            route = choose(self._transport, endpoint, sources)
            credentials, self._provider = sources.credentials(endpoint.is_local)
            self._settled(endpoint, route)
            return Access(endpoint, Signer(endpoint, region), credentials)
        if refused is None:
            provider = self._provider
            credentials = known.credentials if provider is None else frozen(provider)
        elif known.credentials != refused.credentials or time.monotonic() < self._fruitless_until:
            return known
        else:
            credentials, self._provider = Sources().credentials(known.endpoint.is_local)
            if credentials == refused.credentials:
                self._fruitless_until = time.monotonic() + _FRUITLESS_FOR_S
        return known._replace(credentials=credentials)

    def _settled(self, endpoint: Endpoint, route: Route) -> None:
        logging.getLogger("zae_limiter").debug(
            "DynamoDB at %s is reached by transport=%r: %s",
            endpoint.url,
            route.transport,
            route.why,
        )
        if self._settle is not None:
            self._settle(route)
            self._settle = None

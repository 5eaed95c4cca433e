"""Where the table is and which credentials to use, looked up once and renewed in time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any, NamedTuple

from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.store_errors import NotSent
from zae_limiter.transport.aws_config import AwsConfig, current_credentials, lookup_error
from zae_limiter.transport.messages import Destination, Endpoint, parse_endpoint
from zae_limiter.transport.proxy import find_proxy
from zae_limiter.transport.signing import Credentials, Signer

logger = quiet_logger(__name__)

# botocore renews credentials minutes before they expire, so asking it once a second is enough.
_CHECK_EVERY_S = 1.0
# If a lookup finds the credentials that were just refused, the next lookup waits this long.
_SAME_CREDENTIALS_S = 5.0


class Access(NamedTuple):
    """The destination, signer and credentials of requests; replaced when credentials change."""

    destination: Destination
    signer: Signer
    credentials: Credentials


class AccessSource:
    """Looks up access when it is first needed, and renews it.

    A lookup may take seconds (a credential process, a metadata service), so it runs in a thread,
    one at a time. Until it ends, requests go on with the access that they have. ``access`` is None
    before the first lookup.
    """

    def __init__(self, region: str | None, endpoint_url: str | None) -> None:
        self._region = region
        self._endpoint = parse_endpoint(endpoint_url) if endpoint_url else None
        self.access: Access | None = None
        self._provider: Any = None
        self.check_at = 0.0
        self._same_credentials_until = 0.0
        self._lookup: Future[Access] | None = None
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Drop a lookup in flight, whose thread exists only in the parent."""
        self._lookup = None

    def current(self) -> Access | None:
        """Return ``access``, and start a renewal if one is due.

        Before ``check_at`` a caller may use ``access`` without calling this.
        """
        if self.access is not None and time.monotonic() >= self.check_at:
            self.check_at = time.monotonic() + _CHECK_EVERY_S
            if self._provider is not None and self._provider.refresh_needed():
                self.look_up()
        return self.access

    def look_up(self, refused: Access | None = None) -> Future[Access]:
        """Start a lookup, or join the one in flight; the server refused ``refused``, if given."""
        with self._lock:
            if self._lookup is None:
                self._lookup = Future()
                self._lookup.set_running_or_notify_cancel()  # so that no waiter can cancel it
                return self._start(self._lookup, refused)
            return self._lookup

    def _start(self, future: Future[Access], refused: Access | None) -> Future[Access]:
        thread = threading.Thread(
            target=self._run, args=(future, refused), daemon=True, name="zael-credentials"
        )
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the process is ending
            self._end_lookup()
            future.set_exception(
                NotSent(f"AWS credentials were not looked up: {error}; try again", cause=error)
            )
        return future

    def _run(self, future: Future[Access], refused: Access | None) -> None:
        try:
            access = self.access = self._find(self.access, refused)
        except Exception as error:  # noqa: BLE001 - whatever botocore and its helpers raise
            self._end_lookup()
            future.set_exception(lookup_error(error))
        else:
            self._end_lookup()
            future.set_result(access)

    def _end_lookup(self) -> None:
        with self._lock:
            self._lookup = None

    def _find(self, access: Access | None, refused: Access | None) -> Access:
        if access is None:
            return self._find_first()
        if refused is None:
            provider = self._provider
            credentials = access.credentials if provider is None else current_credentials(provider)
        elif (
            access.credentials != refused.credentials
            or time.monotonic() < self._same_credentials_until
        ):
            return access
        else:
            is_local = access.destination.endpoint.is_local
            credentials, self._provider = AwsConfig().credentials(is_local)
            if credentials == refused.credentials:
                self._same_credentials_until = time.monotonic() + _SAME_CREDENTIALS_S
        return access._replace(credentials=credentials)

    def _find_first(self) -> Access:
        config = AwsConfig()
        endpoint, region = config.endpoint_and_region(self._endpoint, self._region)
        destination = find_destination(endpoint, config)
        credentials, self._provider = config.credentials(endpoint.is_local)
        logger.debug("DynamoDB is reached at %s", destination)
        return Access(destination, Signer(destination, region), credentials)


def find_destination(endpoint: Endpoint, config: AwsConfig) -> Destination:
    """Find the proxy and the certificates that apply to an endpoint."""
    ca_bundle = config.ca_bundle() if endpoint.scheme == "https" else None
    return Destination(endpoint, find_proxy(endpoint), ca_bundle)

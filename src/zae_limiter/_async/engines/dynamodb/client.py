"""Calls of DynamoDB: signed, sent, parsed, and retried where that is safe."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from zae_limiter.clock import Deadline, ServerClock
from zae_limiter.exceptions import RateLimiterUnavailable, ValidationError
from zae_limiter.items.counters import Counters
from zae_limiter.runtime.calls import asleep
from zae_limiter.store_errors import NotSent
from zae_limiter.transport.access import Access, AccessSource
from zae_limiter.transport.aio import AHttp, aoutcome  # unasync: remove
from zae_limiter.transport.calls import InFlightCall, InFlightCalls, Retries
from zae_limiter.transport.errors import Denied

# sync: from functools import partial
# sync: from zae_limiter.runtime.finishing import shield
# sync: from zae_limiter.transport.threads import Http, outcome
from zae_limiter.transport.messages import HttpResponse
from zae_limiter.transport.proxy import check_forwarded
from zae_limiter.transport.responses import (
    REQUEST_ID,
    date_ms,
    has_error_of_dynamodb,
    parse_response,
)

# A hundred times the usual answer time, and still bearable for the limiter's own callers.
DEFAULT_TIMEOUT_S = 2.0
FIRST_CREDENTIALS_S = 10.0  # a metadata service, a role or a credential process may take seconds
READS = frozenset(
    {
        "BatchGetItem",
        "DescribeContinuousBackups",
        "DescribeTable",
        "DescribeTimeToLive",
        "GetItem",
        "ListTables",
        "ListTagsOfResource",
        "Query",
        "Scan",
        "TransactGetItems",
    }
)
_NAME_NO_TABLE = frozenset(
    {
        "BatchGetItem",
        "BatchWriteItem",
        "ListTables",
        "ListTagsOfResource",
        "TagResource",
        "TransactGetItems",
        "TransactWriteItems",
        "UntagResource",
    }
)
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class DynamoClient:
    """Calls DynamoDB on behalf of one table. May be used by many tasks and threads at once."""

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        request_timeout: float = DEFAULT_TIMEOUT_S,
        server_clock: ServerClock | None = None,
    ) -> None:
        self.table = table
        self.request_timeout = _checked_timeout(request_timeout)
        self.region, self.endpoint_url = region, endpoint_url
        self._access_source = AccessSource(region, endpoint_url)
        self._http = AHttp()
        self._calls_in_flight = InFlightCalls()
        self.counters = Counters()
        self._clock = server_clock
        self._last_date = ""
        self._skew_s = 0.0

    @property
    def answered_s(self) -> float:
        """The moment of the server's last answer, on the monotonic clock."""
        return self._http.answered_s

    def deadline(self) -> Deadline:
        """Return the deadline of a call that begins now."""
        return Deadline(self.request_timeout)

    def call(
        self,
        operation: str,
        body: Mapping[str, Any] | str,
        *,
        deadline: Deadline | None = None,
        repeatable: bool = False,
        throttled: Callable[[], None] | None = None,
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Call one operation with a body in DynamoDB's JSON; a mapping gets the table's name.

        A request that was not carried out is retried within the deadline. If the outcome is
        unknown, only reads and ``repeatable`` requests are retried. ``throttled`` is called
        whenever the item may be written too often. Raises the errors of
        ``zae_limiter.store_errors`` and ``zae_limiter.transport.errors``.
        """
        if not isinstance(body, str):
            if "TableName" not in body and operation not in _NAME_NO_TABLE:
                body = {"TableName": self.table, **body}
            body = _encode(body)
        payload = body.encode()
        retries = Retries(deadline or self.deadline(), repeatable or operation in READS, throttled)
        return self._run(operation, payload, retries)  # unasync: remove
        # sync: return shield(partial(self._run, operation, payload, retries))

    async def _run(self, operation: str, payload: bytes, retries: Retries) -> dict[str, Any]:
        """Sign, send and parse, and try again while ``retries`` or a remedy allows it.

        The sync tree never runs this in the main thread: a signal handler must find no lock held.
        """
        clock, source = self._clock, self._access_source
        renewed: Access | None = None
        remedies: frozenset[str] = frozenset()
        with InFlightCall(self._calls_in_flight):
            while True:
                try:
                    access = renewed or source.access
                    if access is None or time.monotonic() >= source.check_at:
                        access = renewed or source.current() or await self._look_up(retries)
                    timeout, connect_timeout = retries.timeouts()
                    self.counters.calls.add()
                    now_s = time.time() + self._skew_s
                    destination, signer, credentials = access
                    message = signer.message(operation, payload, credentials, now_s)
                    response = await self._http.send(destination, message, timeout, connect_timeout)
                    if response.status != 200:
                        check_forwarded(response, destination)
                        if clock is not None and has_error_of_dynamodb(response):
                            self._observe_date(response, clock)
                    try:
                        content = parse_response(response, operation, self.table)
                        if clock is not None and REQUEST_ID in response.headers:
                            self._observe_date(response, clock)
                        return content
                    except Denied as denied:
                        if denied.remedy in remedies:
                            raise
                        renewed = await self._remedy(denied, response, access, retries)
                        remedies, pause = remedies | {denied.remedy}, 0.0
                except RateLimiterUnavailable as error:
                    renewed, remedies = None, frozenset()
                    pause = retries.pause_after(error)
                    self.counters.add(retries=1)
                if pause:
                    await asleep(pause)

    async def close(self) -> None:
        """Wait for calls in flight and close all connections; a second time does nothing."""
        with suppress(TimeoutError):  # calls with a longer deadline lose their connections
            await aoutcome(self._calls_in_flight.close(), self.request_timeout)
        await self._http.close()

    def _observe_date(self, response: HttpResponse, clock: ServerClock) -> None:
        """Set the clock by an answer of DynamoDB's own; most repeat the date of the last one."""
        date, sent_ns = response.headers.get("date", ""), response.sent_ns
        if date == self._last_date and sent_ns < clock.urgent_from_ns:
            clock.repeated_sent_ns = sent_ns
            clock.repeated += 1
            return
        self._last_date = date
        server_ms = date_ms(date)
        if server_ms is not None:
            clock.observe(server_ms, sent_ns, response.received_ns)

    async def _remedy(
        self, denied: Denied, response: HttpResponse, access: Access, retries: Retries
    ) -> Access:
        """Return the access for another attempt; raises ``denied`` if none would help."""
        if denied.remedy == "clock" and self._sign_by_server_time(response):
            return access
        if denied.remedy != "credentials":
            raise denied
        renewed = await self._look_up(retries, access)
        if renewed.credentials == access.credentials:
            raise denied
        return renewed

    async def find_credentials(self) -> None:
        """Wait for the first credentials, within a time of their own, before the first call.

        A role or a credential process may take longer than a call is allowed to.
        """
        if self._access_source.access is None:
            await self._found_within(FIRST_CREDENTIALS_S, None)

    async def _look_up(self, retries: Retries, refused: Access | None = None) -> Access:
        timeout, _ = retries.timeouts()
        return await self._found_within(timeout, refused)

    async def _found_within(self, timeout: float, refused: Access | None) -> Access:
        try:
            return await aoutcome(self._access_source.look_up(refused), timeout)
        except TimeoutError as error:
            raise NotSent(
                "AWS credentials were not found in time; a credential process, the metadata "
                "service or a role may be slow",
                cause=error,
            ) from error

    def _sign_by_server_time(self, response: HttpResponse) -> bool:
        """Use the server's time in signatures from now on; False if its date is unusable."""
        server_ms = date_ms(response.headers.get("date", ""))
        if server_ms is None:
            return False
        self._skew_s = server_ms / 1000 - time.time()
        return True


def _checked_timeout(seconds: object) -> float:
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < inf:
        return float(seconds)
    raise ValidationError("request_timeout", seconds, "must be a number of seconds above 0")

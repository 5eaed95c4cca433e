"""Calls of DynamoDB: signed, sent, read, and made again where that is safe."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from zae_limiter.clock import ServerClock
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.exceptions import RateLimiterUnavailable, ValidationError
from zae_limiter.store_url import check_transport
from zae_limiter.transport.access import Access, AccessSource
from zae_limiter.transport.aio import AHttp, aoutcome, asleep  # unasync: remove
from zae_limiter.transport.answers import date_ms, read_answer
from zae_limiter.transport.choosing import Route
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import Denied, NotSent
from zae_limiter.transport.flights import Flight, Flights
from zae_limiter.transport.retries import Retries
from zae_limiter.transport.sdk_aio import SdkHttp  # unasync: remove

# sync: from zae_limiter.concurrency.shield import shield
# sync: from zae_limiter.transport.sdk_threads import SdkHttp
# sync: from zae_limiter.transport.threads import Http, outcome, sleep
from zae_limiter.transport.wire import RawAnswer, Request

DEFAULT_TIMEOUT_S = 2.0
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
    """One table. May be used by many tasks and threads at once."""

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        request_timeout: float = DEFAULT_TIMEOUT_S,
        server_clock: ServerClock | None = None,
        transport: str = "auto",
    ) -> None:
        self.table = table
        self.request_timeout = _checked_timeout(request_timeout)
        self._source = AccessSource(region, endpoint_url, check_transport(transport), self._settle)
        self._http: AHttp | SdkHttp = AHttp()
        self._flights = Flights()
        self.counters = Counters()
        self._clock = server_clock
        self._last_date = ""
        self._skew_s = 0.0

    def _settle(self, route: Route) -> None:
        if route.transport == "sdk":
            self._http = SdkHttp(route)

    def deadline(self) -> Deadline:
        """The request timeout, from now on."""
        return Deadline(self.request_timeout)

    async def call(
        self,
        operation: str,
        body: Mapping[str, Any] | str,
        *,
        deadline: Deadline | None = None,
        repeatable: bool = False,
        throttled: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """One operation, in DynamoDB's JSON. Adds the table's name to a mapping without it.

        Made again within the deadline when it was not carried out, and in doubt only if it reads
        or is ``repeatable``. ``throttled`` is told each time there is no throughput left. Raises
        the errors of ``zae_limiter.transport.errors``.
        """
        if not isinstance(body, str):
            if "TableName" not in body and operation not in _NAME_NO_TABLE:
                body = {"TableName": self.table, **body}
            body = _encode(body)
        payload = body.encode()
        retries = Retries(deadline or self.deadline(), repeatable or operation in READS, throttled)
        return await self._made(operation, payload, retries)  # unasync: remove
        # sync: return shield(lambda: self._made(operation, payload, retries))

    def update(
        self, body: str, deadline: Deadline, throttled: Callable[[], None] | None = None
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Make an UpdateItem, like ``call``, which it saves some time."""
        payload, retries = body.encode(), Retries(deadline, False, throttled)
        return self._made("UpdateItem", payload, retries)  # unasync: remove
        # sync: return shield(lambda: self._made("UpdateItem", payload, retries))

    async def _made(self, operation: str, payload: bytes, retries: Retries) -> dict[str, Any]:
        """In the sync tree never in the main thread: a signal handler must find no lock held."""
        flight = Flight(self._flights)
        try:
            while True:
                try:
                    return await self._attempt(operation, payload, retries)
                except RateLimiterUnavailable as error:
                    pause = retries.pause_after(error)
                    self.counters.add(retries=1)
                if pause:
                    await asleep(pause)
        finally:
            flight.end()

    async def close(self) -> None:
        """Finish what is under way and let go of all connections. May be called twice."""
        with suppress(TimeoutError):  # calls with a longer deadline lose their connections
            await aoutcome(self._flights.close(), self.request_timeout)
        await self._http.close()

    async def _attempt(
        self,
        operation: str,
        payload: bytes,
        retries: Retries,
        access: Access | None = None,
        tried: frozenset[str] = frozenset(),
    ) -> dict[str, Any]:
        """Sign, send and read; again if other credentials or another time may help."""
        access = access or self._source.current() or await self._find_access(retries)
        timeout, connect_timeout = retries.timeouts()
        self.counters.called()
        now_s = time.time() + self._skew_s
        message = access.signer.message(operation, payload, access.credentials, now_s)
        clock = self._clock
        sent_ns = 0 if clock is None else clock.boot_ns()
        answer = await self._http.send(Request(access.endpoint, message), timeout, connect_timeout)
        if clock is not None:
            date = answer.headers.get("date")
            if date is not None and date != self._last_date:
                self._note_date(date, clock, sent_ns)
        try:
            return read_answer(answer, operation, self.table)
        except Denied as error:
            access = await self._remedied(error, answer, access, tried, retries)
            tried |= {error.remedy}
        return await self._attempt(operation, payload, retries, access, tried)

    def _note_date(self, date: str, clock: ServerClock, sent_ns: int) -> None:
        self._last_date = date
        server_ms = date_ms(date)
        if server_ms is not None:
            clock.observe(server_ms, sent_ns, clock.boot_ns())

    async def _remedied(
        self,
        error: Denied,
        answer: RawAnswer,
        access: Access,
        tried: frozenset[str],
        retries: Retries,
    ) -> Access:
        """What to ask with now; raises if nothing is left that may help."""
        if error.remedy in tried:
            raise error
        if error.remedy == "clock" and self._adopt_date(answer):
            return access
        if error.remedy != "credentials":
            raise error
        found = await self._find_access(retries, access)
        if found.credentials == access.credentials:
            raise error
        return found

    async def _find_access(self, retries: Retries, refused: Access | None = None) -> Access:
        timeout, _ = retries.timeouts()
        try:
            return await aoutcome(self._source.find(refused), timeout)
        except TimeoutError as error:
            raise NotSent(
                "AWS credentials were not found in time; a credential process, the metadata "
                "service or a role may be slow",
                cause=error,
            ) from error

    def _adopt_date(self, answer: RawAnswer) -> bool:
        """Sign by the server's time from now on; False if it does not tell it."""
        server_ms = date_ms(answer.headers.get("date", ""))
        if server_ms is None:
            return False
        self._skew_s = server_ms / 1000 - time.time()
        return True


def _checked_timeout(seconds: object) -> float:
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < inf:
        return float(seconds)
    raise ValidationError("request_timeout", seconds, "must be a number of seconds above 0")

"""The open leases of one worker: they are settled, rolled back, or end after their time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.exceptions import RateLimitExceeded, ZAELimiterError
from zae_limiter.headers import rate_limit_headers
from zae_limiter.models.limit import plain_amounts
from zae_limiter.models.status import least_available
from zae_limiter_service import lease_calls
from zae_limiter_service.answers import Answer, json_answer, overloaded, problem, rejection
from zae_limiter_service.lease_ids import id_prefix, new_secret

if TYPE_CHECKING:
    from zae_limiter import Lease, RateLimiter
    from zae_limiter._async.acquire import Acquire
    from zae_limiter_service.counters import ServiceCounters
    from zae_limiter_service.lease_calls import LeaseChange, LeaseRequest

REMEMBERED_S = 600.0  # for so long a repeated settlement gets the first answer
MAX_REMEMBERED = 100_000
ENDING_AT_ONCE = 64  # leases whose ends are written at the same time
UNKNOWN = problem(
    404, "unknown-lease", "there is no such lease: it ended long ago, or the service was restarted"
)
SETTLING = problem(
    409, "settling", "the store has not confirmed a settlement of this lease: repeat that one"
)
GRANTED = ("decisions_total", (("transport", "http"), ("result", "granted")))
REJECTED = ("decisions_total", (("transport", "http"), ("result", "rejected")))
_logger = logging.getLogger(__name__)


class RolledBack(Exception):
    """The reason with which a block ends whose charges are given back."""


@dataclass(slots=True, eq=False)
class OpenLease:
    """A lease whose block is open."""

    lease_id: str
    namespace: str
    request: LeaseRequest
    block: Acquire
    lease: Lease
    charged: dict[str, Mapping[str, Any]]  # by resource
    clock: Callable[[], int]  # the time of the store, in milliseconds
    expires_at_s: float
    timer: asyncio.TimerHandle | None = None
    lives: int = 0  # counts the starts of its timer; an expiry is valid for one start
    settling: LeaseChange | None = None  # a settlement that the store has not confirmed
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def answer(self, status: int, amounts: Mapping[str, Any], *, has_ended: bool = False) -> Answer:
        """Return an answer with the lease, its cost and its headers."""
        statuses, resource = self.lease.statuses, self.request.resource
        own = [each for each in statuses if each.resource == resource]
        record = {
            "id": self.lease_id,
            "entity": self.request.entity,
            "resource": resource,
            "amounts": plain_amounts(amounts),
            "remaining": plain_amounts(least_available(own)),
        }
        if not has_ended:
            moment = datetime.fromtimestamp(self.expires_at_s, UTC)
            record["expires_at"] = moment.isoformat(timespec="milliseconds")
        headers = rate_limit_headers(statuses, now_ms=self.clock())
        return json_answer(status, record, tuple(headers.items()))


class EndedLease(NamedTuple):
    """The end of a lease, for requests that come after it."""

    how: str  # settled, rolled_back or expired
    namespace: str
    change: LeaseChange | None
    answer: Answer
    forgotten_at: float


class LeaseTable:
    """Holds the leases of one worker. ``host`` and ``worker`` become part of their ids."""

    def __init__(
        self,
        host: str,
        worker: int,
        counters: ServiceCounters,
        *,
        max_leases: int,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._id_prefix = id_prefix(host, worker)
        self._counters = counters
        self._max_leases = max_leases
        self._seconds = seconds
        self._open: dict[str, OpenLease] = {}
        self._ended: dict[str, EndedLease] = {}  # the oldest first
        self._arriving = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(ENDING_AT_ONCE)
        self.is_closing = False
        self._is_empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    # --- operations

    async def acquire(self, limiter: RateLimiter, namespace: str, request: LeaseRequest) -> Answer:
        """Return 201 with a new lease, or 429 with the rejection."""
        if self.is_closing:
            return overloaded("stopping", "this service is stopping; ask another one")
        if len(self._open) + self._arriving >= self._max_leases:
            return overloaded("too-many-leases", "too many leases are open; settle or delete some")
        block = lease_calls.begin(limiter, request)
        self._arriving += 1
        try:
            lease = await block.__aenter__()
        except RateLimitExceeded as rejected:
            self._counters.add(*REJECTED)
            return rejection(rejected)
        finally:
            self._arriving -= 1
        # From here to the table nothing awaits, so no lease gets lost on the way.
        charged = lease_calls.charged(lease, request)
        entry = OpenLease(
            self._id_prefix + new_secret(),
            namespace,
            request,
            block,
            lease,
            charged,
            lease_calls.clock(limiter),
            time.time() + request.ttl_s,
        )
        self._open[entry.lease_id] = entry
        self._set_timer(entry, request.ttl_s)
        self._counters.add(*GRANTED)
        return entry.answer(201, charged[request.resource])

    async def settle(self, lease_id: str, change: LeaseChange) -> Answer:
        """End a lease at its true cost. The same settlement again gets the same answer."""

        async def end(entry: OpenLease) -> Answer:
            entry.settling = change
            try:
                await lease_calls.settle(entry.lease, change)
            except ZAELimiterError as error:
                if isinstance(error, ValueError):  # wrong amounts: another settlement may follow
                    entry.settling = None
                raise
            await entry.block.__aexit__(None, None, None)
            return entry.answer(200, entry.lease.consumed, has_ended=True)

        def again(ended: EndedLease) -> Answer:
            if ended.how == "settled" and ended.change == change:
                return ended.answer
            return _conflict(ended)

        def may_end(entry: OpenLease) -> bool:
            return entry.settling is None or entry.settling == change

        return await self._end(lease_id, "settled", change, end, again, may_end)

    async def roll_back(self, lease_id: str) -> Answer:
        """End a lease as if it had never been: all charges are given back."""

        async def end(entry: OpenLease) -> Answer:
            await lease_calls.give_back(entry.lease, entry.charged)
            reason = RolledBack()
            await entry.block.__aexit__(RolledBack, reason, None)
            return Answer(204)

        def again(ended: EndedLease) -> Answer:
            return ended.answer if ended.how == "rolled_back" else _conflict(ended)

        def may_end(entry: OpenLease) -> bool:
            return entry.settling is None

        return await self._end(lease_id, "rolled_back", None, end, again, may_end)

    async def adjust(self, lease_id: str, change: LeaseChange) -> Answer:
        """Add to the cost of a lease; it is written when the lease ends."""

        async def act(entry: OpenLease) -> Answer:
            await lease_calls.adjust(entry.lease, change)
            return entry.answer(200, entry.lease.consumed)

        return await self._within(lease_id, act)

    async def renew(self, lease_id: str, ttl_s: float | None) -> Answer:
        """Let a lease live for its time again, or for another time."""

        async def act(entry: OpenLease) -> Answer:
            lifetime_s = entry.request.ttl_s if ttl_s is None else ttl_s
            entry.expires_at_s = time.time() + lifetime_s
            self._set_timer(entry, lifetime_s)
            return entry.answer(200, entry.lease.consumed)

        return await self._within(lease_id, act)

    def namespace_of(self, lease_id: str) -> str | None:
        """Return the namespace of a lease, open or ended; None if it is not known."""
        entry = self._open.get(lease_id) or self._ended.get(lease_id)
        return None if entry is None else entry.namespace

    # --- ends

    async def _end(
        self,
        lease_id: str,
        how: str,
        change: LeaseChange | None,
        end: Callable[[OpenLease], Awaitable[Answer]],
        again: Callable[[EndedLease], Answer],
        may_end: Callable[[OpenLease], bool],
    ) -> Answer:
        entry = self._open.get(lease_id)
        if entry is not None:
            async with entry.lock:
                if lease_id in self._open:
                    if not may_end(entry):
                        return SETTLING
                    answer = await end(entry)
                    self._note_end(entry, how, change, answer)
                    return answer
        ended = self._ended.get(lease_id)
        return UNKNOWN if ended is None else again(ended)

    async def _within(self, lease_id: str, act: Callable[[OpenLease], Awaitable[Answer]]) -> Answer:
        entry = self._open.get(lease_id)
        if entry is not None:
            async with entry.lock:
                if lease_id in self._open:
                    return await act(entry) if entry.settling is None else SETTLING
        ended = self._ended.get(lease_id)
        return UNKNOWN if ended is None else _conflict(ended)

    def _note_end(
        self, entry: OpenLease, how: str, change: LeaseChange | None, answer: Answer
    ) -> None:
        del self._open[entry.lease_id]
        if entry.timer is not None:
            entry.timer.cancel()
        if self.is_closing and not self._open:
            self._is_empty.set()
        now = self._seconds()
        while self._ended:
            oldest = next(iter(self._ended))
            if self._ended[oldest].forgotten_at > now and len(self._ended) < MAX_REMEMBERED:
                break
            del self._ended[oldest]
        self._ended[entry.lease_id] = EndedLease(
            how, entry.namespace, change, answer, now + REMEMBERED_S
        )
        self._counters.add("leases_ended_total", (("how", how),))

    # --- time

    def _set_timer(self, entry: OpenLease, ttl_s: float) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
        loop = asyncio.get_running_loop()
        entry.lives += 1
        entry.timer = loop.call_later(ttl_s, self._begin_expiry, entry, entry.lives)

    def _begin_expiry(self, entry: OpenLease, life: int) -> None:
        task = asyncio.get_running_loop().create_task(self._expire(entry, life))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _expire(self, entry: OpenLease, life: int) -> None:
        """End a lease whose time is over: rates keep the estimate, holds return."""
        async with self._places, entry.lock:
            if entry.lease_id not in self._open or entry.lives != life:
                return  # it has ended, or was renewed while this waited
            try:
                resources = (entry.request.resource, *entry.request.also)
                if await lease_calls.end_expired(entry.lease, resources, entry.settling):
                    await entry.block.__aexit__(None, None, None)
            except ZAELimiterError:
                _logger.exception("a lease of %r could not be ended", entry.request.resource)
            answer = problem(
                410, "expired", "the lease has expired: rates keep the estimate, holds returned"
            )
            self._note_end(entry, "expired", None, answer)

    async def drain(self, within_s: float) -> None:
        """Take no new leases, and wait for clients to end the open ones, for a bounded time."""
        self.is_closing = True
        if self._open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), within_s)

    async def close(self, within_s: float) -> int:
        """End all leases as if their time were over; return the number of those still open."""
        self.is_closing = True
        for entry in list(self._open.values()):
            if entry.timer is not None:
                entry.timer.cancel()
            self._begin_expiry(entry, entry.lives)
        if self._ending:
            await asyncio.wait(self._ending, timeout=within_s)
        return len(self._open)


def _conflict(ended: EndedLease) -> Answer:
    if ended.how == "expired":
        return ended.answer
    words = ended.how.replace("_", " ")
    return problem(409, "lease-ended", f"the lease was {words} before; acquire a new one")

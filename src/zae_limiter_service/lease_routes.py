"""Routes of leases. A request goes to the worker that holds its lease, or its key."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from zae_limiter_service.access import LEASING
from zae_limiter_service.answers import Answer, problem, refused
from zae_limiter_service.fields import (
    ALSO,
    AMOUNTS,
    ENTITY,
    RESOURCE,
    SIGNED_ALSO,
    SIGNED_AMOUNTS,
    Field,
    fields,
    seconds,
)
from zae_limiter_service.idempotency import MAX_KEY
from zae_limiter_service.lease_calls import LeaseChange, LeaseRequest
from zae_limiter_service.lease_ids import parse_lease_id
from zae_limiter_service.leases import UNKNOWN
from zae_limiter_service.requests import Route
from zae_limiter_service.settings import DEFAULT_TTL_S, MAX_TTL_S, MAX_WAIT_S

if TYPE_CHECKING:
    from zae_limiter_service.idempotency import KeptAnswers
    from zae_limiter_service.leases import LeaseTable
    from zae_limiter_service.peers import Peers
    from zae_limiter_service.requests import ServiceRequest
    from zae_limiter_service.stores import NamespaceStores

LEAST_TTL_S = 0.1
TTL = seconds(LEAST_TTL_S, MAX_TTL_S)
ACQUIRE_BODY = fields(
    Field("entity", ENTITY, True, "Who asks"),
    Field("resource", RESOURCE, True, "What is used"),
    Field("amounts", AMOUNTS, True, "Amount of each limit; money is text"),
    Field("also", ALSO, text="Amounts of further resources, all or none"),
    Field("timeout", seconds(0, MAX_WAIT_S), text="Seconds to wait for capacity"),
    Field("ttl", TTL, text=f"Seconds after which the lease ends; {DEFAULT_TTL_S:g} by default"),
)
SETTLE_BODY = fields(
    Field("amounts", AMOUNTS, True, "True cost of each limit"),
    Field("also", ALSO, text="True cost on further resources"),
)
ADJUST_BODY = fields(
    Field("amounts", SIGNED_AMOUNTS, True, "Change of each limit"),
    Field("also", SIGNED_ALSO, text="Change on further resources"),
)
RENEW_BODY = fields(Field("ttl", TTL, text="Seconds from now; default: those of the acquire"))

Act = Callable[[str], Awaitable[Answer]]
_PROBLEMS = {400: "Problem", 401: "Problem", 403: "Problem", 503: "Problem"}
_OF_LEASE = {**_PROBLEMS, 404: "Problem", 409: "Problem", 410: "Problem", 421: "Problem"}


class LeaseRoutes:
    """Acquires, settles, adjusts, renews and rolls back."""

    def __init__(
        self, stores: NamespaceStores, table: LeaseTable, kept: KeptAnswers, peers: Peers, host: str
    ) -> None:
        self._stores, self._table, self._kept, self._peers = stores, table, kept, peers
        self._host = host

    def routes(self) -> tuple[Route, ...]:
        lease = "/v1/leases/{id}"
        return (
            Route(
                "POST",
                "/v1/leases",
                self.acquire,
                LEASING,
                "Acquire: take all amounts, or none",
                {201: "Lease", **_PROBLEMS, 404: "Problem", 422: "Problem", 429: "Rejection"},
                body=ACQUIRE_BODY,
                takes_key=True,
            ),
            Route(
                "POST",
                f"{lease}/settle",
                self.settle,
                LEASING,
                "Settle: end the lease at its true cost",
                {200: "SettledLease", **_OF_LEASE},
                body=SETTLE_BODY,
                takes_key=True,
            ),
            Route(
                "POST",
                f"{lease}/adjust",
                self.adjust,
                LEASING,
                "Adjust: add to the cost of the lease",
                {200: "Lease", **_OF_LEASE},
                body=ADJUST_BODY,
                takes_key=True,
            ),
            Route(
                "POST",
                f"{lease}/renew",
                self.renew,
                LEASING,
                "Renew: let the lease live longer",
                {200: "Lease", **_OF_LEASE},
                body=RENEW_BODY,
                takes_key=True,
            ),
            Route(
                "DELETE",
                lease,
                self.roll_back,
                LEASING,
                "Roll back: give all amounts back",
                {204: "", **_OF_LEASE},
            ),
        )

    async def acquire(self, request: ServiceRequest) -> Answer:
        """Acquire here; with a key, in the worker that keeps the answers of that key."""
        values = request.fields()
        wanted = LeaseRequest(
            values["entity"],
            values["resource"],
            values["amounts"],
            values["also"] or {},
            values["timeout"],
            DEFAULT_TTL_S if values["ttl"] is None else values["ttl"],
        )

        async def perform() -> Answer:
            limiter = await self._stores.limiter(request.namespace)
            return await self._table.acquire(limiter, request.namespace, wanted)

        if request.idempotency_key is None:
            return await perform()
        owner = self._peers.owner_of_key(zlib.crc32(request.idempotency_key.encode()))
        if owner != self._peers.own:
            return await self._peers.forward(owner, request)
        return await self._once(request, wanted, perform)

    async def settle(self, request: ServiceRequest) -> Answer:
        change = _change(request)
        return await self._at_owner(request, lambda lease: self._table.settle(lease, change))

    async def adjust(self, request: ServiceRequest) -> Answer:
        change = _change(request)
        return await self._at_owner(request, lambda lease: self._table.adjust(lease, change))

    async def renew(self, request: ServiceRequest) -> Answer:
        ttl_s = request.fields()["ttl"]
        return await self._at_owner(request, lambda lease: self._table.renew(lease, ttl_s))

    async def roll_back(self, request: ServiceRequest) -> Answer:
        return await self._at_owner(request, self._table.roll_back)

    async def _at_owner(self, request: ServiceRequest, act: Act) -> Answer:
        """Act on a lease of this worker; hand the request to the worker or host that has it."""
        lease_id = request.arguments[0]
        parsed = parse_lease_id(lease_id)
        if parsed is None:
            return UNKNOWN
        if parsed.host != self._host:
            return problem(
                421,
                "other-host",
                "another host holds this lease: send the request to its owner",
                owner=parsed.owner_url,
            )
        if parsed.worker != self._peers.own:
            return await self._peers.forward(parsed.worker, request)
        namespace = self._table.namespace_of(lease_id)
        if namespace is None or not request.caller.may_enter(namespace):
            return UNKNOWN
        if request.idempotency_key is None:
            return await act(lease_id)
        return await self._once(request, request.body, lambda: act(lease_id))

    async def _once(
        self, request: ServiceRequest, fingerprint: object, perform: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        assert request.idempotency_key is not None
        scope = (
            request.caller.name,
            request.namespace,
            request.route.path,
            *request.arguments,
            request.idempotency_key,
        )
        return await self._kept.perform(scope, fingerprint, perform)


def check_key(text: str | None) -> str | None:
    """Return the value of the header; raise if it cannot be a key."""
    if text is None:
        return None
    if not 0 < len(text) <= MAX_KEY or not text.isascii() or not text.isprintable():
        raise refused(
            400, "bad-key", f"Idempotency-Key must have 1 to {MAX_KEY} printable characters"
        )
    return text


def _change(request: ServiceRequest) -> LeaseChange:
    values = request.fields()
    return LeaseChange(values["amounts"], values["also"] or {})

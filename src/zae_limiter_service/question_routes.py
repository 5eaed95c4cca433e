"""Routes that ask and change nothing: checks, explanations, health, metrics, the description."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import plain_amounts
from zae_limiter_service.access import LOOKING, READING
from zae_limiter_service.answers import Answer, json_answer, overloaded, problem
from zae_limiter_service.counters import render
from zae_limiter_service.fields import AMOUNTS, ENTITY, RESOURCE, TEXT, Field, fields
from zae_limiter_service.requests import OF_NAMESPACE, PROBLEMS, Route
from zae_limiter_service.stores import open_sync

if TYPE_CHECKING:
    from zae_limiter_service.counters import ServiceCounters, Snapshot
    from zae_limiter_service.peers import Peers
    from zae_limiter_service.requests import ServiceRequest
    from zae_limiter_service.stores import NamespaceStores

READY_WITHIN_S = 1.0
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_ENTITY = Field("entity", ENTITY, True, "Who asks")
_RESOURCE = Field("resource", RESOURCE, True, "What is used")
CHECK_BODY = fields(
    _ENTITY, _RESOURCE, Field("amounts", AMOUNTS, text="Amount of each limit; default: none")
)
EXPLAIN_QUERY = fields(
    _ENTITY,
    _RESOURCE,
    Field("consume", TEXT, text="Amounts such as rpm=1,tpm=500; default: as in the command"),
    OF_NAMESPACE,
)


class QuestionRoutes:
    """Answers questions about limits and about the service itself."""

    def __init__(
        self,
        stores: NamespaceStores,
        url: str | None,
        peers: Peers,
        snapshot: Callable[[], Snapshot],
        is_stopping: Callable[[], bool],
        description: Callable[[], dict[str, Any]],
    ) -> None:
        self._stores, self._url, self._peers = stores, url, peers
        self._snapshot = snapshot
        self._is_stopping = is_stopping
        self._description = description

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                "POST",
                "/v1/check",
                self.check,
                LOOKING,
                "Tell whether an acquire would be admitted; nothing is charged",
                {200: "Check", **PROBLEMS},
                body=CHECK_BODY,
            ),
            Route(
                "GET",
                "/v1/explain",
                self.explain,
                LOOKING,
                "Explain the answer to the next acquire, as zae-limiter explain does",
                {200: "Explanation", **PROBLEMS},
                query=EXPLAIN_QUERY,
            ),
            Route(
                "GET",
                "/v1/openapi.json",
                self.openapi,
                LOOKING,
                "Return this document",
                {200: "Description", 401: "Problem"},
            ),
            Route(
                "GET", "/healthz", self.healthz, None, "Tell that the service runs", {200: "Health"}
            ),
            Route(
                "GET",
                "/readyz",
                self.readyz,
                None,
                "Tell whether the store answers and new leases are taken",
                {200: "Health", 503: "Problem"},
            ),
            Route(
                "GET",
                "/metrics",
                self.metrics,
                READING,
                "Return the counters of all workers of this host, for Prometheus",
                {200: "Text", 401: "Problem", 403: "Problem"},
            ),
        )

    async def check(self, request: ServiceRequest) -> Answer:
        values = request.fields()
        limiter = await self._stores.limiter(request.namespace)
        found = await limiter.check_availability(
            values["entity"], values["resource"], values["amounts"]
        )
        wait_s = found.retry_after_seconds
        return json_answer(
            200,
            {
                "available": found.available,
                "retry_after_seconds": None if math.isinf(wait_s) else wait_s,
                "limits": [status.as_dict() for status in found.statuses],
            },
        )

    async def explain(self, request: ServiceRequest) -> Answer:
        query = request.query
        amounts = _parse_amounts(query["consume"])
        data = await asyncio.to_thread(
            _explain, self._url, request.namespace, query["entity"], query["resource"], amounts
        )
        return json_answer(200, data)

    async def openapi(self, _request: ServiceRequest) -> Answer:
        return json_answer(200, self._description())

    async def healthz(self, _request: ServiceRequest) -> Answer:
        return json_answer(200, {"status": "ok"})

    async def readyz(self, _request: ServiceRequest) -> Answer:
        if self._is_stopping():
            return overloaded("stopping", "this service is stopping")
        limiter = await self._stores.limiter(self._stores.namespace)
        if not await limiter.is_available(READY_WITHIN_S):
            return problem(503, "unavailable", "the store does not answer")
        return json_answer(200, {"status": "ok"})

    async def metrics(self, _request: ServiceRequest) -> Answer:
        others = await self._peers.gather({"ask": "metrics"})
        snapshots = [self._snapshot(), *(answer["metrics"] for answer in others)]
        return Answer(200, render(snapshots).encode(), (), PROMETHEUS)


def own_snapshot(counters: ServiceCounters, **gauges: float) -> Snapshot:
    """Return the counters of this worker with values that are read at this moment."""
    return [*counters.snapshot(), *([name, [], value] for name, value in gauges.items())]


def _parse_amounts(text: str | None) -> dict[str, int] | None:
    if text is None:
        return None
    amounts: dict[str, int] = {}
    for pair in text.split(","):
        name, equals, number = pair.partition("=")
        is_number = number.isascii() and number.isdecimal() and len(number) <= 15
        if not (name and equals and is_number):
            raise ValidationError("consume", text, "must be name=amount pairs, such as rpm=1,tpm=5")
        amounts[name] = int(number)
    return amounts


def _explain(
    url: str | None, namespace: str, entity: str, resource: str, amounts: dict[str, int] | None
) -> dict[str, Any]:
    """Explain an acquire as the command does."""
    from zae_limiter import SyncRateLimiter
    from zae_limiter_ops.views.advice import GivenOptions
    from zae_limiter_ops.views.explanation import explain_acquire, explanation_json

    with open_sync(url, namespace) as repository:
        found = explain_acquire(
            SyncRateLimiter(repository), entity, resource, amounts, given=GivenOptions()
        )
    data = explanation_json(found)
    return {**data, "consume": plain_amounts(data["consume"])}

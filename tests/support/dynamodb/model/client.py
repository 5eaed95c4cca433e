"""The client of a model table: the wire between an engine and the table, with faults on it."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from sim.virtual_time import VirtualTime
from tests.support.dynamodb.model.table import ModelTable, Refusal
from zae_limiter._async.engines.dynamodb.client import READS
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable
from zae_limiter.items.counters import Counters
from zae_limiter.store_errors import ConditionFailed, NoAnswer, NotSent, ServerFault, Throttled
from zae_limiter.transport.calls import Retries
from zae_limiter.transport.errors import Reason, Refused, TransactionCanceled

WRITES = frozenset({"UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"})
FAULTS = (
    "not_sent",
    "throttled",
    "fault_before",
    "fault_after",
    "lost_request",
    "lost_answer",
    "late",
    "closed_idle",
    "closed_idle_late",
)
DAY_S = 86_400.0


class Network:
    """Decides how long messages take, and which of them are lost. ``rate`` is that of faults."""

    def __init__(self, chance: random.Random, *, rate: float = 0.0, slow_s: float = 0.02) -> None:
        self.chance, self.rate, self.slow_s = chance, rate, slow_s
        self.kinds: tuple[str, ...] = FAULTS
        self.longest_late_s = 3 * 3600.0
        self.counts: Counter[str] = Counter()
        self.open_late = 0  # originals that are still to arrive

    def fate(self, operation: str) -> str:
        if self.rate and self.chance.random() < self.rate:
            kind = self.chance.choice(self.kinds)
            if operation in READS and kind in ("late", "closed_idle_late"):
                kind = "lost_answer"
            self.counts[kind] += 1
            return kind
        return "delivered"

    def latency_s(self) -> float:
        return self.chance.random() * self.slow_s

    def late_s(self) -> float:
        """How long after the client has given up an original arrives."""
        longest = self.chance.choice((0.01, 1.0, 60.0, self.longest_late_s))
        return self.chance.random() * longest


class ModelClient:
    """What the engine knows as a ``DynamoClient``.

    ``die()`` is a kill -9: what was sent may still arrive, nothing is answered any more.
    """

    def __init__(
        self,
        table: ModelTable,
        loop: VirtualTime,
        network: Network,
        *,
        request_timeout: float = 2.0,
    ) -> None:
        self.table = table.name
        self.request_timeout = request_timeout
        self.counters = Counters()
        self.answered_s = 0.0
        self.is_dead = False
        self.calls: Counter[str] = Counter()
        self._model, self._loop, self._network = table, loop, network
        self.applied: list[tuple[str, Mapping[str, Any], Any]] | None = None  # if asked for
        self._waiting: set[asyncio.Future[Any]] = set()
        self._is_over = False

    def deadline(self) -> Deadline:
        return Deadline(self.request_timeout)

    async def find_credentials(self) -> None:
        """The model needs none."""

    async def call(
        self,
        operation: str,
        body: Mapping[str, Any] | str,
        *,
        deadline: Deadline | None = None,
        repeatable: bool = False,
        throttled: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        request = json.loads(body) if isinstance(body, str) else body
        retries = Retries(deadline or self.deadline(), repeatable or operation in READS, throttled)
        while True:
            try:
                timeout_s, _ = retries.timeouts()
                self.counters.calls.add()
                self.calls[operation] += 1
                answer = await self._send(operation, request, timeout_s)
                break
            except RateLimiterUnavailable as error:
                pause_s = retries.pause_after(error)
                self.counters.add(retries=1)
            if pause_s:
                await asyncio.sleep(pause_s)
        self.answered_s = self._loop.now_s
        if isinstance(answer, Refusal):
            raise_refusal(answer, operation)
        return answer

    async def close(self) -> None:
        pass

    def die(self) -> None:
        self.is_dead = True

    def bury(self) -> None:
        """End the tasks of a dead client once the history is over."""
        self._is_over = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(InfrastructureError("the process was killed"))

    # --- one attempt

    async def _send(
        self, operation: str, request: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any] | Refusal:
        if self._is_over:
            raise InfrastructureError("the process was killed")
        loop, network = self._loop, self._network
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.add(answer)
        if not self.is_dead:
            out_s, back_s = network.latency_s(), network.latency_s()
            fate = network.fate(operation)
            if fate == "delivered" and out_s + back_s < timeout_s:
                loop.call_later(out_s, self._deliver, operation, request, answer, back_s)
            else:
                self._misfortune(fate, operation, request, answer, (out_s, timeout_s))
        try:
            return await answer  # type: ignore[no-any-return]
        finally:
            self._waiting.discard(answer)

    def _deliver(
        self,
        operation: str,
        request: Mapping[str, Any],
        answer: asyncio.Future[Any],
        back_s: float,
    ) -> None:
        self._loop.call_later(back_s, self._resolve, answer, self._apply(operation, request))

    def _apply(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any] | Refusal:
        answer: dict[str, Any] | Refusal
        try:
            answer = self._model.call(operation, request, self._loop.now_s)
        except Refusal as refusal:
            answer = refusal
        if self.applied is not None:
            self.applied.append((operation, request, answer))
        return answer

    def _misfortune(
        self,
        fate: str,
        operation: str,
        request: Mapping[str, Any],
        answer: asyncio.Future[Any],
        times: tuple[float, float],
    ) -> None:
        loop, network, (out_s, timeout_s) = self._loop, self._network, times
        if fate in ("fault_after", "lost_answer", "delivered"):
            loop.call_later(out_s, self._apply, operation, request)
        if fate in ("late", "closed_idle_late"):
            network.open_late += 1
            given_up_s = timeout_s if fate == "late" else out_s
            loop.call_later(given_up_s + network.late_s(), self._arrive, operation, request)
        error: Exception
        if fate == "not_sent":
            error, after_s = NotSent("no connection"), 0.0
        elif fate == "throttled":
            error, after_s = Throttled("too much"), out_s
        elif fate in ("fault_before", "fault_after"):
            error, after_s = ServerFault("500"), 2 * out_s
        elif fate.startswith("closed_idle"):
            error, after_s = NoAnswer("closed", closed_idle=True), out_s
        else:
            error, after_s = NoAnswer("it took too long"), timeout_s
        loop.call_later(after_s, self._resolve, answer, error)

    def _arrive(self, operation: str, request: Mapping[str, Any]) -> None:
        self._network.open_late -= 1
        self._apply(operation, request)

    def _resolve(self, answer: asyncio.Future[Any], outcome: Any) -> None:
        if answer.done() or self.is_dead:
            return
        if isinstance(outcome, Exception) and not isinstance(outcome, Refusal):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)


def raise_refusal(refusal: Refusal, operation: str) -> NoReturn:
    if refusal.code == "ConditionalCheckFailedException":
        raise ConditionFailed(refusal.content.get("item"))
    if refusal.code == "TransactionCanceledException":
        raise TransactionCanceled(
            tuple(
                Reason(each["Code"], each.get("Item"), each.get("Message", ""))
                for each in refusal.content["reasons"]
            )
        )
    raise Refused(f"{operation}: {refusal}", code=refusal.code)

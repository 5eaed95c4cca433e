"""The stream processor over the model: deliveries that come late, twice, shuffled, or fail."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from sim.virtual_time import VirtualTime
from tests.support.dynamodb.model.table import Change, ModelTable, Refusal
from zae_limiter.store_errors import NoAnswer
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.report import Log

MODES = ("absent", "prompt", "late", "doubled", "shuffled", "failing")
COLLECT_S = 1.0  # how long records wait for others
RETRY_S = 60.0
FAILURES = 0.3  # of the calls, where deliveries fail
TIME_S = 60.0  # of one invocation
LATE_S = 2 * 3600.0


class SlowWire:
    """Calls of the processor, one after the other, each of which takes a while to arrive.

    It answers at once, so that the processor need not be awaited: clients come between a store and
    its clear all the same.
    """

    def __init__(self, table: ModelTable, loop: VirtualTime, chance: random.Random) -> None:
        self._table, self._loop, self._chance = table, loop, chance
        self._free_s = 0.0
        self.failures = 0.0

    @property
    def table(self) -> str:
        return self._table.name

    def call(self, operation: str, body: Mapping[str, Any] | str) -> dict[str, Any]:
        now_s = self._loop.now_s
        if isinstance(body, str):
            body = json.loads(body)
        assert isinstance(body, Mapping)
        if operation == "GetItem":
            return self._table.call(operation, body, now_s)
        self._free_s = max(self._free_s, now_s) + self._chance.choice((0.001, 0.05, 2.0))
        if self._chance.random() < self.failures:
            if self._chance.random() < 0.5:  # it arrives all the same, and late
                late_s = self._chance.random() * self._chance.choice((1.0, LATE_S))
                self._loop.call_at(self._free_s + late_s, self._arrive, operation, body)
            raise NoAnswer("it took too long")
        self._loop.call_at(self._free_s, self._arrive, operation, body)
        return {}

    def put_object(self, bucket: str, name: str, body: bytes) -> None:
        raise AssertionError("nothing is archived here")

    def _arrive(self, operation: str, body: Mapping[str, Any]) -> None:
        try:
            self._table.call(operation, body, self._loop.now_s)
        except Refusal as refusal:
            if refusal.code != "ConditionalCheckFailedException":
                raise


class Aggregator:
    """Delivers the records that the event filter of the function lets through."""

    def __init__(
        self, table: ModelTable, loop: VirtualTime, chance: random.Random, mode: str
    ) -> None:
        self._table, self._loop, self._chance, self.mode = table, loop, chance, mode
        self._wire = SlowWire(table, loop, chance)
        self._processor = Processor(self._wire)
        self._log = Log(output=lambda line: None)
        self._new: list[Change] = []
        self._due: dict[int, list[Change]] = {}
        self._batches = 0
        self._is_over = False
        self.counts: Counter[str] = Counter()
        table.listeners.append(self._hear)

    def finish(self) -> None:
        """Deliver everything that is left, without failures."""
        self._is_over = True
        self._collect()
        for batch in self._due.values():
            self._deliver(batch)

    def _hear(self, changes: list[Change]) -> None:
        wanted = [change for change in changes if _is_wanted(change)]
        if wanted and not self._new and not self._is_over:
            self._loop.call_later(self._chance.random() * COLLECT_S, self._collect)
        self._new += wanted

    def _collect(self) -> None:
        changes, self._new = self._new, []
        while changes:
            size = self._chance.randint(1, 10)
            batch, changes = changes[:size], changes[size:]
            if self.mode == "shuffled":
                self._chance.shuffle(batch)
            self._schedule(batch)
            if self.mode in ("doubled", "shuffled"):
                self._schedule(batch, self._chance.random() * LATE_S)

    def _schedule(self, batch: list[Change], after_s: float = 0.0) -> None:
        self._batches += 1
        self._due[self._batches] = batch
        if not self._is_over:
            self._loop.call_at(self._due_s() + after_s, self._come_due, self._batches)

    def _come_due(self, number: int) -> None:
        if not self._is_over:
            self._deliver(self._due.pop(number))

    def _due_s(self) -> float:
        late_s = LATE_S if self.mode in ("late", "shuffled") else 0.0
        return self._loop.now_s + self._chance.random() * late_s

    def _deliver(self, batch: list[Change]) -> None:
        self._wire.failures = FAILURES if self.mode == "failing" and not self._is_over else 0.0
        records = [change.record() for change in batch]
        result = self._processor.process(records, self._log, self._loop.now_s + TIME_S)
        self.counts["deliveries"] += 1
        self.counts["hours"] += result.snapshots_updated
        assert not result.skipped, result.errors
        failed = {each["itemIdentifier"] for each in result.response()["batchItemFailures"]}
        if failed:  # Lambda delivers again from the first failure on
            numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
            first = min(numbers.index(number) for number in failed)
            self.counts["failed"] += 1
            self._schedule(batch[first:], RETRY_S)


def _is_wanted(change: Change) -> bool:
    """The filter: hours that begin or end."""
    image = change.new or {}
    return str(image.get("op", {}).get("S", "")).startswith("~")

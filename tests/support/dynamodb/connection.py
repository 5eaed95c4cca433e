"""One client's connection through the proxy, with a connection to the store of its own."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tests.support.dynamodb.faults import Fault
from tests.support.dynamodb.seen import Exchange
from tests.support.dynamodb.wire import (
    Message,
    asking_for_capacity,
    dated,
    read_message,
    sorted_answer,
    told,
)

LARGEST_HEAD = 2**16
DRIPS = 8  # parts of an answer that drips
Arrived = Callable[[Message, int], tuple[Exchange, Fault | None]]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Link:
    """The line to the store: how long it is, and how far off the store's clock is."""

    host: str
    port: int
    request_ms: float = 0
    answer_ms: float = 0
    slow_operation: str | None = None  # whose answers alone take answer_ms
    jitter_ms: float = 0
    date_offset_s: float = 0
    answers_per_connection: int | None = None
    held_operation: str | None = None  # whose requests go on when it is None again
    drip_ms: float = 0  # between the parts in which an answer arrives
    idle_s: float | None = None  # a connection that waits longer for an answer is dropped
    sorts_answers: bool = False  # the store gives the attributes of an item in any order
    under_way: set[asyncio.Task[None]] = field(default_factory=set, repr=False)

    async def connect(self) -> Stream:
        return await asyncio.open_connection(self.host, self.port, limit=LARGEST_HEAD)

    def later(self, delivery: Coroutine[Any, Any, None]) -> None:
        """What outlives the connection that it came from."""
        task = asyncio.ensure_future(delivery)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def send(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        """At once, or in parts."""
        size = -(-len(answer) // DRIPS) if self.drip_ms else len(answer)
        for start in range(0, len(answer), size):
            writer.write(answer[start : start + size])
            if self.drip_ms and start + size < len(answer):
                await asyncio.sleep(self.drip_ms / 1000)

    async def travel(self, one_way_ms: float) -> None:
        ms = one_way_ms + (random.uniform(0, self.jitter_ms) if self.jitter_ms else 0)
        if ms:
            await asyncio.sleep(ms / 1000)


class Connection:
    """Passes requests on, one after the other, as HTTP/1.1 has them."""

    def __init__(
        self,
        link: Link,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._link = link
        self._number = number
        self._reader, self._writer = reader, writer
        self._store: Stream | None = None

    async def serve(self, arrived: Arrived) -> None:
        """Until either side closes."""
        answers = 0
        while (request := await read_message(self._reader)) is not None:
            exchange, fault = arrived(request, self._number)
            await self._link.travel(self._link.request_ms)
            while exchange.operation == self._link.held_operation:  # noqa: ASYNC110 - set by a thread
                await asyncio.sleep(0.001)
            answer = await self._answer(request, exchange, fault)
            if answer is not None:
                if self._link.slow_operation in (None, exchange.operation):
                    await self._link.travel(self._link.answer_ms)
                exchange.status = answer.status
                if self._link.sorts_answers:
                    answer = sorted_answer(answer)
            exchange.ended = time.monotonic()
            if answer is None:
                return
            await self._link.send(self._writer, dated(answer, self._link.date_offset_s).raw)
            if fault is not None and fault.kind == "cut_answer":
                return
            answers += 1
            if answers >= (self._link.answers_per_connection or inf):
                await self._reader.read(1)  # as a balancer does when the next request is on its way
                return

    def close(self) -> None:
        self._writer.close()
        if self._store is not None:
            self._store[1].close()

    async def closed(self) -> None:
        """Close, and see that nothing of it is left."""
        self.close()
        for writer in (self._writer, *(self._store or ())[1:]):
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(
        self, request: Message, exchange: Exchange, fault: Fault | None
    ) -> Message | None:
        """What the client is told; None if nothing, and the connection is closed."""
        if fault is not None and fault.kind == "hold":
            await fault.over.wait()
            fault = None
        if fault is not None and fault.kind == "twice":
            await self._forward(request, exchange)
            fault = None
        if fault is None:
            return await self._forward(request, exchange)
        if fault.kind == "doubled":
            return await self._forward_doubled(request, exchange)
        if fault.kind == "again":
            answer = await self._forward(request, exchange)
            exchange.raw_answer = b""  # until the second delivery has been answered, too
            self._link.later(self._deliver(request, exchange, fault))
            return answer
        if fault.kind == "late":
            self._link.later(self._deliver(request, exchange, fault))
        if fault.holds:
            await self._hold(fault)
        answer = await self._forward(request, exchange) if fault.reaches_the_store else None
        return told(fault.kind, fault.error, answer)

    async def _forward(self, request: Message, exchange: Exchange) -> Message | None:
        """The store's answer; None if there is no store."""
        try:
            store = await self._connected()
            return await asyncio.wait_for(_ask(store, request, exchange), self._link.idle_s)
        except OSError:  # includes the TimeoutError of an idle connection
            return None

    async def _forward_doubled(self, request: Message, exchange: Exchange) -> Message | None:
        """The store's second answer to a request that it gets twice without a pause."""
        with suppress(OSError):
            reader, writer = await self._connected()
            writer.write(asking_for_capacity(request).raw * 2)
            await read_message(reader)
            answer = await read_message(reader)
            if answer is not None:
                exchange.raw_answer = answer.body
            return answer
        return None

    async def _connected(self) -> Stream:
        if self._store is not None and self._store[0].at_eof():
            self._store[1].close()  # the store was restarted
            self._store = None
        if self._store is None:
            self._store = await self._link.connect()
        return self._store

    async def _deliver(self, request: Message, exchange: Exchange, fault: Fault) -> None:
        """A message that was long on its way: no call waits for its answer any more."""
        while fault.delay_ms is None:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.001)
        await asyncio.sleep(fault.delay_ms / 1000)
        with suppress(OSError):
            store = await self._link.connect()
            try:
                await _ask(store, request, exchange)
            finally:
                store[1].close()

    async def _hold(self, fault: Fault) -> None:
        """Until the fault is over or the client has given up."""
        waits = {
            asyncio.ensure_future(fault.over.wait()),
            asyncio.ensure_future(self._reader.read(1)),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()


async def _ask(store: Stream, request: Message, exchange: Exchange) -> Message | None:
    reader, writer = store
    writer.write(asking_for_capacity(request).raw)
    answer = await read_message(reader)
    if answer is not None:
        exchange.raw_answer = answer.body
    return answer

"""Workers of one host hand requests to each other over unix sockets in a private folder.

A message is a length of four bytes and JSON. The folder belongs to the user of the service, and
nobody else can enter it, so a message needs no token: its caller was authenticated by the sender.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from zae_limiter_service.access import Role, ServiceCaller
from zae_limiter_service.answers import Answer, overloaded
from zae_limiter_service.requests import Routes, ServiceRequest

MAX_MESSAGE = 8_000_000  # bytes
MAX_IDLE = 64  # connections to one worker that are kept open
LENGTH = 4
_logger = logging.getLogger(__name__)

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Respond = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
GONE = overloaded("worker-gone", "the worker that holds this lease is not running; try again later")


class Peers:
    """The workers of this host, of which this one has the number ``own``."""

    def __init__(self, own: int, count: int, folder: Path | None) -> None:
        self.own = own
        self.count = count
        self._folder = folder
        self._idle: dict[int, list[Connection]] = {}
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[Any]] = set()

    def owner_of_key(self, digest: int) -> int:
        """Return the worker that keeps the answers of an idempotency key."""
        return digest % self.count

    async def listen(self, respond: Respond) -> None:
        """Answer the messages of other workers."""
        if self._folder is None:
            return
        path = self._path(self.own)
        path.unlink(missing_ok=True)  # a killed worker leaves its socket behind

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._conversations.add(task)
            try:
                while True:
                    _write(writer, await respond(await _read(reader)))
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                self._conversations.discard(task)
                writer.close()

        self._server = await asyncio.start_unix_server(converse, str(path))

    async def forward(self, worker: int, request: ServiceRequest) -> Answer:
        """Hand a request to another worker, and return its answer."""
        if self._folder is None or not 0 <= worker < self.count:
            return GONE
        return answer_from(await self._ask(worker, request_message(request)) or None)

    async def gather(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Ask all other workers; those that do not answer are left out."""
        others = [worker for worker in range(self.count) if worker != self.own]
        answers = await asyncio.gather(*[self._ask(worker, message) for worker in others])
        return [answer for answer in answers if answer is not None]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._conversations):
            task.cancel()
        for connections in self._idle.values():
            for _, writer in connections:
                writer.close()
        self._idle = {}
        if self._folder is not None:
            self._path(self.own).unlink(missing_ok=True)

    async def _ask(self, worker: int, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer of a worker; None if it is gone."""
        try:
            reader, writer = await self._connection(worker)
        except OSError:
            return None
        try:
            _write(writer, message)
            await writer.drain()
            answer = await _read(reader)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()
            return None
        except BaseException:
            writer.close()  # an answer may still come, which the next request must not read
            raise
        idle = self._idle.setdefault(worker, [])
        if len(idle) < MAX_IDLE:
            idle.append((reader, writer))
        else:
            writer.close()
        return answer

    async def _connection(self, worker: int) -> Connection:
        """Return an idle connection to a worker, or a new one."""
        idle = self._idle.setdefault(worker, [])
        while idle:
            reader, writer = idle.pop()
            if not writer.is_closing() and not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_unix_connection(str(self._path(worker)))

    def _path(self, worker: int) -> Path:
        assert self._folder is not None
        return self._folder / f"worker-{worker}.sock"


def request_message(request: ServiceRequest) -> dict[str, Any]:
    caller = request.caller
    return {
        "method": request.route.method,
        "path": request.route.path,
        "arguments": request.arguments,
        "body": request.body.decode(),
        "caller": [caller.name, caller.role, caller.namespaces],
        "namespace": request.namespace,
        "key": request.idempotency_key,
    }


def request_from(message: dict[str, Any], routes: Routes) -> ServiceRequest:
    name, role, namespaces = message["caller"]
    return ServiceRequest(
        routes.named(message["method"], message["path"]),
        tuple(message["arguments"]),
        {},
        message["body"].encode(),
        ServiceCaller(name, Role(role), tuple(namespaces)),
        message["namespace"],
        message["key"],
    )


def answer_message(answer: Answer) -> dict[str, Any]:
    return {**answer._asdict(), "body": answer.body.decode()}


def answer_from(message: dict[str, Any] | None) -> Answer:
    if message is None:
        return GONE
    headers = tuple((name, value) for name, value in message["headers"])
    return Answer(message["status"], message["body"].encode(), headers, message["content_type"])


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    size = int.from_bytes(await reader.readexactly(LENGTH), "big")
    if size > MAX_MESSAGE:
        raise ConnectionError("a message is too long")
    message: dict[str, Any] = json.loads(await reader.readexactly(size))
    return message


def _write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    with suppress(ConnectionError):
        writer.write(len(data).to_bytes(LENGTH, "big") + data)

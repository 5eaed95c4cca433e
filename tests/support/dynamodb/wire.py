"""HTTP/1.1 messages on a stream, as little of it as a proxy needs."""

from __future__ import annotations

import json
import re
import zlib
from asyncio import IncompleteReadError, StreamReader
from datetime import timedelta
from email.utils import format_datetime, formatdate, parsedate_to_datetime
from typing import NamedTuple

from tests.support.dynamodb.seen import READS, WRITES

_TARGET = re.compile(rb"^x-amz-target:\s*\w+\.(\w+)", re.IGNORECASE | re.MULTILINE)
_OWN_AGENT = re.compile(rb"^user-agent:[ \t]*zae-limiter/", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d+)", re.IGNORECASE | re.MULTILINE)
_CHUNKED = re.compile(rb"^transfer-encoding:[ \t]*chunked", re.IGNORECASE | re.MULTILINE)
_DATE = re.compile(rb"^(date:[ \t]*)([^\r\n]+)", re.IGNORECASE | re.MULTILINE)
_CRC = re.compile(rb"^(x-amz-crc32:[ \t]*)", re.IGNORECASE | re.MULTILINE)
_CRC_VALUE = re.compile(rb"^(x-amz-crc32:[ \t]*)\d+", re.IGNORECASE | re.MULTILINE)
_CAPACITY = b'"ReturnConsumedCapacity"'
_REASONS = {200: "OK", 400: "Bad Request", 500: "Internal Server Error"}


class Message(NamedTuple):
    """``head`` ends with the empty line."""

    head: bytes
    body: bytes

    @property
    def operation(self) -> str:
        """Of a request: what DynamoDB is asked to do; its method for anything else."""
        found = _TARGET.search(self.head)
        return (found[1] if found else self.head.partition(b" ")[0]).decode()

    @property
    def is_of_client(self) -> bool:
        """Whether zae-limiter has sent it, and not the test itself by other means."""
        return _OWN_AGENT.search(self.head) is not None

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.head[9:12])

    @property
    def raw(self) -> bytes:
        return self.head + self.body


async def read_message(reader: StreamReader) -> Message | None:
    """The next message; None when the other side has closed the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if found := _LENGTH.search(head):
            return Message(head, await reader.readexactly(int(found[1])))
        if _CHUNKED.search(head):
            body = await _chunks(reader)
            return Message(_CHUNKED.sub(b"content-length: %d" % len(body), head), body)
    except (IncompleteReadError, ConnectionError):
        return None
    return Message(head, b"")


async def _chunks(reader: StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(parts)


def asking_for_capacity(request: Message) -> Message:
    """The same request, asking what it consumes."""
    if request.operation not in READS | WRITES:
        return request
    body = request.body
    if _CAPACITY in body:
        body = json.dumps({**json.loads(body), "ReturnConsumedCapacity": "INDEXES"}).encode()
    else:
        body = b'{"ReturnConsumedCapacity":"INDEXES",' + body.lstrip()[1:]
    return Message(_LENGTH.sub(b"content-length: %d" % len(body), request.head), body)


def told(kind: str, error: tuple[int, str] | None, answer: Message | None) -> Message | None:
    """What a client hears of a fault instead of the store's answer; None if nothing."""
    if error is not None:
        return made_up(*error)
    if answer is None:
        return None
    if kind == "cut_answer":
        return Message(answer.head, answer.body[: len(answer.body) // 2])
    if kind == "garble":
        return Message(_CRC.sub(rb"\g<1>1", answer.head), answer.body)
    return None


def made_up(status: int, code: str) -> Message:
    """An answer as DynamoDB gives it when something is wrong."""
    body = json.dumps({"__type": code, "message": "a fault that a test asked for"}).encode()
    lines = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}",
        "content-type: application/x-amz-json-1.0",
        "x-amzn-requestid: 0000000000000000000000000000000000000000000000000000",
        f"x-amz-crc32: {zlib.crc32(body)}",
        f"content-length: {len(body)}",
        f"date: {formatdate(usegmt=True)}",
    )
    return Message("\r\n".join((*lines, "", "")).encode(), body)


def sorted_answer(answer: Message) -> Message:
    """The same answer with its attributes in the order of their names, as no store promises."""
    body = json.dumps(json.loads(answer.body), sort_keys=True).encode()
    head = _LENGTH.sub(b"content-length: %d" % len(body), answer.head)
    return Message(_CRC_VALUE.sub(rb"\g<1>%d" % zlib.crc32(body), head), body)


def dated(answer: Message, offset_s: float) -> Message:
    """The same answer from a store whose clock is that much ahead of its own."""
    if not offset_s:
        return answer

    def moved(found: re.Match[bytes]) -> bytes:
        date = parsedate_to_datetime(found[2].decode()) + timedelta(seconds=offset_s)
        return found[1] + format_datetime(date, usegmt=True).encode()

    return Message(_DATE.sub(moved, answer.head), answer.body)

"""Reads one HTTP/1.1 answer from the pieces in which it arrives."""

from __future__ import annotations

import re

from zae_limiter.transport.wire import RawAnswer

_MOST_DIGITS = 15
_MAX_HEAD = 65_536
_END_OF_HEAD = b"\r\n\r\n"
_HEX = re.compile(rb"[0-9A-Fa-f]+")
_GOOD = b"HTTP/1.1 200 "


class Malformed(Exception):
    """These bytes are no HTTP answer."""


class AnswerReader:
    """``feed`` it until it returns the answer; then ask whether the connection can be kept."""

    __slots__ = (
        "_chunked",
        "_headers",
        "_keeps",
        "_length",
        "_pieces",
        "_size",
        "_status",
        "_surplus",
    )

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._status = 0
        self._headers: dict[str, str] = {}
        self._length: int | None = None
        self._chunked = False
        self._keeps = False
        self._surplus = False

    @property
    def may_keep(self) -> bool:
        """Whether the connection stands at the start of a next answer."""
        return self._keeps and not self._surplus

    def feed(self, piece: bytes) -> RawAnswer | None:
        """The answer, once it is whole."""
        self._pieces.append(piece)
        self._size += len(piece)
        if not self._status and not self._read_head():
            return None
        if self._chunked:
            body = self._unchunked()
        elif self._length is None or self._size < self._length:
            body = None
        else:
            self._surplus = self._size > self._length
            body = self._joined()[: self._length]
        return None if body is None else RawAnswer(self._status, self._headers, body)

    def end(self) -> RawAnswer | None:
        """The peer has closed: the answer, if it was one without a length; None if it was cut."""
        if self._status and self._length is None and not self._chunked:
            return RawAnswer(self._status, self._headers, self._joined())
        return None

    def _joined(self) -> bytes:
        if len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def _read_head(self) -> bool:
        """Take off the head if it is whole, and those of interim answers before it."""
        while True:
            data = self._joined()
            end = data.find(_END_OF_HEAD)
            if end < 0:
                if self._size > _MAX_HEAD:
                    raise Malformed("the head of the answer does not end")
                return False
            self._pieces = [data[end + 4 :]]
            self._size -= end + 4
            status = self._parse_head(data[:end].decode("latin-1"))
            if status >= 200:
                self._status = status
                return True

    def _parse_head(self, head: str) -> int:
        lines = head.split("\r\n")
        version, _, rest = lines[0].partition(" ")
        if not version.startswith("HTTP/1.") or not _is_number(rest[:3]):
            raise Malformed("the answer is not HTTP/1.1")
        self._headers = _headers(lines)
        self._frame(int(rest[:3]), version == "HTTP/1.0")
        return int(rest[:3])

    def _frame(self, status: int, old: bool) -> None:
        """How long the body is, and whether anything can follow it."""
        headers = self._headers
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._length = 0 if status in (204, 304) else None
        if "content-length" in headers:
            if not _is_number(headers["content-length"]):
                raise Malformed("the length of the answer is not a number")
            self._length = int(headers["content-length"])
        connection = headers.get("connection", "").lower()
        keeps = "keep-alive" in connection if old else "close" not in connection
        self._keeps = keeps and (self._chunked or self._length is not None)

    def _unchunked(self) -> bytes | None:
        """The body if its last chunk is here. Read from the start each time: chunks are rare."""
        data, at = self._joined(), 0
        parts: list[bytes] = []
        while True:
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                return None
            size = _chunk_size(data[at:line_end])
            at = line_end + 2
            if size == 0:
                return self._after_last_chunk(data, at, b"".join(parts))
            if len(data) < at + size + 2:
                return None
            parts.append(data[at : at + size])
            at += size + 2

    def _after_last_chunk(self, data: bytes, at: int, body: bytes) -> bytes | None:
        """Trailers, which nobody needs, end like a head."""
        end = at + 2 if data.startswith(b"\r\n", at) else data.find(_END_OF_HEAD, at) + 4
        if end < at + 2:
            return None
        self._surplus = len(data) > end
        return body


def in_one_piece(data: bytes) -> RawAnswer | None:
    """The answer if it is all of ``data``, good, and of the usual form, so that another may follow.

    Its headers are in lower case. None: a reader has to look at it.
    """
    head, end, body = data.partition(_END_OF_HEAD)
    if not end or not head.startswith(_GOOD):
        return None
    try:
        headers = _headers(head.decode("latin-1").lower().split("\r\n"))
    except Malformed:
        return None
    usual = (
        headers.get("content-length") == str(len(body))
        and "transfer-encoding" not in headers
        and headers.get("connection", "keep-alive") == "keep-alive"
    )
    return RawAnswer(200, headers, body) if usual else None


def _headers(lines: list[str]) -> dict[str, str]:
    """All lines but the first."""
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise Malformed("a header of the answer has no colon")
        headers[name.lower()] = value.strip()
    return headers


def _is_number(text: str) -> bool:
    """Digits only, and no more than make sense."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _chunk_size(line: bytes) -> int:
    size = line.split(b";")[0].strip()
    if not _HEX.fullmatch(size):
        raise Malformed("a chunk of the answer has no size")
    return int(size, 16)

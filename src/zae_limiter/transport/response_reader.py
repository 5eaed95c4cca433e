"""Reads one HTTP/1.1 response from the pieces in which it arrives."""

from __future__ import annotations

import re

from zae_limiter.clock import since_boot_ns
from zae_limiter.transport.messages import HttpResponse

_END_OF_HEAD = b"\r\n\r\n"
# A length with more digits is nonsense, and int() is slow for very long ones.
_MAX_DIGITS = 15
# http.client and most servers have the same limit; a head of DynamoDB has some 300 bytes.
_MAX_HEAD = 65_536
_HEX = re.compile(rb"[0-9A-Fa-f]+")


class MalformedResponse(Exception):
    """The received bytes are not an HTTP response."""


class ResponseReader:
    """Parses one response: ``feed`` it until it returns the response, then ask ``may_keep``."""

    def __init__(self, sent_ns: int = 0) -> None:
        self._sent_ns = sent_ns
        self._received_ns = 0
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
        """Whether the connection can be used for another request."""
        return self._keeps and not self._surplus

    def feed(self, piece: bytes) -> HttpResponse | None:
        """Return the response once it is complete."""
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
        return None if body is None else self._response(body)

    def feed_head(self, piece: bytes) -> int | None:
        """Return the status once the head is complete; the body is left unread."""
        self._pieces.append(piece)
        self._size += len(piece)
        return self._status if self._read_head() else None

    @property
    def has_more(self) -> bool:
        """Whether bytes came after the head that ``feed_head`` has read."""
        return self._size > 0

    def end(self) -> HttpResponse | None:
        """Return a response that ends with the connection; None if the response is incomplete."""
        if self._status and self._length is None and not self._chunked:
            return self._response(self._joined())
        return None

    def _response(self, body: bytes) -> HttpResponse:
        return HttpResponse(self._status, self._headers, body, self._sent_ns, self._received_ns)

    def _joined(self) -> bytes:
        if len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def _read_head(self) -> bool:
        """Take a complete head off the data, with the interim (1xx) responses before it."""
        while True:
            data = self._joined()
            end = data.find(_END_OF_HEAD)
            if end < 0:
                if self._size > _MAX_HEAD:
                    raise MalformedResponse("the head of the response does not end")
                return False
            self._pieces = [data[end + 4 :]]
            self._size -= end + 4
            status = self._parse_head(data[:end].decode("latin-1"))
            if status >= 200:
                self._status = status
                self._received_ns = since_boot_ns()
                return True

    def _parse_head(self, head: str) -> int:
        lines = head.split("\r\n")
        version, _, rest = lines[0].partition(" ")
        if not version.startswith("HTTP/1.") or not _is_number(rest[:3]):
            raise MalformedResponse("the response is not HTTP/1.1")
        self._headers = _parsed_headers(lines)
        self._read_framing(int(rest[:3]), version == "HTTP/1.0")
        return int(rest[:3])

    def _read_framing(self, status: int, is_http_1_0: bool) -> None:
        """Read the length of the body, and whether another response can follow it."""
        headers = self._headers
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._length = 0 if status in (204, 304) else None
        if "content-length" in headers:
            if not _is_number(headers["content-length"]):
                raise MalformedResponse("the length of the response is not a number")
            self._length = int(headers["content-length"])
        connection = headers.get("connection", "").lower()
        keeps = "keep-alive" in connection if is_http_1_0 else "close" not in connection
        self._keeps = keeps and (self._chunked or self._length is not None)

    def _unchunked(self) -> bytes | None:
        """Return the body if its last chunk has arrived.

        The chunks are parsed from the start each time: DynamoDB hardly ever sends any.
        """
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
        """Skip trailers, which end like a head."""
        end = at + 2 if data.startswith(b"\r\n", at) else data.find(_END_OF_HEAD, at) + 4
        if end < at + 2:
            return None
        self._surplus = len(data) > end
        return body


def _parsed_headers(lines: list[str]) -> dict[str, str]:
    """Parse all lines except the first, which is the status line."""
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise MalformedResponse("a header of the response has no colon")
        headers[name.lower()] = value.strip()
    return headers


def _is_number(text: str) -> bool:
    """Return whether the text consists of ASCII digits, and not of absurdly many."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _chunk_size(line: bytes) -> int:
    size = line.split(b";")[0].strip()
    if not _HEX.fullmatch(size):
        raise MalformedResponse("a chunk of the response has no size")
    return int(size, 16)

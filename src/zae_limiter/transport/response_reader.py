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
    """Parses one response: ``feed`` it until it returns the response.

    Then ``may_keep`` says whether the connection can be used for another request.
    """

    __slots__ = (
        "_data",
        "_is_chunked",
        "_keeps",
        "_length",
        "_response",
        "_sent_ns",
        "may_keep",
    )

    def __init__(self, sent_ns: int = 0) -> None:
        self._sent_ns = sent_ns
        self._data = bytearray()  # of the head, then of the body
        self._response: HttpResponse | None = None  # None until its head is complete
        self._length: int | None = None  # of the body; None if the head does not name it
        self._is_chunked = False
        self._keeps = False  # whether another response can follow on the same connection
        self.may_keep = False

    def feed(self, piece: bytes | memoryview) -> HttpResponse | None:
        """Return the response once it is complete."""
        self._data += piece
        response = self._response or self._read_head()
        if response is None:
            return None
        body = self._unchunked() if self._is_chunked else self._of_length()
        if body is None:
            return None
        response.body = body
        return response

    def feed_head(self, piece: bytes) -> int | None:
        """Return the status once the head is complete; the body is left unread."""
        self._data += piece
        response = self._read_head()
        return None if response is None else response.status

    @property
    def has_more(self) -> bool:
        """Whether bytes came after the head that ``feed_head`` has read."""
        return len(self._data) > 0

    def end(self) -> HttpResponse | None:
        """Return a response that ends with the connection; None if the response is incomplete."""
        response = self._response
        if response is None or self._length is not None or self._is_chunked:
            return None
        response.body = bytes(self._data)
        return response

    def _read_head(self) -> HttpResponse | None:
        """Take a complete head off the data, with the interim (1xx) responses before it."""
        while True:
            head, end, rest = self._data.partition(_END_OF_HEAD)
            if not end:
                if len(self._data) > _MAX_HEAD:
                    raise MalformedResponse("the head of the response does not end")
                return None
            self._data = rest
            response = self._parse_head(head.decode("latin-1"))
            if response.status >= 200:
                self._response = response
                response.received_ns = since_boot_ns()
                return response

    def _parse_head(self, text: str) -> HttpResponse:
        """Return the response of a head, without its body, and note how the body ends."""
        first, *lines = text.split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not _is_number(code):
            raise MalformedResponse("the response is not HTTP/1.1")
        headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise MalformedResponse("a header of the response has no colon")
            headers[name.lower()] = value.strip()
        status = int(code)
        encoding, connection = headers.get("transfer-encoding"), headers.get("connection")
        is_chunked = self._is_chunked = encoding is not None and "chunked" in encoding.lower()
        length = self._length = _length(status, headers)
        keeps = is_chunked or length is not None
        if version == "HTTP/1.0":
            keeps = keeps and connection is not None and "keep-alive" in connection.lower()
        elif connection is not None:
            keeps = keeps and "close" not in connection.lower()
        self._keeps = keeps
        return HttpResponse(status, headers, b"", self._sent_ns)

    def _of_length(self) -> bytes | None:
        """Return the body of the named length if it has arrived."""
        length, received = self._length, len(self._data)
        if length is None or received < length:
            return None
        self.may_keep = self._keeps and received == length
        del self._data[length:]
        return bytes(self._data)

    def _unchunked(self) -> bytes | None:
        """Return the body if its last chunk has arrived.

        The chunks are parsed from the start each time: DynamoDB hardly ever sends any.
        """
        data, at = self._data, 0
        parts: list[bytearray] = []
        while True:
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                return None
            size = _chunk_size(data[at:line_end])
            at = line_end + 2
            if size == 0:
                end = _end_of_trailers(data, at)
                if end is None:
                    return None
                self.may_keep = self._keeps and len(data) == end
                return b"".join(parts)
            if len(data) < at + size + 2:
                return None
            parts.append(data[at : at + size])
            at += size + 2


def _length(status: int, headers: dict[str, str]) -> int | None:
    """Return the length of the body; None if the headers do not name it."""
    named = headers.get("content-length")
    if named is None:
        return 0 if status in (204, 304) else None
    if not _is_number(named):
        raise MalformedResponse("the length of the response is not a number")
    return int(named)


def _is_number(text: str) -> bool:
    """Return whether the text consists of ASCII digits, and not of absurdly many."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _end_of_trailers(data: bytearray, at: int) -> int | None:
    """Return the position after the trailers, which end like a head; None if it has not arrived."""
    end = at + 2 if data.startswith(b"\r\n", at) else data.find(_END_OF_HEAD, at) + 4
    return None if end < at + 2 else end


def _chunk_size(line: bytearray) -> int:
    size = line.split(b";")[0].strip()
    if not _HEX.fullmatch(size):
        raise MalformedResponse("a chunk of the response has no size")
    return int(size, 16)

"""Reads an HTTP/1.1 response that has arrived in one piece, as nearly all do."""

from __future__ import annotations

from zae_limiter.clock import since_boot_ns
from zae_limiter.transport.messages import HttpResponse

END_OF_HEAD = b"\r\n\r\n"
_STATUS_200 = b"HTTP/1.1 200 "
_STATUS_400 = b"HTTP/1.1 400 "


class MalformedResponse(Exception):
    """The bytes received are not an HTTP response."""


def parse_complete(data: bytes, sent_ns: int = 0) -> HttpResponse | None:
    """Parse ``data`` if it is exactly one response after which the connection is kept.

    That is nearly always so, and takes two thirds of a ResponseReader's time. Names of headers are
    in lower case then, and the values of a successful response, too. None: use a ResponseReader.
    """
    received_ns = since_boot_ns()
    head, end, body = data.partition(END_OF_HEAD)
    if not end:
        return None
    if head.startswith(_STATUS_200):
        status, text = 200, head.decode("latin-1").lower()
    elif head.startswith(_STATUS_400):  # a write was refused; a header may name the error
        status, text = 400, head.decode("latin-1")
    else:
        return None
    try:
        headers = parsed_headers(text.split("\r\n"))
    except MalformedResponse:
        return None
    is_plain = (
        headers.get("content-length") == str(len(body))
        and "transfer-encoding" not in headers
        and headers.get("connection", "keep-alive") == "keep-alive"
    )
    if not is_plain:
        return None
    return HttpResponse(
        status=status, headers=headers, body=body, sent_ns=sent_ns, received_ns=received_ns
    )


def parsed_headers(lines: list[str]) -> dict[str, str]:
    """Parse all lines but the first, which is the status line."""
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise MalformedResponse("a header of the response has no colon")
        headers[name.lower()] = value.strip()
    return headers

"""Reads responses of DynamoDB: returns their content, or raises an error of ``refusals``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from zlib import crc32

from zae_limiter.store_errors import NoAnswer
from zae_limiter.transport.messages import HttpResponse
from zae_limiter.transport.refusals import error_of
from zae_limiter.transport.shapes import FIELDS, has_shape

_raw_decode = json.JSONDecoder().raw_decode
REQUEST_ID = "x-amzn-requestid"  # a header of DynamoDB's own responses


def parse_response(response: HttpResponse, operation: str, table: str) -> dict[str, Any]:
    """Return the content of a successful response; raises the error that any other one means."""
    expected = response.headers.get("x-amz-crc32")
    if expected is not None and expected != str(crc32(response.body)):
        raise NoAnswer(f"DynamoDB's answer to {operation} was damaged on its way", closed=True)
    content = _json_object(response.body)
    if response.status != 200:
        # No name for the error: its own frame would refer to it, and keep it alive.
        raise _error_of(response, content or {}, operation, table)
    if content is None or not _is_answer(operation, content, response.headers):
        raise error_of(response, {}, operation, table)
    return content


def _json_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body; None if the body is something else."""
    try:
        text = body.decode().strip()
        content, end = _raw_decode(text)
    except (ValueError, RecursionError):  # RecursionError: nested without end
        return None
    return content if end == len(text) and isinstance(content, dict) else None


def _error_of(
    response: HttpResponse, content: Mapping[str, Any], operation: str, table: str
) -> Exception:
    try:
        return error_of(response, content, operation, table)
    except RecursionError:  # the content is nested without end
        return error_of(response, {}, operation, table)


def _is_answer(operation: str, content: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
    """Return whether a successful response comes from DynamoDB, not from a portal with a login.

    DynamoDB itself, which names the request, may send unknown fields. The item after a write is
    checked only if it cannot be decoded (``items.bucket.decode``).
    """
    if operation == "UpdateItem" and "Attributes" in content:
        return True
    if content and content.keys().isdisjoint(FIELDS) and REQUEST_ID not in headers:
        return False
    try:
        return has_shape(operation, content)
    except RecursionError:  # the content is nested without end
        return False


def has_error_of_dynamodb(response: HttpResponse) -> bool:
    """Return whether a response other than 200 comes from DynamoDB, not from a gateway."""
    body = response.body
    return REQUEST_ID in response.headers and body.startswith(b"{") and b'"__type"' in body


@lru_cache(maxsize=8)  # many responses have the same date
def date_ms(text: str) -> int | None:
    """Convert an HTTP date to epoch milliseconds; None if the text is not a date."""
    try:
        return int(parsedate_to_datetime(text).timestamp()) * 1000
    except (ValueError, OverflowError):
        return None

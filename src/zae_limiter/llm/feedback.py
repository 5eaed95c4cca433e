"""Information beside the answer: refusals, waiting times, and the number of sent requests."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from zae_limiter.llm.usage import get, items_of

# The statuses of refusals: the provider has not begun to read the request.
_REFUSED: Final = frozenset({400, 401, 402, 403, 404, 405, 409, 413, 415, 422, 429})
_MOST_BELIEVED_S: Final = 86_400.0  # a provider that asks for more than a day is mistaken
_LONGEST: Final = 100  # characters of a moment or a duration; parsing takes quadratic time
_MOST_RETRIES: Final = 1_000  # no SDK makes more retries of one call
_RETRY_COUNT: Final = "x-stainless-retry-count"  # the SDKs of OpenAI and Anthropic send it
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
# The header names in which OpenAI and Anthropic report the remaining amount of a limit.
_REMAINING = re.compile(r"^(x-ratelimit-)remaining(-.+)$|^(anthropic-ratelimit-.+-)remaining$")


def status_of(error: Any) -> int | None:
    """Return the HTTP status that an SDK's error carries; None if there was no answer."""
    response = get(error, "response")
    statuses = (
        get(error, "status_code"),
        get(error, "code"),
        get(error, "status"),  # in errors of aiohttp
        get(response, "status_code"),
        get(get(response, "ResponseMetadata"), "HTTPStatusCode"),
    )
    for status in statuses:
        if type(status) is int and 100 <= status <= 599:
            return status
    return None


def is_refusal(error: Any) -> bool:
    """Tell whether the provider refused the call before it began any work."""
    return status_of(error) in _REFUSED


def provider_wait(error: Any, now: datetime | None = None) -> float | None:
    """Return the seconds to wait that a provider asks for in an error with status 429 or 529.

    They are read from ``retry-after-ms``, ``retry-after`` (seconds or a date), the resets of
    exhausted limits in ``x-ratelimit-*`` and ``anthropic-ratelimit-*``, or Gemini's ``RetryInfo``.
    None if the error has another status, or names no time. The result is at most a day.
    """
    if status_of(error) not in (429, 529):
        return None
    moment = now or datetime.now(UTC)
    headers = headers_of(error)
    candidates = (
        _number(headers.get("retry-after-ms"), 0.001),
        _moment(headers.get("retry-after"), moment),
        max(_resets(headers, moment), default=None),
        max(_retry_infos(error), default=None),
    )
    for seconds in candidates:
        if seconds is not None and math.isfinite(seconds):
            return min(max(0.0, seconds), _MOST_BELIEVED_S)
    return None


def headers_of(answer: Any) -> dict[str, str]:
    """Return the headers of an error, a raw response or a stream, with names in lower case."""
    response = get(answer, "response")
    # Compared with None, since a response of ``requests`` with status 429 is false.
    if response is None:
        response = answer
    headers = get(get(response, "ResponseMetadata"), "HTTPHeaders")
    if headers is None:
        headers = get(response, "headers")
    if headers is None:
        headers = get(get(answer, "sdk_http_response"), "headers")
    try:
        return {str(name).lower(): str(value) for name, value in headers.items()}
    except Exception:  # noqa: BLE001 - there are no headers, or another library raises
        return {}


def _resets(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    for name, value in headers.items():
        match = _REMAINING.match(name)
        if match and _number(value) == 0:
            reset = f"{match[1]}reset{match[2]}" if match[1] else f"{match[3]}reset"
            seconds = _moment(headers.get(reset), now)
            if seconds is not None:
                yield seconds


def _retry_infos(error: Any) -> Iterator[float]:
    """Yield the delays in the body of a Gemini error."""
    body = get(error, "details")
    details = get(get(body, "error") or body, "details")
    for detail in items_of(details):
        delay = get(detail, "retryDelay")
        short = isinstance(delay, str) and len(delay) <= _LONGEST
        seconds = _duration(delay) if short else None
        if seconds is not None:
            yield seconds


def _moment(value: str | None, now: datetime) -> float | None:
    """Return the seconds until a moment, given as a number, a duration, or an ISO or HTTP date."""
    if value is None or len(value) > _LONGEST:
        return None
    seconds = _number(value)
    if seconds is None:
        seconds = _duration(value)
    if seconds is not None:
        return seconds
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = parse(value)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            return (moment - now).total_seconds()
        except (ValueError, TypeError, LookupError, OverflowError):  # dates far away overflow
            continue
    return None


def _duration(text: str) -> float | None:
    """Parse durations such as ``6m0s``, ``12ms`` and ``2m59.56s``."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _number(text: str | None, unit: float = 1.0) -> float | None:
    try:
        return None if text is None else float(text) * unit
    except ValueError:
        return None


def retries_of(answer: Any) -> int:
    """Return the number of retries that an SDK has made by itself, as far as the answer shows it.

    Raw responses have the number, streams and errors carry the last request with it, and boto3
    puts it into the metadata. A parsed response of OpenAI or Anthropic does not have it.
    """
    response = get(answer, "response", "http_response")
    metadata = get(answer, "ResponseMetadata") or get(response, "ResponseMetadata")
    counts = (
        get(answer, "retries_taken"),
        get(metadata, "RetryAttempts"),
        *[_sent_retries(each) for each in (response, answer)],
    )
    for count in counts:
        if type(count) is int and count >= 0:
            return min(count, _MOST_RETRIES)
    return 0


def _sent_retries(response: Any) -> int | None:
    """Return the count of retries that the SDKs put into each request."""
    headers = get(get(response, "request"), "headers")
    try:
        text = headers.get(_RETRY_COUNT)
        return int(text) if isinstance(text, str) else None
    except Exception:  # noqa: BLE001 - there is no such header or number, or an object raises
        return None


class RequestCount:
    """The number of requests that were sent while a call was current in its task or thread."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests = 0


_current: ContextVar[RequestCount | None] = ContextVar("zae_limiter_llm_requests", default=None)


def count_into(count: RequestCount | None) -> RequestCount | None:
    """Count later requests of this task or thread into ``count``; return the count before it."""
    before = _current.get()
    _current.set(count)
    return before


class _Nothing:
    """The result of an event hook. An async client awaits it, and a sync client ignores it."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


def count_request(request: Any) -> _Nothing:
    """Count a request of the current call; for the event hooks of an HTTP client.

    With ``OpenAI(http_client=DefaultHttpxClient(event_hooks={"request": [llm.count_request]}))``,
    every retry of the SDK is counted, even if the answer does not show it. The same function works
    with async clients.
    """
    count = _current.get()
    if count is not None:
        count.requests += 1
    return _Nothing()

"""What providers and SDKs say beside the answer: refusals, waits, and requests made in silence."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from zae_limiter.llm.usage import get, items_of

# Statuses by which a provider says that it did not begin: nothing was read or written.
_REFUSED: Final = frozenset({400, 401, 402, 403, 404, 405, 409, 413, 415, 422, 429})
_MOST_BELIEVED_S: Final = 86_400.0  # a day: a provider that asks for more has made a mistake
_LONGEST: Final = 100  # characters of a moment or a duration; reading more takes quadratic time
_MOST_RETRIES: Final = 1_000  # of one call; no SDK is set to more
_RETRY_COUNT: Final = "x-stainless-retry-count"  # of the SDKs of OpenAI and Anthropic
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
# What ran out, and when it is back, in the header names of OpenAI and of Anthropic.
_REMAINING = re.compile(r"^(x-ratelimit-)remaining(-.+)$|^(anthropic-ratelimit-.+-)remaining$")


def status_of(error: Any) -> int | None:
    """Return the HTTP status that an SDK's error carries, None without an answer."""
    response = get(error, "response")
    statuses = (
        get(error, "status_code"),
        get(error, "code"),
        get(error, "status"),  # of aiohttp
        get(response, "status_code"),
        get(get(response, "ResponseMetadata"), "HTTPStatusCode"),
    )
    for status in statuses:
        if type(status) is int and 100 <= status <= 599:
            return status
    return None


def is_refusal(error: Any) -> bool:
    """Tell whether the provider refused the call before it did anything for it."""
    return status_of(error) in _REFUSED


def provider_wait(error: Any, now: datetime | None = None) -> float | None:
    """Return the seconds after which the provider that refused the call wants to be asked again.

    Understands ``retry-after-ms``, ``retry-after`` (seconds or a date), the reset of what has run
    out in ``x-ratelimit-*`` and ``anthropic-ratelimit-*``, and Gemini's ``RetryInfo``. None if the
    error is no 429 or 529, or says nothing about it. At most a day is believed.
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
    # Not by its truth: a response of ``requests`` with a status of 429 is false.
    if response is None:
        response = answer
    headers = get(get(response, "ResponseMetadata"), "HTTPHeaders")
    if headers is None:
        headers = get(response, "headers")
    if headers is None:
        headers = get(get(answer, "sdk_http_response"), "headers")
    try:
        return {str(name).lower(): str(value) for name, value in headers.items()}
    except Exception:  # noqa: BLE001 - no headers, or those of another library, which may raise
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
    """Return the seconds until a moment: a number, a duration, or a date of either format."""
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
        except (ValueError, TypeError, LookupError, OverflowError):  # as dates far away do
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
    """Return how often an SDK has sent the request again by itself, as far as the answer shows.

    Raw responses say it, streams and errors carry the request that was sent last, and boto3 notes
    it in the metadata. A parsed response of OpenAI and Anthropic does not say it.
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
    """Read the count that the SDKs send along with each request."""
    headers = get(get(response, "request"), "headers")
    try:
        text = headers.get(_RETRY_COUNT)
        return int(text) if isinstance(text, str) else None
    except Exception:  # noqa: BLE001 - no such header, no number, or an object that may raise
        return None


class RequestCount:
    """Counts the requests that are sent while a call is the current one of its task or thread."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests = 0


_current: ContextVar[RequestCount | None] = ContextVar("zae_limiter_llm_requests", default=None)


def count_into(count: RequestCount | None) -> RequestCount | None:
    """Count the requests that follow in this task or thread; returns what was counted into."""
    before = _current.get()
    _current.set(count)
    return before


class _Nothing:
    """What an event hook returns: an async client awaits it, a sync one ignores it."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


def count_request(request: Any) -> _Nothing:
    """Count a request of the current call; for the event hooks of an HTTP client.

    ``OpenAI(http_client=DefaultHttpxClient(event_hooks={"request": [llm.count_request]}))`` makes
    every retry that the SDK sends by itself count, also where its answer does not say so. The same
    function serves async clients.
    """
    count = _current.get()
    if count is not None:
        count.requests += 1
    return _Nothing()

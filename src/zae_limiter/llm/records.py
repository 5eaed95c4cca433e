"""What is known about one LLM call, and what it has to be charged for that."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from inspect import isawaitable
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.llm.chunks import StreamMeter
from zae_limiter.llm.estimates import Estimate
from zae_limiter.llm.feedback import RequestCount, is_refusal, retries_of
from zae_limiter.llm.inputs import CountTokens
from zae_limiter.llm.usage import Meter, Usage, costs, get, usage_of
from zae_limiter.models.limit import MAX_TOKENS


class StreamRecord:
    """What is known about one stream; outlives the stream, which may be dropped unread."""

    __slots__ = ("is_open", "meter", "reader_id", "requests")

    def __init__(self, meter: StreamMeter, requests: int) -> None:
        self.meter = meter
        self.requests = requests
        self.is_open = True
        self.reader_id: int | None = None  # the task or thread that has read it last

    def usage(self) -> Usage:
        """Return what the stream has used so far."""
        return self.meter.usage(self.requests)


class CallRecord:
    """Collects responses and streams of one reservation; says what they cost together.

    A call that was sent costs at least its input.
    """

    def __init__(
        self,
        estimate: Estimate,
        meter: Meter,
        *,
        count: CountTokens | None = None,
        charge_refused: bool = True,
    ) -> None:
        self.estimate = estimate
        self.meter = meter
        self.sent = RequestCount()
        self.is_refunded = False
        self._count = count
        self._charge_refused = charge_refused
        self._reported: list[Usage] = []
        self._unreported: list[Usage] = []  # answers without usage, as estimated from their text
        self._streams: list[StreamRecord] = []

    def record(self, response: Any) -> Usage | None:
        """Note a response; return the usage that it reports, if it does."""
        requests = 1 + retries_of(response)
        response = self._parsed(response)
        usage = usage_of(response)
        if usage is not None:
            self._reported.append(replace(usage, requests=requests))
            return usage
        answer = StreamMeter(self.estimate, self._count)
        answer.see(response)
        if answer.delivered_tokens:  # else nothing is known, and the estimate stays
            self._unreported.append(answer.usage(requests))
        return None

    def _parsed(self, response: Any) -> Any:
        """Return the answer inside a raw response of an SDK, and any other response as it is."""
        given, parse = response, get(response, "parse")
        if type(get(response, "retries_taken")) is int and callable(parse):
            content = get(get(response, "http_response"), "content")  # None before it was read
            try:
                response = json.loads(content) if isinstance(content, bytes) else parse()
            except Exception:  # noqa: BLE001 - the SDK raises it where the caller parses it, too
                return None
        if isawaitable(response):
            close = getattr(response, "close", None)
            if close is not None:
                close()  # else Python warns that it was never awaited
            raise self._unreadable(
                given,
                "cannot be read without await: pass the result of `await response.parse()`, "
                "or read it through call.stream(response.iter_bytes())",
            )
        is_stream = isinstance(response, Iterator | AsyncIterator)
        if is_stream or hasattr(get(response, "stream"), "__iter__"):
            raise self._unreadable(given, "is a stream: read it through call.stream(response)")
        return response

    def _unreadable(self, response: Any, reason: str) -> ValidationError:
        """Return the error for a response that nobody can read; the call costs its estimate."""
        self._unreported.append(self.estimate.usage)
        return ValidationError("response", type(response).__name__, reason)

    def record_usage(self, usage: Usage) -> None:
        """Note a usage that was found out in another way."""
        self._reported.append(usage)

    def record_stream(self, source: Any) -> StreamRecord:
        """Note a stream that is about to be read."""
        record = StreamRecord(StreamMeter(self.estimate, self._count), 1 + retries_of(source))
        self._streams.append(record)
        return record

    @property
    def has_open_stream(self) -> bool:
        """Whether a stream was neither read to its end nor closed."""
        return any(stream.is_open for stream in self._streams)

    def is_read_beside(self, caller_id: int) -> bool:
        """Tell whether a task or thread other than the caller reads an open stream."""
        readers = {stream.reader_id for stream in self._streams if stream.is_open}
        return bool(readers - {None, caller_id})

    @property
    def is_silent(self) -> bool:
        """Whether the block has said nothing about what became of its call."""
        return not (self._reported or self._unreported or self._streams or self.is_refunded)

    @property
    def is_exact(self) -> bool:
        """Whether the provider has reported everything that the call has used."""
        finals = [stream.meter.final for stream in self._streams]
        return bool(self._reported or finals) and all(finals) and not self._unreported

    def usage(self, error: BaseException | None = None) -> Usage:
        """Return what the call has used as far as it is known; ``error`` has ended its block."""
        streamed = [stream.usage() for stream in self._streams]
        known = [*self._reported, *self._unreported, *streamed]
        if known:
            usage = sum(known[1:], start=known[0])
        elif self.is_refunded and not self.sent.requests:
            return Usage(requests=0)
        elif error is not None:
            usage = self._failed_usage(error)
        else:
            usage = self.estimate.usage
        return replace(usage, requests=max(usage.requests, self.sent.requests))

    def amounts(self, usage: Usage) -> dict[str, int]:
        """Return what a usage costs of each limit, as far as a limit can be charged."""
        cost = costs(usage, self.meter)
        return {name: min(amount, MAX_TOKENS) for name, amount in cost.items()}

    def _failed_usage(self, error: BaseException) -> Usage:
        """Return the cost of a call that has failed without an answer: its input was sent."""
        requests = 1 + retries_of(error)
        if is_refusal(error) and not self._charge_refused:
            return Usage(requests=requests)
        return Usage(self.estimate.input_tokens, requests=requests)

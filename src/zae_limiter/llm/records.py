"""What is known about one LLM call, and what it has to be charged for that."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.llm.chunks import StreamMeter
from zae_limiter.llm.estimates import Estimate
from zae_limiter.llm.feedback import RequestCount, is_refusal, provider_wait, retries_of
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
        # Answers without usage, as estimated from their text, and calls that have failed.
        self._unreported: list[Usage] = []
        self._unread: list[Usage] = []  # answers in a form that cannot be read
        self._streams: list[StreamRecord] = []
        self._failure: Usage | None = None  # if the block has raised, and nothing else is known
        self.provider_wait: float | None = None

    def record(self, response: Any) -> Usage | None:
        """Note a response; return the usage that it reports, if it does.

        An error of the provider is noted as a call that has failed. A response that cannot be read
        raises ValidationError; it costs its estimate, unless another one is noted in its place.
        """
        if isinstance(response, BaseException):
            self._unreported.append(self._failed_usage(response))
            self.provider_wait = provider_wait(response)
            return None
        requests = 1 + retries_of(response)
        answer = self._parsed(response)
        usage = usage_of(answer)
        if usage is not None:
            self._note_answer()
            self._reported.append(replace(usage, requests=requests))
            return usage
        self._check_readable(answer, response)
        text = StreamMeter(self.estimate, self._count)
        text.see(answer)
        if text.delivered_tokens:  # else nothing is known, and the estimate stays
            self._note_answer()
            self._unreported.append(text.usage(requests))
        return None

    def _note_answer(self) -> None:
        """Note that the provider has answered, perhaps by what could not be read at first."""
        self.provider_wait = None
        if self._unread:
            self._unread.pop()

    def _parsed(self, response: Any) -> Any:
        """Return the answer inside a raw response of an SDK, and any other response as it is."""
        parse = get(response, "parse")
        if type(get(response, "retries_taken")) is not int or not callable(parse):
            return response
        content = get(get(response, "http_response"), "content")  # None before it was read
        try:
            return json.loads(content) if isinstance(content, bytes) else parse()
        except Exception:  # noqa: BLE001 - the SDK raises it where the caller parses it, too
            return None

    def _check_readable(self, answer: Any, response: Any) -> None:
        """Raise ValidationError if the answer of a response must be read in another way."""
        if isawaitable(answer):
            close = getattr(answer, "close", None)
            if close is not None:
                close()  # else Python warns that it was never awaited
            advice = (
                "cannot be read without await: pass the result of `await response.parse()`, "
                "or read it through call.stream(response.iter_bytes())"
            )
        elif _is_stream(answer):
            advice = "is a stream: read it through call.stream(response)"
        elif _is_http_response(answer):
            advice = (
                "is a response of an HTTP client: pass response.json(), or read a stream through "
                "call.stream(response.iter_bytes())"
            )
        else:
            return
        self._unread.append(self.estimate.usage)
        raise ValidationError("response", type(response).__name__, advice)

    def record_usage(self, usage: Usage) -> None:
        """Note a usage that was found out in another way."""
        self._note_answer()
        self._reported.append(usage)

    def record_stream(self, source: Any) -> StreamRecord:
        """Note a stream that is about to be read."""
        self._note_answer()
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
        noted = (self._reported, self._unreported, self._unread, self._streams)
        return not (any(noted) or self.is_refunded)

    @property
    def is_exact(self) -> bool:
        """Whether the provider has reported everything that the call has used."""
        finals = [stream.meter.final for stream in self._streams]
        estimated = self._unreported or self._unread
        return bool(self._reported or finals) and all(finals) and not estimated

    def fail(self, error: BaseException) -> None:
        """Note the error that has ended the block."""
        self._failure = self._failed_usage(error)
        asked_s = provider_wait(error)
        if asked_s is not None:
            self.provider_wait = asked_s

    def usage(self) -> Usage:
        """Return what the call has used as far as it is known."""
        streamed = [stream.usage() for stream in self._streams]
        known = [*self._reported, *self._unreported, *self._unread, *streamed]
        if known:
            usage = sum(known[1:], start=known[0])
        elif self.is_refunded and not self.sent.requests:
            return Usage(requests=0)
        else:
            usage = self._failure or self.estimate.usage
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


def _is_stream(answer: Any) -> bool:
    """Tell whether an answer is a stream, or a response of Bedrock that holds one."""
    if isinstance(answer, Iterator | AsyncIterator):
        return True
    events = answer.get("stream") if isinstance(answer, Mapping) else None
    is_data = isinstance(events, str | bytes | Mapping | list | tuple)
    return not is_data and (hasattr(events, "__iter__") or hasattr(events, "__aiter__"))


def _is_http_response(answer: Any) -> bool:
    """Tell whether an answer is that of an HTTP client, whose body nobody has parsed."""
    status = get(answer, "status_code", "status")
    return type(status) is int and callable(get(answer, "json"))

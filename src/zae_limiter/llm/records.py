"""Records of one LLM call: its responses and streams, and the usage that follows from them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.llm.chunks import StreamMeter
from zae_limiter.llm.estimates import Estimate
from zae_limiter.llm.feedback import RequestCount, is_refusal, provider_wait, retries_of
from zae_limiter.llm.inputs import CountTokens
from zae_limiter.llm.usage import Meter, Usage, costs, get, usage_of
from zae_limiter.models.limit import MAX_TOKENS

if TYPE_CHECKING:
    from zae_limiter.llm.prices import ModelPrice
    from zae_limiter.models.limit import Amount


class StreamRecord:
    """The record of one stream. It outlives the stream, which may be dropped before it is read."""

    __slots__ = ("is_open", "meter", "reader_id", "requests")

    def __init__(self, meter: StreamMeter, requests: int) -> None:
        self.meter = meter
        self.requests = requests
        self.is_open = True
        self.reader_id: int | None = None  # the task or thread that was the last to read

    def usage(self) -> Usage:
        """Return the usage of the stream so far."""
        return self.meter.usage(self.requests)


class CallRecord:
    """Collects the responses and streams of one reservation, and returns their usage together.

    A call that was sent costs at least its input. ``most_output`` are the tokens that the request
    lets the model write, if it says so. With a ``price`` the usage has a cost in money, which is
    charged to the limit ``budget``.
    """

    def __init__(
        self,
        estimate: Estimate,
        meter: Meter,
        *,
        count: CountTokens | None = None,
        charge_refused: bool = True,
        most_output: int | None = None,
        price: ModelPrice | None = None,
    ) -> None:
        self.estimate = estimate
        self.meter = meter
        self.price = price
        self.budget: str | None = None
        self.budget_resource: str | None = None  # None: the resource of the call itself
        self.sent = RequestCount()
        self.is_refunded = False
        self._count = count
        self._charge_refused = charge_refused
        self._most_output = most_output
        self._reported: list[Usage] = []
        # Estimates for answers that report no usage, and for calls that have failed.
        self._unreported: list[Usage] = []
        self._unread: list[Usage] = []  # estimates for answers in a form that cannot be read
        self._streams: list[StreamRecord] = []
        # The usage after an error of the block, for a call of which nothing else is known.
        self._failure: Usage | None = None
        self.provider_wait: float | None = None

    def record(self, response: Any) -> Usage | None:
        """Note a response; return the usage that it reports, or None if it reports none.

        An error of the provider is noted as a failed call. For a response that cannot be read, a
        ValidationError is raised; the response costs its estimate unless another one replaces it.
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
        text = self._text_meter()
        text.see(answer)
        if text.delivered_tokens:  # without any text the estimate stays
            self._note_answer()
            self._unreported.append(text.usage(requests))
        return None

    def _text_meter(self) -> StreamMeter:
        return StreamMeter(self.estimate, self._count, self._most_output)

    def _note_answer(self) -> None:
        """Note that the provider has answered; this replaces an answer that could not be read."""
        self.provider_wait = None
        if self._unread:
            self._unread.pop()

    def _parsed(self, response: Any) -> Any:
        """Return the answer inside a raw response of an SDK; return any other response itself."""
        parse = get(response, "parse")
        if type(get(response, "retries_taken")) is not int or not callable(parse):
            return response
        content = get(get(response, "http_response"), "content")  # None before it was read
        try:
            return json.loads(content) if isinstance(content, bytes) else parse()
        except Exception:  # noqa: BLE001 - the SDK raises the same where the caller parses it
            return None

    def _check_readable(self, answer: Any, response: Any) -> None:
        """Raise ValidationError, with advice, if the caller must read a response in another way."""
        if isawaitable(answer):
            close = getattr(answer, "close", None)
            if close is not None:
                close()  # otherwise Python warns that it was never awaited
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
        """Note a usage that the caller knows."""
        self._note_answer()
        self._reported.append(usage)

    def record_stream(self, source: Any) -> StreamRecord:
        """Note a stream that is about to be read."""
        self._note_answer()
        record = StreamRecord(self._text_meter(), 1 + retries_of(source))
        self._streams.append(record)
        return record

    @property
    def has_open_stream(self) -> bool:
        """Whether a stream is still open: it was not closed and not read to its end."""
        return any(stream.is_open for stream in self._streams)

    def is_read_beside(self, caller_id: int) -> bool:
        """Tell whether a task or thread other than the caller reads an open stream."""
        readers = {stream.reader_id for stream in self._streams if stream.is_open}
        return bool(readers - {None, caller_id})

    @property
    def is_silent(self) -> bool:
        """Whether the block has noted nothing about its call."""
        noted = (self._reported, self._unreported, self._unread, self._streams)
        return not (any(noted) or self.is_refunded)

    @property
    def is_exact(self) -> bool:
        """Whether the provider has reported the whole usage of the call."""
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
        """Return the usage of the call as far as it is known."""
        parts = self._usages()
        usage = self._priced(sum(parts[1:], start=parts[0]), parts)
        return replace(usage, requests=max(usage.requests, self.sent.requests))

    def estimated_usage(self) -> Usage:
        """Return the estimate as a usage, with its cost."""
        estimated = self.estimate.usage
        return self._priced(estimated, [estimated])

    def _usages(self) -> list[Usage]:
        """Return the usage of each request, or one for a call of which nothing is known."""
        streamed = [stream.usage() for stream in self._streams]
        known = [*self._reported, *self._unreported, *self._unread, *streamed]
        if known:
            return known
        if self.is_refunded and not self.sent.requests:
            return [Usage(requests=0)]
        return [self._failure or self.estimate.usage]

    def _priced(self, usage: Usage, requests: list[Usage]) -> Usage:
        """Return a usage with the cost of its requests: a long input has a price of its own."""
        return usage if self.price is None else replace(usage, cost=self.price.cost(*requests))

    def amounts(self, usage: Usage) -> dict[str, Amount]:
        """Return the cost of a usage by limit, in tokens and in money."""
        return self.tokens(usage) | self.money(usage)

    def tokens(self, usage: Usage) -> dict[str, Amount]:
        """Return the tokens of a usage by limit, at most the largest amount of a charge."""
        return {name: min(amount, MAX_TOKENS) for name, amount in costs(usage, self.meter).items()}

    def money(self, usage: Usage) -> dict[str, Amount]:
        """Return the cost in money by the name of its budget; empty without prices."""
        if self.budget is None or usage.cost is None:
            return {}
        return {self.budget: usage.cost.amount}

    def _failed_usage(self, error: BaseException) -> Usage:
        """Return the usage of a failed call without an answer, whose input was sent."""
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
    """Tell whether an answer is a response of an HTTP client whose body was not parsed."""
    status = get(answer, "status_code", "status")
    return type(status) is int and callable(get(answer, "json"))

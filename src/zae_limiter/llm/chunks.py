"""The usage of a streamed LLM answer, from its chunks.

The end of an iterator does not prove that the answer is complete, since a connection that is closed
early also ends the iterator without an error. A stream is complete when the last event of its
provider has come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from zae_limiter.llm.estimates import BYTES_PER_TOKEN, Estimate
from zae_limiter.llm.inputs import CountTokens
from zae_limiter.llm.usage import Usage, counts_of, get, items_of, usage_from

# A longer line of server-sent events is not parsed. All events of these APIs are far shorter.
_LONGEST_LINE: Final = 4 * 1024 * 1024
_RESPONSES_ENDED: Final = ("response.completed", "response.incomplete", "response.failed")


class _Chunk(NamedTuple):
    """The text that one chunk delivers, and whether it says that the answer is complete."""

    texts: list[str]
    is_last: bool = False


class StreamMeter:
    """Reads the chunks of one stream and returns the usage of the call.

    If the provider has reported the usage of the complete answer, this is the usage. Otherwise the
    output is the larger of the reported output and an estimate for the delivered text. This
    estimate is at most ``most_output``, the tokens that the request lets the model write.
    """

    __slots__ = (
        "_bytes",
        "_count",
        "_counted",
        "_counts",
        "_ended",
        "_estimate",
        "_final",
        "_line",
        "_most_output",
    )

    def __init__(
        self,
        estimate: Estimate,
        count: CountTokens | None = None,
        most_output: int | None = None,
    ) -> None:
        self._estimate = estimate
        self._count = count
        self._most_output = most_output
        self._counts: dict[str, int] = {}
        self._ended = False
        self._bytes = 0
        self._counted = 0
        self._line = b""
        self._final = False

    def see(self, chunk: Any) -> None:
        """Note one chunk: an event of an SDK, a dictionary, or bytes of server-sent events."""
        if isinstance(chunk, bytes | bytearray):
            for event in self._events(bytes(chunk)):
                self.see(event)
            return
        if get(chunk, "type") == "chunk":  # the helper of the OpenAI SDK wraps its chunks
            chunk = get(chunk, "chunk")
        texts, is_last = _read(chunk)
        for text in texts:
            self._deliver(text)
        self._ended = self._ended or is_last
        counts = counts_of(chunk)
        if counts is not None:
            self._report(counts)

    @property
    def final(self) -> bool:
        """Whether usage was reported for the complete answer."""
        self._see_open_line()
        return self._final

    def usage(self, requests: int = 1) -> Usage:
        """Return the usage of the call as far as it is known, with at least its input."""
        self._see_open_line()
        known = usage_from(self._counts, requests)
        if self._final:
            return known
        input_tokens = (
            known.input_tokens if "input" in self._counts else self._estimate.input_tokens
        )
        return Usage(
            input_tokens=input_tokens,
            output_tokens=max(known.output_tokens, self.delivered_tokens),
            cached_tokens=known.cached_tokens,
            cache_write_tokens=known.cache_write_tokens,
            reasoning_tokens=known.reasoning_tokens,
            requests=requests,
            cache_write_1h_tokens=known.cache_write_1h_tokens,
        )

    @property
    def delivered_tokens(self) -> int:
        """Estimate the tokens of the text delivered so far."""
        tokens = -(-self._bytes // BYTES_PER_TOKEN) if self._count is None else self._counted
        return tokens if self._most_output is None else min(tokens, self._most_output)

    def _deliver(self, text: str) -> None:
        if not text:
            return
        self._final = False  # the reported usage did not include this text
        if self._count is None:
            self._bytes += len(text.encode("utf-8", "replace"))
        else:
            self._counted += self._count(text)

    def _report(self, counts: dict[str, int]) -> None:
        """Note reported counts, which are totals so far.

        The counts at the end of the answer replace all earlier ones. Before the end, the larger
        count is kept, since some providers send zeros in between.
        """
        for key, count in counts.items():
            before = 0 if self._ended else self._counts.get(key, 0)
            self._counts[key] = max(before, count)
        self._final = self._ended

    def _see_open_line(self) -> None:
        """Note an event at the end of the bytes so far, which may never get its line end."""
        event = self._event(self._line)
        if event is not None:
            self._line = b""
            self.see(event)

    def _events(self, data: bytes) -> Iterator[Any]:
        # A line of server-sent events ends with LF, CR LF or CR. An empty line more is no event.
        lines = (self._line + data).replace(b"\r", b"\n").split(b"\n")
        self._line = lines.pop()
        if len(self._line) > _LONGEST_LINE:
            self._line = b""
        for line in lines:
            event = self._event(line)
            if event is not None:
                yield event

    def _event(self, line: bytes) -> Any:
        """Return the event of a line, and None for any other line, also for half of an event."""
        if not line.startswith(b"data:"):
            return None
        text = line[len(b"data:") :].strip()
        if text == b"[DONE]":
            self._ended = True
        elif text.startswith(b"{"):
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return None  # the reader of the stream gets this line and can handle the error
        return None


# --- the formats of the providers ------------------------------------------------------------


def _read(chunk: Any) -> _Chunk:
    if isinstance(chunk, str):  # some helpers of SDKs yield only the text
        return _Chunk([chunk])
    kind = get(chunk, "type")
    if isinstance(kind, str) and kind.startswith("response."):
        return _responses(chunk, kind)
    for name, read in _FORMATS.items():
        if get(chunk, name) is not None:
            return read(chunk)
    return _anthropic(chunk, kind)


def _chat(chunk: Any) -> _Chunk:
    texts, is_last = [], False
    for choice in items_of(get(chunk, "choices")):
        delta = get(choice, "delta", "message") or choice
        texts += _strings(delta, "content", "refusal", "reasoning_content", "reasoning", "text")
        for tool in items_of(get(delta, "tool_calls")):
            texts += _strings(get(tool, "function"), "name", "arguments")
        is_last = is_last or get(choice, "finish_reason") is not None
    return _Chunk(texts, is_last)


def _responses(event: Any, kind: str) -> _Chunk:
    # An audio delta is data and no text; the transcript comes in other events.
    has_text = kind.endswith(".delta") and not kind.endswith("audio.delta")
    return _Chunk(_strings(event, "delta") if has_text else [], kind in _RESPONSES_ENDED)


def _anthropic(event: Any, kind: Any) -> _Chunk:
    delta = get(event, "delta")
    if kind == "content_block_delta":
        return _Chunk(_strings(delta, "text", "partial_json", "thinking"))
    if kind == "message_delta":
        return _Chunk([], get(delta, "stop_reason") is not None)
    return _Chunk([], kind == "message_stop")


def _bedrock_delta(event: Any) -> _Chunk:
    delta = get(get(event, "contentBlockDelta"), "delta")
    texts = _strings(delta, "text")
    texts += _strings(get(delta, "toolUse"), "input")
    return _Chunk(texts + _strings(get(delta, "reasoningContent"), "text"))


def _gemini(chunk: Any) -> _Chunk:
    texts, is_last = [], False
    for candidate in items_of(get(chunk, "candidates")):
        for part in items_of(get(get(candidate, "content"), "parts")):
            texts += _strings(part, "text")
            call = get(part, "function_call", "functionCall")
            if call is not None:
                texts += [*_strings(call, "name"), str(get(call, "args") or "")]
        is_last = is_last or get(candidate, "finish_reason", "finishReason") is not None
    return _Chunk(texts, is_last)


_FORMATS: Final[Mapping[str, Callable[[Any], _Chunk]]] = {
    "choices": _chat,
    "candidates": _gemini,
    "contentBlockDelta": _bedrock_delta,
    "messageStop": lambda event: _Chunk([], True),
}


def _strings(value: Any, *names: str) -> list[str]:
    """Return the fields that hold text."""
    fields = [get(value, name) for name in names]
    return [field for field in fields if isinstance(field, str)]

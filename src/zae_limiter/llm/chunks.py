"""What a stream of an LLM answer has shown so far: usage, delivered text, and whether it ended.

An iterator that ends does not mean a complete answer: a connection that is closed early ends it,
too, without an error. Complete is a stream that has sent its provider's last event.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from zae_limiter.llm.estimates import BYTES_PER_TOKEN, Estimate
from zae_limiter.llm.inputs import CountTokens
from zae_limiter.llm.usage import Usage, counts_of, get, items_of, usage_from

# A line of server-sent events that is longer is not parsed: no event of these APIs comes close.
_LONGEST_LINE: Final = 4 * 1024 * 1024
_RESPONSES_ENDED: Final = ("response.completed", "response.incomplete", "response.failed")


class _Chunk(NamedTuple):
    """The text that one chunk delivers, and whether it says that the answer is complete."""

    texts: list[str]
    is_last: bool = False


class StreamMeter:
    """Watches the chunks of one stream and says what the call has used.

    Where the provider has reported the usage of a complete answer, that is it. Otherwise it is the
    larger of what was reported and the input plus the text delivered so far.
    """

    __slots__ = ("_bytes", "_count", "_counted", "_counts", "_ended", "_estimate", "_line", "final")

    def __init__(self, estimate: Estimate, count: CountTokens | None = None) -> None:
        self._estimate = estimate
        self._count = count
        self._counts: dict[str, int] = {}
        self._ended = False
        self._bytes = 0
        self._counted = 0
        self._line = b""
        self.final = False  # whether usage was reported for the complete answer

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

    def usage(self, requests: int = 1) -> Usage:
        """Return what the call has used as far as it is known, and never less than its input."""
        known = usage_from(self._counts, requests)
        if self.final:
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
        )

    @property
    def delivered_tokens(self) -> int:
        """Estimate the tokens of the text delivered so far."""
        if self._count is not None:
            return self._counted
        return -(-self._bytes // BYTES_PER_TOKEN)

    def _deliver(self, text: str) -> None:
        if not text:
            return
        self.final = False  # what was reported did not include this
        if self._count is None:
            self._bytes += len(text.encode("utf-8", "replace"))
        else:
            self._counted += self._count(text)

    def _report(self, counts: dict[str, int]) -> None:
        """Take the counts: they are totals so far, so a later one replaces an earlier one.

        Before the end the larger counts: some providers send zeros in between.
        """
        for key, count in counts.items():
            before = 0 if self._ended else self._counts.get(key, 0)
            self._counts[key] = max(before, count)
        self.final = self._ended

    def _events(self, data: bytes) -> Iterator[Any]:
        lines = (self._line + data).split(b"\n")
        self._line = lines.pop()
        if len(self._line) > _LONGEST_LINE:
            self._line = b""
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            text = line[len(b"data:") :].strip()
            if text == b"[DONE]":
                self._ended = True
            elif text.startswith(b"{"):
                try:
                    event = json.loads(text)
                except (ValueError, RecursionError):
                    continue  # it is passed on as it came; others may complain about it
                yield event


# --- the formats of the providers ------------------------------------------------------------


def _read(chunk: Any) -> _Chunk:
    if isinstance(chunk, str):  # a helper of an SDK that yields the text alone
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
    # The data of sound is no text; its transcript comes in events of its own.
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

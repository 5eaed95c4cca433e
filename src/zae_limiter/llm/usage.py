"""The usage of one LLM call, in one form for all providers, and its cost in tokens of a limit.

Responses are read by the names of their fields, from SDK objects and from plain dictionaries alike.
So no SDK is imported, and a new version of an SDK works as long as it keeps its field names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from decimal import Decimal


class Cost(NamedTuple):
    """The price of a call, and the version of the price file that it comes from."""

    amount: Decimal
    currency: str
    prices: str

    def __str__(self) -> str:
        return f"{self.amount:f} {self.currency}"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and requests of a call. Input and output are totals; other counts are parts of them.

    ``cached_tokens`` (read from the provider's cache) and ``cache_write_tokens`` are parts of
    ``input_tokens``, and ``reasoning_tokens`` are a part of ``output_tokens``. This holds for all
    providers, even if their own fields are divided in another way. ``cache_write_1h_tokens`` are
    the part of ``cache_write_tokens`` that the provider keeps for an hour, at a higher price.
    ``requests`` includes the retries that an SDK makes by itself. ``cost`` is the price of the call
    if it was reserved with prices.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 1
    cache_write_1h_tokens: int = 0
    cost: Cost | None = None

    @property
    def total_tokens(self) -> int:
        """Return input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        counts = [name for name in _FIELDS if name != "cost"]
        summed = {name: getattr(self, name) + getattr(other, name) for name in counts}
        return Usage(**summed, cost=_added(self.cost, other.cost))


_FIELDS: Final = tuple(each.name for each in fields(Usage))


def _added(first: Cost | None, second: Cost | None) -> Cost | None:
    """Return the sum of two costs by the same prices; None if there is none."""
    if first is None or second is None or first[1:] != second[1:]:
        return None
    return first._replace(amount=first.amount + second.amount)


@dataclass(frozen=True, slots=True)
class Weights:
    """The costs of one token of each kind, and of each request, in tokens of one limit.

    The default counts every token once. Fractions are exact: ``cached="0.1"`` or ``cached=0.1``
    charges 1 for 10 tokens that were read from the cache. Only the sum is rounded up.
    """

    input: float | str = 1
    output: float | str = 1
    cached: float | str | None = None
    cache_write: float | str | None = None
    reasoning: float | str | None = None
    request: float | str = 0

    def __post_init__(self) -> None:
        for each in fields(self):
            weight = getattr(self, each.name)
            try:
                valid = weight is None or _exact(weight) >= 0
            except (ValueError, TypeError, OverflowError, ZeroDivisionError):
                valid = False
            if not valid:
                raise ValidationError(f"weights.{each.name}", weight, "must be a number from 0 up")

    def cost(self, usage: Usage) -> int:
        """Return the cost of a usage. A part without a weight has the weight of its total."""
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        reasoning = usage.reasoning_tokens
        return math.ceil(
            _exact(self.request) * usage.requests
            + _exact(self.input) * max(0, usage.input_tokens - cached - written)
            + _exact(self.input if self.cached is None else self.cached) * cached
            + _exact(self.input if self.cache_write is None else self.cache_write) * written
            + _exact(self.output) * max(0, usage.output_tokens - reasoning)
            + _exact(self.output if self.reasoning is None else self.reasoning) * reasoning
        )


def _exact(weight: float | str) -> Fraction:
    """Return a weight as its decimal digits say: 0.1 is exactly a tenth."""
    return Fraction(str(weight))


REQUESTS: Final = Weights(input=0, output=0, request=1)
ALL_TOKENS: Final = Weights()
INPUT_TOKENS: Final = Weights(output=0)
UNCACHED_INPUT_TOKENS: Final = Weights(output=0, cached=0)  # as Anthropic counts input per minute
OUTPUT_TOKENS: Final = Weights(input=0)

Meter = Mapping[str, Weights]
# The documentation uses these names of limits throughout.
DEFAULT_METER: Final[Meter] = {"rpm": REQUESTS, "tpm": ALL_TOKENS}


def costs(usage: Usage, meter: Meter) -> dict[str, int]:
    """Return the cost of the usage for each limit of the meter."""
    return {name: weights.cost(usage) for name, weights in meter.items()}


# --- reading responses -----------------------------------------------------------------------

_INCLUSIVE_INPUT = ("prompt_tokens", "prompt_token_count", "promptTokenCount")
_NAMES: Final = {
    "input": (*_INCLUSIVE_INPUT, "input_tokens", "inputTokens"),
    "output": (
        "completion_tokens",
        "output_tokens",
        "outputTokens",
        "candidates_token_count",
        "candidatesTokenCount",
    ),
    "cached": ("cached_content_token_count", "cachedContentTokenCount"),
    "cache_read_beside": ("cache_read_input_tokens", "cacheReadInputTokens"),
    "cache_write_beside": ("cache_creation_input_tokens", "cacheWriteInputTokens"),
    "tool_input_beside": ("tool_use_prompt_token_count", "toolUsePromptTokenCount"),
    "reasoning_beside": ("thoughts_token_count", "thoughtsTokenCount"),
    "total": ("total_tokens", "totalTokens", "total_token_count", "totalTokenCount"),
}
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")
_DETAILS: Final = {
    "cached": (_INPUT_DETAILS, ("cached_tokens",)),
    "cache_write": (_INPUT_DETAILS, ("cache_write_tokens",)),
    "reasoning": (_OUTPUT_DETAILS, ("reasoning_tokens", "thinking_tokens")),
}
# The fields of a response or an event that may hold its usage, which may also be at the top. An
# OpenAI event has a response, the first event of Anthropic a message, Bedrock's last one metadata.
_HOLDERS: Final = ("response", "message", "metadata")
# No call reads or writes a billion tokens, so a larger count is a mistake of the provider.
_MOST_BELIEVED: Final = 10**9
_USAGES: Final = ("usage", "usage_metadata", "usageMetadata")


def get(value: Any, *names: str) -> Any:
    """Return the first of the named fields that is not None, of an object or a dictionary.

    It never raises: a field that cannot be read counts as missing.
    """
    is_mapping = isinstance(value, Mapping)
    for name in names:
        try:
            field = value.get(name) if is_mapping else getattr(value, name, None)
        except Exception:  # noqa: BLE001 - a property of another library may raise anything
            continue
        if field is not None:
            return field
    return None


def items_of(value: Any) -> list[Any] | tuple[Any, ...]:
    """Return a list or tuple, or no items for another value."""
    return value if isinstance(value, list | tuple) else ()


def usage_of(response: Any) -> Usage | None:
    """Return the usage that a response, or the last event of a stream, reports; None without one.

    It reads the formats of OpenAI (chat, responses, embeddings), Anthropic, Bedrock Converse and
    Gemini, from any provider that uses one of them.
    """
    counts = counts_of(response)
    return None if counts is None else usage_from(counts)


def counts_of(response: Any) -> dict[str, int] | None:
    """Return the reported counts only, since later events of a stream may add others."""
    for holder in _holders(response):
        counts = _counts(get(holder, *_USAGES))
        if counts:
            return counts
    return None


def _holders(response: Any) -> Iterator[Any]:
    yield response
    for name in _HOLDERS:
        inner = get(response, name)
        if inner is not None:
            yield inner


def _counts(usage: Any) -> dict[str, int]:
    if usage is None:
        return {}
    counts = {key: _whole(get(usage, *names)) for key, names in _NAMES.items()}
    for key, (groups, names) in _DETAILS.items():
        details = get(usage, *groups)
        if counts.get(key) is None and details is not None:
            counts[key] = _whole(get(details, *names))
    counts["cache_write_1h"] = _written_for_an_hour(usage)
    if _whole(get(usage, *_INCLUSIVE_INPUT)) is not None:
        # Some proxies add Anthropic's fields to OpenAI's, whose input includes their counts.
        counts["cache_read_beside"] = counts["cache_write_beside"] = None
    return {key: count for key, count in counts.items() if count is not None}


def _written_for_an_hour(usage: Any) -> int | None:
    """Return the part of cache writes that Anthropic or Bedrock keeps for an hour."""
    of_anthropic = get(get(usage, "cache_creation"), "ephemeral_1h_input_tokens")
    if of_anthropic is not None:
        return _whole(of_anthropic)
    parts = [each for each in items_of(get(usage, "cacheDetails")) if get(each, "ttl") == "1h"]
    return sum(_whole(get(each, "inputTokens")) or 0 for each in parts) if parts else None


def _whole(value: Any) -> int | None:
    """Return a count, and None for no number: a test double has a value for every name.

    A count with a fraction is rounded up: some proxies write every number as a float.
    """
    if type(value) is float and math.isfinite(value):
        value = math.ceil(value)
    return min(max(0, value), _MOST_BELIEVED) if type(value) is int else None


def usage_from(counts: Mapping[str, int], requests: int = 1) -> Usage:
    """Turn reported counts into totals and their parts."""
    read_beside, write_beside = (
        counts.get("cache_read_beside", 0),
        counts.get("cache_write_beside", 0),
    )
    reasoning_beside = counts.get("reasoning_beside", 0)
    input_tokens = (
        counts.get("input", 0) + counts.get("tool_input_beside", 0) + read_beside + write_beside
    )
    written = counts.get("cache_write", 0) + write_beside
    output = counts.get("output")
    if output is None:  # some providers report the total instead of the output
        output = max(0, counts.get("total", 0) - input_tokens - reasoning_beside)
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output + reasoning_beside,
        cached_tokens=counts.get("cached", 0) + read_beside,
        cache_write_tokens=written,
        reasoning_tokens=counts.get("reasoning", 0) + reasoning_beside,
        requests=requests,
        cache_write_1h_tokens=min(written, counts.get("cache_write_1h", 0)),
    )

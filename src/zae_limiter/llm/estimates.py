"""Estimates of the usage of a call, which are charged before the call is made."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from zae_limiter.exceptions import ValidationError
from zae_limiter.llm.inputs import CONFIGS, CountTokens, InputReader
from zae_limiter.llm.usage import Usage, get

# Measured with two tokenizers: a third of the UTF-8 bytes is at least 0.92 of the tokens of prose,
# code, JSON and texts in eight scripts, and half of the tokens of base64. The usual guess, a fourth
# of the characters, would be only a fourth of the tokens of Chinese.
BYTES_PER_TOKEN: Final = 3
_CAPS: Final = (
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "maxOutputTokens",
    "maxTokens",
)
_ANSWERS: Final = ("n", "candidate_count", "candidateCount")


@dataclass(frozen=True, slots=True)
class Estimate:
    """The tokens that a call will probably read, and the tokens that it will write."""

    input_tokens: int
    output_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ValidationError(f"estimate.{name}", value, "must be a whole number from 0 up")

    @property
    def usage(self) -> Usage:
        """Return the estimate in the form of a usage."""
        return Usage(self.input_tokens, self.output_tokens)


Estimator = Callable[[str, Any], "Estimate | int"]


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text from its bytes, without a tokenizer."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def estimate_input(request: Any, count: CountTokens = count_tokens) -> int:
    """Estimate the tokens that the model reads: messages, instructions, tools and attachments.

    ``request`` holds the arguments of the SDK's call, or the parsed body of its HTTP request. Every
    name and every text in it counts, apart from settings such as ``temperature``. An image, a sound
    or a file that is declared in the provider's format counts as 1,500 tokens, unless it is a text.
    """
    if request is None:
        raise ValidationError(
            "request", None, "is needed to estimate the input; or pass estimate= with numbers"
        )
    reader = InputReader(count)
    reader.read(request)
    return max(1, reader.tokens)


def output_cap(request: Any) -> int | None:
    """Return the most tokens that the request lets the model write, for all answers together."""
    configs = [request, *[get(request, name) for name in CONFIGS]]
    for config in configs:
        cap = get(config, *_CAPS)
        if type(cap) is int and cap >= 0:
            answers = get(request, *_ANSWERS) or get(config, *_ANSWERS)
            return cap * (answers if type(answers) is int and answers > 1 else 1)
    return None


@dataclass(frozen=True, slots=True)
class MaxTokens:
    """Estimates the input from its text and the output by the request's own cap.

    ``default_output`` is the estimate for a request without a cap; for embeddings it should be 0.
    """

    default_output: int = 1_024
    count: CountTokens = count_tokens

    def __call__(self, resource: str, request: Any) -> Estimate:
        cap = output_cap(request)
        return Estimate(
            estimate_input(request, self.count), self.default_output if cap is None else cap
        )


class Learned:
    """Estimates the output by a percentile of the outputs of recent calls on the resource.

    It reserves less than ``max_tokens``, which most answers do not reach, so that more calls fit at
    once. A call that writes more than was reserved takes its limits into debt. The samples come
    from this process; until there are ``min_samples``, ``fallback`` makes the estimate.
    """

    def __init__(
        self,
        percentile: float = 0.95,
        *,
        window: int = 256,
        min_samples: int = 20,
        fallback: Estimator | None = None,
        count: CountTokens = count_tokens,
    ) -> None:
        if not 0 < percentile <= 1:
            raise ValidationError("percentile", percentile, "must be above 0 and at most 1")
        if type(window) is not int or window < min_samples or min_samples < 1:
            raise ValidationError("window", window, f"must be at least min_samples ({min_samples})")
        self._percentile = percentile
        self._window = window
        self._min_samples = min_samples
        self._fallback = fallback or MaxTokens(count=count)
        self._count = count
        self._outputs: OrderedDict[str, list[int]] = OrderedDict()

    def __call__(self, resource: str, request: Any) -> Estimate | int:
        learned = self.percentile_of(resource)
        if learned is None:
            return self._fallback(resource, request)
        cap = output_cap(request)
        return Estimate(
            estimate_input(request, self._count), learned if cap is None else min(cap, learned)
        )

    def percentile_of(self, resource: str) -> int | None:
        """Return the learned output of a call on the resource; None with too few samples."""
        outputs = sorted(self._outputs.get(resource, ()))
        if len(outputs) < self._min_samples:
            return None
        return outputs[math.ceil(self._percentile * len(outputs)) - 1]

    def observe(self, resource: str, usage: Usage) -> None:
        """Learn from a usage that a provider has reported."""
        outputs = self._outputs.setdefault(resource, [])
        outputs.append(usage.output_tokens)
        # Threads may observe at the same time, so each change is one step.
        del outputs[: -self._window]
        while len(self._outputs) > _MOST_RESOURCES:
            self._outputs.popitem(last=False)


# Resources are models, so there are few. This bound protects the memory from made-up names.
_MOST_RESOURCES: Final = 1_000


def resolve(estimate: Estimate | int | Estimator, resource: str, request: Any) -> Estimate:
    """Return the estimate of one call; a bare number is the input."""
    if callable(estimate):
        estimate = estimate(resource, request)
    if type(estimate) is int:
        return Estimate(estimate)
    if not isinstance(estimate, Estimate):
        raise ValidationError("estimate", estimate, "must be an Estimate or a whole number")
    return estimate

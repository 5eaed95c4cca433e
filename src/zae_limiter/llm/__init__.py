"""LLM calls under limits: reserve an estimate, then charge what the call has really used.

``async with llm.reserve(limiter, "key-1", "gpt-4", request) as call:`` charges an estimate and
replaces it at the end by the usage that the provider reports, also if the block fails or its client
disconnects. Responses are read by their fields: no SDK is imported.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from zae_limiter._lazy import import_name

if TYPE_CHECKING:
    from zae_limiter._async.limiter import RateLimiter
    from zae_limiter._async.llm import LlmCall, LlmReservation, LlmStream
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter._sync.llm import SyncLlmCall, SyncLlmReservation, SyncLlmStream
    from zae_limiter.llm.chunks import StreamMeter
    from zae_limiter.llm.estimates import (
        Estimate,
        Estimator,
        Learned,
        MaxTokens,
        count_tokens,
        estimate_input,
        output_cap,
    )
    from zae_limiter.llm.feedback import count_request, provider_wait, retries_of
    from zae_limiter.llm.inputs import CountTokens
    from zae_limiter.llm.usage import (
        ALL_TOKENS,
        DEFAULT_METER,
        INPUT_TOKENS,
        OUTPUT_TOKENS,
        REQUESTS,
        UNCACHED_INPUT_TOKENS,
        Meter,
        Usage,
        Weights,
        costs,
        usage_of,
    )

_MODULES = {  # every other name is one of ``usage``
    "LlmCall": "._async.llm",
    "LlmReservation": "._async.llm",
    "LlmStream": "._async.llm",
    "SyncLlmCall": "._sync.llm",
    "SyncLlmReservation": "._sync.llm",
    "SyncLlmStream": "._sync.llm",
    "StreamMeter": "chunks",
    "Estimate": "estimates",
    "Learned": "estimates",
    "MaxTokens": "estimates",
    "count_tokens": "estimates",
    "estimate_input": "estimates",
    "output_cap": "estimates",
    "count_request": "feedback",
    "provider_wait": "feedback",
    "retries_of": "feedback",
}

__all__ = [
    "ALL_TOKENS",
    "DEFAULT_METER",
    "INPUT_TOKENS",
    "OUTPUT_TOKENS",
    "REQUESTS",
    "UNCACHED_INPUT_TOKENS",
    "Estimate",
    "Learned",
    "LlmCall",
    "LlmReservation",
    "LlmStream",
    "MaxTokens",
    "StreamMeter",
    "SyncLlmCall",
    "SyncLlmReservation",
    "SyncLlmStream",
    "Usage",
    "Weights",
    "costs",
    "count_request",
    "count_tokens",
    "estimate_input",
    "output_cap",
    "provider_wait",
    "reserve",
    "retries_of",
    "usage_of",
]


@overload
def reserve(
    limiter: RateLimiter,
    entity_id: str,
    resource: str,
    request: Any = None,
    *,
    estimate: Estimate | int | Estimator | None = None,
    meter: Meter | None = None,
    count: CountTokens | None = None,
    charge_refused: bool = True,
    pause: bool | str = True,
    **options: Any,
) -> LlmReservation: ...
@overload
def reserve(
    limiter: SyncRateLimiter,
    entity_id: str,
    resource: str,
    request: Any = None,
    *,
    estimate: Estimate | int | Estimator | None = None,
    meter: Meter | None = None,
    count: CountTokens | None = None,
    charge_refused: bool = True,
    pause: bool | str = True,
    **options: Any,
) -> SyncLlmReservation: ...
def reserve(
    limiter: RateLimiter | SyncRateLimiter,
    entity_id: str,
    resource: str,
    request: Any = None,
    **options: Any,
) -> LlmReservation | SyncLlmReservation:
    """Charge an estimate for one LLM call, and what the call has used when the block ends.

    ``request`` holds the arguments of the SDK's call, or the body of its request. By default the
    input is estimated from its text and the output by its ``max_tokens``; ``estimate`` is an
    ``Estimate``, a number of tokens or a function of resource and request instead. ``meter`` says
    which tokens count against which limit; by default requests against ``rpm`` and all tokens
    against ``tpm``. ``count`` is a tokenizer for texts, in place of the built-in estimate, also for
    answers that were cut off. ``charge_refused=False`` charges a call that the provider has refused
    (by a status such as 400 or 429) its requests only. If a 429 says for how long to wait, the
    bucket of the call is paused that long, so that all workers back off; ``pause`` is the entity
    whose bucket on the resource is paused instead, such as the parent, or False. Other options go
    to ``acquire``: ``timeout=``, ``limits=``, ``on_unavailable=``.

    With a ``SyncRateLimiter`` the result is a plain context manager. Raises what acquire raises.
    """
    tree = "_async" if inspect.iscoroutinefunction(limiter.is_available) else "_sync"
    module = import_module(f"zae_limiter.{tree}.llm")
    name = "LlmReservation" if tree == "_async" else "SyncLlmReservation"
    return getattr(module, name)(limiter, entity_id, resource, request, **options)  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    return import_name(__name__, name, _MODULES, names=__all__, searched=("usage",))


def __dir__() -> list[str]:
    return __all__

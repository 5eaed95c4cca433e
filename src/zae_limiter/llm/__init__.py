"""LLM calls under limits: an estimate is charged first, and corrected to the real usage later.

``async with llm.reserve(limiter, "key-1", "gpt-4", request) as call:`` charges an estimate. At the
end of the block the usage that the provider reports replaces the estimate, even if the block fails
or its client disconnects. Responses are read by the names of their fields, so no SDK is imported.
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
    from zae_limiter.llm.price_files import PriceFileError
    from zae_limiter.llm.prices import ModelPrice, Prices
    from zae_limiter.llm.usage import (
        ALL_TOKENS,
        DEFAULT_METER,
        INPUT_TOKENS,
        OUTPUT_TOKENS,
        REQUESTS,
        UNCACHED_INPUT_TOKENS,
        Cost,
        Meter,
        Usage,
        Weights,
        costs,
        usage_of,
    )

_MODULES = {  # all other names are in ``usage``
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
    "PriceFileError": "price_files",
    "ModelPrice": "prices",
    "Prices": "prices",
}

__all__ = [
    "ALL_TOKENS",
    "DEFAULT_METER",
    "INPUT_TOKENS",
    "OUTPUT_TOKENS",
    "REQUESTS",
    "UNCACHED_INPUT_TOKENS",
    "Cost",
    "Estimate",
    "Learned",
    "LlmCall",
    "LlmReservation",
    "LlmStream",
    "MaxTokens",
    "ModelPrice",
    "PriceFileError",
    "Prices",
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
    prices: Prices | ModelPrice | None = None,
    budget: str | None = None,
    budget_resource: str | None = None,
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
    prices: Prices | ModelPrice | None = None,
    budget: str | None = None,
    budget_resource: str | None = None,
    **options: Any,
) -> SyncLlmReservation: ...
def reserve(
    limiter: RateLimiter | SyncRateLimiter,
    entity_id: str,
    resource: str,
    request: Any = None,
    **options: Any,
) -> LlmReservation | SyncLlmReservation:
    """Charge an estimate for one LLM call, and correct it to the real usage when the block ends.

    ``request`` holds the arguments of the SDK's call, or the body of its request.

    ``estimate`` is an ``Estimate``, a number of tokens, or a function of resource and request. By
    default the input is estimated from its text and the output from its ``max_tokens``.

    ``meter`` says which tokens count against which limit. By default requests count against
    ``rpm`` and all tokens against ``tpm``.

    ``count`` is a tokenizer that replaces the built-in estimate for texts, including those of
    answers that were cut off.

    ``prices`` are the prices of models, such as ``llm.Prices.load("prices.yaml")``. Then a budget
    is charged as well: the limit ``budget``, or the only one in the currency of the prices. It is a
    limit of the resource, or of ``budget_resource``, where all models may share one. The price is
    that of the model that the request names, or else of the resource; ``prices.of(model)`` names
    another one. A model without a price raises ValidationError.

    ``charge_refused=False`` charges only the requests of a call that the provider has refused by a
    status such as 400 or 429.

    If a 429 says how long to wait, the bucket of the call is paused for that time, so that all
    workers back off. ``pause`` names another entity whose bucket on the resource is paused, such as
    the parent; with False no bucket is paused.

    Other options go to ``acquire``: ``timeout=``, ``limits=``, ``on_unavailable=``, ``also=``. The
    resources of ``also`` are settled through ``call.lease.resource``. With a ``SyncRateLimiter``
    the result is a plain context manager. The errors are those of ``acquire``.
    """
    tree = "_async" if inspect.iscoroutinefunction(limiter.is_available) else "_sync"
    module = import_module(f"zae_limiter.{tree}.llm")
    name = "LlmReservation" if tree == "_async" else "SyncLlmReservation"
    return getattr(module, name)(limiter, entity_id, resource, request, **options)  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    return import_name(__name__, name, _MODULES, names=__all__, searched=("usage",))


def __dir__() -> list[str]:
    return __all__

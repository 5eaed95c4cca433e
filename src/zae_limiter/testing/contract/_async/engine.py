"""The whole suite in one class."""

from __future__ import annotations

from zae_limiter.testing.contract._async.amounts import AmountContract
from zae_limiter.testing.contract._async.idle import IdleContract


class EngineContract(
    AmountContract,
    IdleContract,
):
    """All that every engine promises."""

"""Rates with terms as text, in the notation of limits, for the stores."""

from __future__ import annotations

from functools import lru_cache

from zae_limiter.admission.image import Rate, is_slots
from zae_limiter.models.limit import Limit
from zae_limiter.models.timestamps import MILLI

_NAME = "x"  # the notation begins with the name of the limit, which is stored elsewhere


def limit_of(name: str, rate: Rate) -> Limit:
    """Return a quota or soft limit from its stored parameters."""
    terms = rate.terms
    assert terms is not None, "a plain rate has no terms"
    unit = MILLI if terms.currency is None else 1
    period_s = rate.period_ms // 1000
    return Limit(
        name,
        rate.capacity_milli // unit,
        rate.refill_milli // unit,
        period_s,
        lease_ttl=period_s if is_slots(rate) else None,
        window=terms.window,
        soft=terms.soft,
        hold_ttl=terms.hold_ttl_s,
        thresholds=terms.thresholds,
        currency=terms.currency,
    )


@lru_cache(maxsize=4096)
def text_of(rate: Rate) -> str:
    """Return a rate with terms as text, without the name of its limit."""
    return str(limit_of(_NAME, rate)).removeprefix(f"{_NAME}:")


def stored_text(rate: Rate) -> str:
    """Return any rate as text: the numbers of a plain one, the notation of one with terms."""
    if rate.terms is not None:
        return text_of(rate)
    return f"{rate.capacity_milli},{rate.refill_milli},{rate.period_ms}"


@lru_cache(maxsize=4096)
def rate_of(text: str) -> Rate:
    """Return the rate that ``text_of`` has written; equal texts share one object."""
    return Rate.of(Limit.parse(f"{_NAME}:{text}"))

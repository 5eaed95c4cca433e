"""States of one limit, as reads of a bucket return them."""

from dataclasses import replace
from datetime import UTC, datetime

from zae_limiter import BucketState, Limit

NOW = 1_767_258_930_000
MINUTE = Limit.per_minute("rpm", 60)
QUOTA = Limit.quota("tokens", 1000, per="day")
USD = Limit.budget("usd", "10.00", per="month")


def state(entity_id="key", tokens=60, limit=MINUTE, at_ms=NOW, **values):
    return BucketState(
        entity_id,
        "gpt-4",
        limit.name,
        tokens * 1000,
        at_ms,
        limit.capacity_milli,
        limit.refill_amount_milli,
        limit.refill_period_ms,
        **values,
    )


def quota_state(units, limit, **values):
    """Return the state of a quota whose window ends in a minute."""
    values.setdefault("window_end", datetime.fromtimestamp(NOW / 1000 + 60, UTC))
    shown = state(limit=limit, terms=limit, window_start=None, **values)
    return replace(shown, tokens_milli=units)

"""Totals of usage rows, as the engines add them up."""

from zae_limiter.usage.report import UsageTotal


def summary_of(rows, query, *, each_token_once):
    """Totals, and averages per window with use."""
    total = UsageTotal(query, each_token_once=each_token_once)
    total.add(rows)
    return total.end()

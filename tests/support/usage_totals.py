"""Totals of usage rows, as the engines add them up."""

from zae_limiter.usage.report import UsageTotal


def summary_of(rows, query, entity_id=None, resource=None):
    """Totals, and averages per window with use."""
    total = UsageTotal(query, entity_id=entity_id, resource=resource)
    total.add(rows)
    return total.end()

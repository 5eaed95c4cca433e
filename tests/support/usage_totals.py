"""Totals of usage rows, as the engines add them up."""

from zae_limiter.usage.report import UsagePage, UsageTotal


def summary_of(rows, query, entity_id=None, resource=None):
    """Totals, and averages per window with use."""
    total = UsageTotal(query, entity_id=entity_id, resource=resource)
    total.add(rows)
    return total.end()


async def read_page(store, namespace_id, entity_id, resource, query, limit, next_key=None):
    """Return a page of windows from a store of usage, and the key of the next page."""
    page = UsagePage(query, limit, next_key)
    await store.read(namespace_id, entity_id, resource, page)
    return page.end()


async def read_summary(store, namespace_id, entity_id, resource, query):
    """Return the totals of a store of usage."""
    total = UsageTotal(query, entity_id=entity_id, resource=resource)
    await store.read(namespace_id, entity_id, resource, total)
    return total.end()

"""Usage: closed hours from their rows, the open hour from the buckets themselves."""

from __future__ import annotations

from zae_limiter.admission.usage import open_window
from zae_limiter.embedded.tables import Tables, UsageRow


def hours(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    from_hour: int,
    to_hour: int,
) -> list[UsageRow]:
    """Usage rows with ``from_hour <= hour < to_hour``; one bucket and hour may have two."""
    rows = tables.usage(namespace_id, entity_id, resource, from_hour, to_hour)
    for bucket in tables.buckets(namespace_id, entity_id, resource):
        window = open_window(bucket.image)
        if window is not None and from_hour <= window.hour < to_hour:
            rows.append(UsageRow(bucket.entity_id, bucket.resource, window))
    return rows

"""Usage in memory: one row per bucket and hour."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from zae_limiter.admission.usage import BucketHour, HourUsage
from zae_limiter.embedded.memory import rows as stored
from zae_limiter.embedded.memory.partitioned import Partitioned
from zae_limiter.embedded.memory.spaces import SpaceTables

# by namespace, resource and entity
_Hour = dict[str, dict[str, Partitioned[bytes]]]

PAGE = 500  # rows of one step of a query: about a millisecond


class UsageTables(SpaceTables):
    """Usage by hour, namespace, resource and entity: queries and deletion go by the hour."""

    def __init__(self) -> None:
        super().__init__()
        self._usage: dict[int, _Hour] = {}

    def add_usage(self, namespace_id: str, entity_id: str, resource: str, usage: HourUsage) -> None:
        hour = usage.hour
        by_resource = self._usage.setdefault(hour, {}).setdefault(namespace_id, {})
        entities = by_resource.get(resource)
        if entities is None:
            entities = by_resource[resource] = Partitioned()
        before = entities.get(entity_id)
        total = usage if before is None else stored.unpack_usage(hour, before).plus(usage)
        self.journal.put(entities, entity_id, stored.pack_usage(total))

    def usage_pages(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        from_hour: int,
        to_hour: int,
    ) -> Iterator[list[BucketHour]]:
        for hour in sorted(each for each in self._usage if from_hour <= each < to_hour):
            by_resource = self._usage.get(hour, {}).get(namespace_id, {})
            for name in list(by_resource) if resource is None else (resource,):
                entities = by_resource.get(name)
                if entities is None:
                    continue
                ids = list(entities) if entity_id is None else [entity_id]
                for at in range(0, len(ids), PAGE):
                    yield [
                        BucketHour(each, name, stored.unpack_usage(hour, entities[each]))
                        for each in ids[at : at + PAGE]
                        if each in entities
                    ]

    def delete_usage(self, before_hour: int, limit: int) -> int:
        removed = 0
        while removed < limit and self._usage and (hour := min(self._usage)) < before_hour:
            spaces = self._usage[hour]
            for namespace_id in list(spaces):
                removed += self._delete_hour(spaces, namespace_id, limit - removed)
            if not spaces:
                self.journal.delete(self._usage, hour)
        return removed

    def _delete_hour(self, spaces: _Hour, namespace_id: str, limit: int) -> int:
        """Delete rows of one hour, and the dictionaries that are empty then."""
        removed = 0
        by_resource = spaces.get(namespace_id, {})
        for resource in list(by_resource):
            entities = by_resource[resource]
            removed += self._delete_keys(entities, list(islice(entities, limit - removed)))
            if entities:
                return removed
            self.journal.delete(by_resource, resource)
        self.journal.delete(spaces, namespace_id)
        return removed

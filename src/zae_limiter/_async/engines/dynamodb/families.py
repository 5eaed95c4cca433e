"""What a new bucket repeats of its entity."""

from __future__ import annotations

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.reading import get_item
from zae_limiter.dynamodb.known import Known
from zae_limiter.records.dynamodb import entities, keys
from zae_limiter.records.dynamodb.bucket_item import Family
from zae_limiter.transport.deadline import Deadline


class Families:
    """Known from the read of the configuration; read again only if that was forgotten."""

    def __init__(self, client: DynamoClient, known: Known) -> None:
        self._client = client
        self._known = known

    async def get(self, namespace_id: str, entity_id: str, deadline: Deadline) -> Family:
        family = self._known.family(namespace_id, entity_id)
        if family is None:
            item = await get_item(self._client, keys.entity(namespace_id, entity_id), deadline)
            entity = None if item is None else entities.decode(item)
            self._known.saw_entity(namespace_id, entity_id, entity)
            family = self._known.family(namespace_id, entity_id) or Family()
        return family

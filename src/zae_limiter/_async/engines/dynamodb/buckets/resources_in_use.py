"""The registry of resources in use: one item per namespace, written when a resource is new."""

from __future__ import annotations

import logging
import time

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.concurrency.bounded import BoundedDict
from zae_limiter.dynamodb.items import keys, system
from zae_limiter.dynamodb.items.attributes import Item
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.transport.calls import Deadline

CALLS_S = 0.25  # for both calls together: an acquire waits for them
RETRY_AFTER_S = 60.0  # after a failure: acquires must not wait for the registry again and again
MAX_RESOURCES = 10_000  # remembered at a time; one that was dropped is read again

logger = logging.getLogger(__name__)


class ResourcesInUse:
    """Adds the resource of a new bucket to the registry, unless this process knows it is there.

    A resource stays registered when its buckets are gone.
    """

    def __init__(self, client: DynamoClient, retry_after_s: float = RETRY_AFTER_S) -> None:
        self._client = client
        self._retry_after_s = retry_after_s
        self._registered: BoundedDict[tuple[str, str], None] = BoundedDict(MAX_RESOURCES)
        self._adding: set[tuple[str, str]] = set()
        self._retry_at_s = 0.0

    async def all(self, namespace_id: str) -> list[str]:
        """Return the registered resources, sorted."""
        return system.registered_resources(await self._read(namespace_id, None, consistent=True))

    async def add(self, namespace_id: str, resource: str, deadline: Deadline) -> None:
        """Register a resource that a bucket was created on. Raises no error: it is not vital.

        If it fails, it is tried again with a later bucket.
        """
        wanted = (namespace_id, resource)
        if wanted in self._registered or wanted in self._adding:
            return
        if time.monotonic() < self._retry_at_s:
            return
        self._adding.add(wanted)
        try:
            await self._add(namespace_id, resource, Deadline(min(deadline.left(), CALLS_S)))
        except ZAELimiterError as error:
            self._retry_at_s = time.monotonic() + self._retry_after_s
            logger.debug("could not register resource %r as in use: %s", resource, error)
        finally:
            self._adding.discard(wanted)

    async def _add(self, namespace_id: str, resource: str, deadline: Deadline) -> None:
        # Most processes find it there. A read costs a tenth of a write, which is billed by the
        # size of the whole registry even if it changes nothing.
        item = await self._read(namespace_id, deadline, consistent=False)
        registered = system.registered_resources(item)
        if resource not in registered:
            update = system.register_resource(namespace_id, resource)
            await self._client.call(
                "UpdateItem", update.action(), deadline=deadline, repeatable=True
            )
        for name in (*registered, resource):
            self._registered.put((namespace_id, name), None)

    async def _read(
        self, namespace_id: str, deadline: Deadline | None, *, consistent: bool
    ) -> Item | None:
        body = {
            "Key": keys.resources_in_use(namespace_id).attributes,
            "ConsistentRead": consistent,
        }
        item: Item | None = (await self._client.call("GetItem", body, deadline=deadline)).get(
            "Item"
        )
        return item

"""The registry of resources in use: one item per namespace, written when a resource is new."""

from __future__ import annotations

from functools import partial

from zae_limiter._async.engines.items.later_writes import LaterWrites
from zae_limiter._async.engines.items.port import NOTHING, ItemStore
from zae_limiter.clock import Deadline
from zae_limiter.items.stored import keys, registries
from zae_limiter.items.stored.attributes import Item
from zae_limiter.runtime.bounded import BoundedDict

MAX_RESOURCES = 10_000  # remembered at a time; one that was dropped is read again


class ResourcesInUse:
    """Adds the resource of a bucket to the registry, unless this process knows it is there.

    A resource stays registered when its buckets are gone.
    """

    def __init__(self, store: ItemStore, later: LaterWrites) -> None:
        self._store = store
        self._later = later
        self._registered: BoundedDict[tuple[str, str], None] = BoundedDict(MAX_RESOURCES)

    async def all(self, namespace_id: str) -> list[str]:
        """Return the registered resources, sorted."""
        await self._later.drain()
        return registries.registered_resources(
            await self._read(namespace_id, None, consistent=True)
        )

    def add(self, namespace_id: str, resource: str) -> None:
        """Register a resource in the background: with a new bucket, and with every turned hour.

        So a registration that was lost, with the process that had to make it, is made up for.
        """
        wanted = (namespace_id, resource)
        if wanted not in self._registered:
            self._later.add(wanted, partial(self._add, namespace_id, resource))

    async def _add(self, namespace_id: str, resource: str, deadline: Deadline) -> None:
        if (namespace_id, resource) in self._registered:
            return
        # Most processes find it there. A read costs a tenth of a write, which is billed by the
        # size of the whole registry even if it changes nothing.
        item = await self._read(namespace_id, deadline, consistent=False)
        registered = registries.registered_resources(item)
        if resource not in registered:
            update = registries.register_resource(namespace_id, resource)
            await self._store.update(update, deadline, returns=NOTHING, repeatable=True)
        for name in (*registered, resource):
            self._registered.put((namespace_id, name), None)

    async def _read(
        self, namespace_id: str, deadline: Deadline | None, *, consistent: bool
    ) -> Item | None:
        key = keys.resources_in_use(namespace_id)
        return await self._store.get(key, deadline, consistent=consistent)

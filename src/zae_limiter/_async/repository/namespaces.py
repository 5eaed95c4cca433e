"""Namespaces: isolated parts of one store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zae_limiter._async.repository.part import Part
from zae_limiter.concurrency.calls import apause
from zae_limiter.exceptions import NamespaceNotFoundError, ValidationError
from zae_limiter.models.config import Namespace
from zae_limiter.naming import check_namespace, check_namespace_id, check_principal

PURGE_BATCH = 500


class NamespacePart(Part):
    """Register, delete, recover, purge."""

    @property
    def namespace_id(self) -> str:
        """The opaque id that keys are prefixed with."""
        return self._context.namespace_id

    @property
    def namespace_name(self) -> str:
        return self._context.namespace_name

    async def register_namespace(self, name: str, principal: str | None = None) -> str:
        """The id of a namespace, made if it does not exist."""
        return (await self.register_namespaces([name], principal))[name]

    async def register_namespaces(
        self, names: Iterable[str], principal: str | None = None
    ) -> dict[str, str]:
        """The ids of several namespaces, made where they do not exist."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise ValidationError("names", names, "must be a list of names")
        checked = tuple(check_namespace(name) for name in names)
        return await self._context.engine.namespaces.register(
            checked, self._context.clock(), check_principal(principal)
        )

    async def list_namespaces(self) -> list[Namespace]:
        """Active namespaces, sorted by name."""
        return [each for each in await self._all() if each.status == "active"]

    async def list_orphan_namespaces(self) -> list[Namespace]:
        """Deleted namespaces whose data is still there."""
        return [each for each in await self._all() if each.status != "active"]

    async def get_namespace(self, name: str) -> Namespace:
        """An active namespace; raises NamespaceNotFoundError."""
        found = await self._context.engine.namespaces.find(check_namespace(name))
        if found is None:
            raise NamespaceNotFoundError(name)
        return found

    async def delete_namespace(self, name: str, principal: str | None = None) -> str:
        """Free the name and keep the data under its id, which is returned."""
        return await self._context.engine.namespaces.soft_delete(
            check_namespace(name), self._context.clock(), check_principal(principal)
        )

    async def recover_namespace(self, namespace_id: str, principal: str | None = None) -> str:
        """Undo a delete; returns the name."""
        return await self._context.engine.namespaces.recover(
            check_namespace_id(namespace_id), self._context.clock(), check_principal(principal)
        )

    async def purge_namespace(
        self,
        namespace_id: str,
        progress: Callable[[int], None] | None = None,
        principal: str | None = None,
    ) -> int:
        """Remove a deleted namespace's data for good; returns how many rows went.

        ``progress`` is told the count after each batch. If interrupted, call it again.
        """
        store = self._context.engine.namespaces
        check_principal(principal)
        removed = await store.begin_purge(check_namespace_id(namespace_id))
        while batch := await store.purge_batch(namespace_id, PURGE_BATCH):
            removed += batch
            await apause()
            if progress is not None:
                progress(removed)
        await store.finish_purge(namespace_id, self._context.clock(), principal)
        self._context.cache.clear()
        return removed

    async def _all(self) -> list[Namespace]:
        return await self._context.engine.namespaces.all()

"""Methods of the repository for namespaces, and for the documents that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zae_limiter._async import operations
from zae_limiter._async.repository.context import RepositoryMixin
from zae_limiter.concurrency.calls import apause
from zae_limiter.exceptions import NamespaceNotFoundError, ValidationError
from zae_limiter.naming import (
    RESERVED_NAMESPACE,
    VERSION_RECORD,
    check_document,
    check_namespace,
    check_namespace_id,
    check_principal,
)

if TYPE_CHECKING:
    from zae_limiter.models.entity import Namespace
    from zae_limiter_ops._async.provisioner import Provisioner

PURGE_BATCH = 500  # rows of one transaction: short enough not to delay acquires of the same store
PROVISIONER_STATE = "provisioner"


class NamespaceMethods(RepositoryMixin):
    """Register, delete, recover and purge namespaces: isolated parts of one store."""

    @property
    def namespace_id(self) -> str:
        """The opaque id that every key starts with."""
        return self._context.namespace_id

    @property
    def namespace_name(self) -> str:
        """The name of the namespace."""
        return self._context.namespace_name

    async def register_namespace(self, name: str, principal: str | None = None) -> str:
        """Return the id of a namespace, which is created if it does not exist."""
        return (await self.register_namespaces([name], principal))[name]

    async def register_namespaces(
        self, names: Iterable[str], principal: str | None = None
    ) -> dict[str, str]:
        """Return the ids of namespaces by name; those that do not exist are created."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise ValidationError("names", names, "must be a list of names")
        checked = tuple(check_namespace(name) for name in names)
        return await self._context.engine.namespaces.register(
            checked, self._context.clock(), check_principal(principal)
        )

    async def list_namespaces(self) -> list[Namespace]:
        """Return the active namespaces, sorted by name."""
        return [namespace for namespace in await self._all() if namespace.status == "active"]

    async def list_orphan_namespaces(self) -> list[Namespace]:
        """Return the deleted namespaces whose data is still stored."""
        return [namespace for namespace in await self._all() if namespace.status != "active"]

    async def get_namespace(self, name: str) -> Namespace:
        """Return an active namespace; raises NamespaceNotFoundError."""
        namespace = await self._context.engine.namespaces.find(check_namespace(name))
        if namespace is None:
            raise NamespaceNotFoundError(name)
        return namespace

    async def delete_namespace(self, name: str, principal: str | None = None) -> str:
        """Free the name and keep the data under its id, which is returned."""
        return await self._context.engine.namespaces.soft_delete(
            check_namespace(name), self._context.clock(), check_principal(principal)
        )

    async def recover_namespace(self, namespace_id: str, principal: str | None = None) -> str:
        """Make a deleted namespace active again and return its name."""
        return await self._context.engine.namespaces.recover(
            check_namespace_id(namespace_id), self._context.clock(), check_principal(principal)
        )

    async def purge_namespace(
        self,
        namespace_id: str,
        progress: Callable[[int], None] | None = None,
        principal: str | None = None,
    ) -> int:
        """Delete a deleted namespace's data for good and return the number of rows.

        ``progress`` is called with the count so far after each batch. An interrupted purge is
        resumed by calling it again.
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


class DocumentMethods(RepositoryMixin):
    """Read and write the store's version record and the provisioner's state of the namespace."""

    async def get_version_record(self) -> dict[str, Any] | None:
        """Return which versions the store has, and how long it keeps usage; None if it has none."""
        return await self._context.engine.documents.get(RESERVED_NAMESPACE, VERSION_RECORD)

    async def set_version_record(self, record: dict[str, Any]) -> None:
        """Replace the version record. For tools that deploy; others leave it alone."""
        await self._context.engine.documents.put(
            RESERVED_NAMESPACE, VERSION_RECORD, check_document(record)
        )

    async def get_provisioner_state(self) -> dict[str, Any] | None:
        """Return what manifests manage in this namespace; None if there was no apply."""
        return await self._context.engine.documents.get(
            self._context.namespace_id, PROVISIONER_STATE
        )

    def provisioner(self, principal: str | None = None) -> Provisioner:
        """Return what brings this namespace to a manifest: it plans, applies, diffs and exports."""
        return operations.provisioner(self._context, check_principal(principal))

    async def put_provisioner_state(self, state: dict[str, Any]) -> None:
        """Replace the state of what manifests manage. For tools that migrate it."""
        await self._context.engine.documents.put(
            self._context.namespace_id, PROVISIONER_STATE, check_document(state)
        )

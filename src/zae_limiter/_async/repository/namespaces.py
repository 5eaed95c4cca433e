"""Methods of the repository for namespaces and their documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zae_limiter._async import operations
from zae_limiter._async.repository.context import RepositoryMixin
from zae_limiter.exceptions import NamespaceNotFoundError, ValidationError
from zae_limiter.naming import (
    RESERVED_NAMESPACE,
    VERSION_RECORD,
    check_document,
    check_namespace,
    check_namespace_id,
    check_principal,
)
from zae_limiter.runtime.calls import apause

if TYPE_CHECKING:
    from zae_limiter.models.entity import Namespace
    from zae_limiter_ops._async.provisioner import Provisioner

PURGE_BATCH = 500  # rows in one transaction, which delays acquires of the same store only shortly
PROVISIONER_STATE = "provisioner"


class NamespaceMethods(RepositoryMixin):
    """Register, delete, recover and purge namespaces, which are isolated parts of one store."""

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
        """Return an active namespace; raise NamespaceNotFoundError if there is none."""
        namespace = await self._context.engine.namespaces.find(check_namespace(name))
        if namespace is None:
            raise NamespaceNotFoundError(name)
        return namespace

    async def delete_namespace(self, name: str, principal: str | None = None) -> str:
        """Free the name, keep the data under the id of the namespace, and return the id."""
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
        """Delete the data of a deleted namespace for good and return the number of rows.

        ``progress`` is called with the count so far after each batch. Another call resumes an
        interrupted purge.
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
        """Return the record with the versions of the store and the retention of usage, or None."""
        return await self._context.engine.documents.get(RESERVED_NAMESPACE, VERSION_RECORD)

    async def set_version_record(self, record: dict[str, Any]) -> None:
        """Replace the version record. Only tools that deploy should call this."""
        await self._context.engine.documents.put(
            RESERVED_NAMESPACE, VERSION_RECORD, check_document(record)
        )

    async def get_provisioner_state(self) -> dict[str, Any] | None:
        """Return the managed state of this namespace; None if no manifest was applied."""
        return await self._context.engine.documents.get(
            self._context.namespace_id, PROVISIONER_STATE
        )

    def provisioner(self, principal: str | None = None) -> Provisioner:
        """Return the provisioner, which plans, applies, diffs and exports manifests."""
        return operations.provisioner(self._context, check_principal(principal))

    async def put_provisioner_state(self, state: dict[str, Any]) -> None:
        """Replace the managed state. Only tools that migrate it should call this."""
        await self._context.engine.documents.put(
            self._context.namespace_id, PROVISIONER_STATE, check_document(state)
        )

"""Methods of the repository that create, read, list, change and delete entities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zae_limiter._async.repository.context import RepositoryMixin
from zae_limiter.exceptions import EntityExistsError, EntityNotFoundError, ValidationError
from zae_limiter.models.limit import check_positive
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.naming import (
    DEFAULT_RESOURCE,
    check_bool,
    check_cursor,
    check_entity_id,
    check_principal,
    check_text,
)

if TYPE_CHECKING:
    from zae_limiter.models.entity import Entity

MAX_PAGE = 10**6  # bounds the memory of a page


class EntityMethods(RepositoryMixin):
    """Create, read, list, change and delete entities."""

    async def create_entity(
        self,
        entity_id: str,
        name: str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        metadata: Mapping[str, str] | None = None,
        principal: str | None = None,
    ) -> Entity:
        """Add an entity; raise EntityExistsError if it exists.

        With ``cascade``, every acquire of the entity charges its parent as well. The parent need
        not be registered: an unknown parent is limited by the defaults, and logged at level INFO.
        """
        now_ms = self._context.clock()
        entity = _checked_entity(entity_id, name, parent_id, cascade, metadata, now_ms)
        return await self._create(entity, now_ms, check_principal(principal))

    async def ensure_entity(
        self,
        entity_id: str,
        name: str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        metadata: Mapping[str, str] | None = None,
        principal: str | None = None,
    ) -> Entity:
        """Return the entity, and create it with these values if it does not exist.

        An existing entity stays as it is, even if other values are given. This is for start-up
        code, which must not overwrite the settings of an operator. Any number of callers may race.
        A warning is logged if a parent is given and the existing entity has none.
        """
        now_ms = self._context.clock()
        entity = _checked_entity(entity_id, name, parent_id, cascade, metadata, now_ms)
        check_principal(principal)
        while True:
            found = await self.get_entity(entity_id)
            if found is not None:
                if parent_id is not None and found.parent_id is None:
                    _log_unset_parent(found, parent_id)
                return found
            try:
                return await self._create(entity, now_ms, principal)
            except EntityExistsError:  # another caller was faster; the entity may be gone again
                continue

    async def _create(self, entity: Entity, now_ms: int, principal: str | None) -> Entity:
        is_unknown = await self._is_unknown_parent(entity.parent_id)
        try:
            await self._context.engine.entities.create(
                self._context.namespace_id, entity, now_ms, principal
            )
        finally:  # even if cancelled, since the change may be committed
            self._context.cache.evict(self._context.namespace_id, entity.id)
        if is_unknown:
            _log_unknown_parent(entity)
        return entity

    async def get_entity(self, entity_id: str) -> Entity | None:
        """Return an entity; None if there is none."""
        return await self._context.engine.entities.get(
            self._context.namespace_id, check_entity_id(entity_id)
        )

    async def get_children(self, parent_id: str) -> list[Entity]:
        """Return the entities directly under ``parent_id``, sorted by id."""
        return await self._context.engine.entities.children(
            self._context.namespace_id, check_entity_id(parent_id, "parent_id")
        )

    async def list_entities(
        self, limit: int | None = None, cursor: str | None = None, parent_id: str | None = None
    ) -> tuple[list[Entity], str | None]:
        """Return a page of entities, and the cursor of the next page (None at the end).

        All entities come in the store's own order; those directly under ``parent_id`` are sorted by
        id. Ids that were never created but have buckets are listed with an empty ``created_at``. An
        entity that is created or deleted meanwhile may be missing or listed.
        """
        if limit is not None:
            check_positive(limit, "limit")
        if parent_id is not None:
            check_entity_id(parent_id, "parent_id")
        return await self._context.engine.entities.page(
            self._context.namespace_id,
            parent_id,
            check_cursor(cursor) or "",
            None if limit is None else min(limit, MAX_PAGE),
        )

    async def list_resources(self) -> list[str]:
        """Return the resources that have defaults or limits of entities, or are in use, sorted.

        A resource is in use once a bucket was created on it, and stays so after its buckets have
        expired or were deleted.
        """
        engine, namespace_id = self._context.engine, self._context.namespace_id
        names = {
            *await engine.configs.resources_with_defaults(namespace_id),
            *await engine.configs.resources_with_entity_configs(namespace_id),
            *await engine.buckets.resources(namespace_id),
        }
        return sorted(names - {DEFAULT_RESOURCE})

    async def set_parent(
        self,
        entity_id: str,
        parent_id: str | None,
        cascade: bool = True,
        principal: str | None = None,
    ) -> Entity:
        """Give an entity another parent, or None; its buckets and limits stay as they are.

        With ``cascade``, the next acquires charge the new parent; those of other processes do so
        after ``config_cache_ttl`` at most. Open leases settle with the parent that they have
        charged. Raise EntityNotFoundError if the entity is not registered.
        """
        check_entity_id(entity_id)
        parent_id = _check_parent(entity_id, parent_id, cascade, may_lack=True)
        is_unknown = await self._is_unknown_parent(parent_id)
        try:
            entity = await self._context.engine.entities.set_parent(
                self._context.namespace_id,
                entity_id,
                parent_id,
                cascade=cascade and parent_id is not None,
                now_ms=self._context.clock(),
                principal=check_principal(principal),
            )
        finally:  # even if cancelled, since the change may be committed
            self._context.cache.evict(self._context.namespace_id, entity_id)
        if entity is None:
            raise EntityNotFoundError(entity_id)
        if is_unknown:
            _log_unknown_parent(entity)
        return entity

    async def _is_unknown_parent(self, parent_id: str | None) -> bool:
        """Tell whether a parent is not registered; False if that would not be logged."""
        import logging  # imported here, so that `import zae_limiter` does not import it

        if parent_id is None or not logging.getLogger(__name__).isEnabledFor(logging.INFO):
            return False
        return await self.get_entity(parent_id) is None

    async def delete_entity(self, entity_id: str, principal: str | None = None) -> None:
        """Remove an entity with its limits and buckets. Usage and audit events stay.

        Its children keep it as their parent. Deleting an unknown entity does nothing.
        """
        check_entity_id(entity_id)
        check_principal(principal)
        try:
            await self._context.engine.entities.delete(
                self._context.namespace_id, entity_id, self._context.clock(), principal
            )
        finally:
            self._context.cache.evict(self._context.namespace_id, entity_id)


def _log_unset_parent(entity: Entity, parent_id: str) -> None:
    from zae_limiter.quiet_logging import quiet_logger

    quiet_logger(__name__).warning(
        "entity %r exists without a parent and stays as it is: it is not charged to %r; to change "
        "that, set_parent(%r, %r)",
        entity.id,
        parent_id,
        entity.id,
        parent_id,
    )


def _log_unknown_parent(entity: Entity) -> None:
    from zae_limiter.quiet_logging import quiet_logger

    quiet_logger(__name__).info(
        "entity %r has the parent %r, which is not registered: it is limited by the defaults; "
        "check its id, or create_entity(%r)",
        entity.id,
        entity.parent_id,
        entity.parent_id,
    )


def _checked_entity(
    entity_id: str,
    name: str | None,
    parent_id: str | None,
    cascade: bool,
    metadata: Mapping[str, str] | None,
    now_ms: int,
) -> Entity:
    from zae_limiter.models.entity import Entity  # no acquire needs it

    return Entity(
        id=check_entity_id(entity_id),
        name=check_text(name, "name"),
        parent_id=_check_parent(entity_id, parent_id, cascade),
        cascade=cascade,
        metadata=_check_metadata(metadata),
        created_at=iso_from_ms(now_ms),
    )


def _check_parent(
    entity_id: str, parent_id: str | None, cascade: bool, *, may_lack: bool = False
) -> str | None:
    """Check a parent. With ``may_lack``, ``cascade`` is ignored if there is no parent."""
    check_bool(cascade, "cascade")
    if parent_id is None:
        if cascade and not may_lack:
            raise ValidationError("cascade", cascade, "needs a parent_id to cascade to")
        return None
    check_entity_id(parent_id, "parent_id")
    if parent_id == entity_id:
        raise ValidationError("parent_id", parent_id, "must be another entity")
    return parent_id


def _check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise ValidationError("metadata", metadata, "must be a mapping of text to text")
    for key, value in metadata.items():
        check_text(key, "metadata")
        check_text(value, f"metadata.{key}")
        if key is None or value is None:
            raise ValidationError("metadata", {key: value}, "must be a mapping of text to text")
    return dict(metadata)

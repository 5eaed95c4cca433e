"""Entities, which are limited, and namespaces."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Entity:
    """An API key, user, project or tenant. With ``cascade`` its parent is charged as well."""

    id: str
    name: str | None = None
    parent_id: str | None = None
    cascade: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    created_at: str = ""

    @property
    def is_child(self) -> bool:
        """Whether the entity has a parent."""
        return self.parent_id is not None

    @property
    def is_parent(self) -> bool:
        """Whether the entity has no parent itself."""
        return self.parent_id is None


@dataclass(frozen=True, slots=True)
class Namespace:
    """An isolated part of a store, with entities, limits and buckets of its own."""

    namespace_id: str
    name: str
    status: str
    created_at: str
    deleted_at: str | None = None

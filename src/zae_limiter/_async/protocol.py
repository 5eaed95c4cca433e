"""What a limiter needs of a repository: for those who bring their own."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from zae_limiter._async.repository.context import Context
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.models.entity import Entity


@runtime_checkable
class RepositoryProtocol(Protocol):
    """The part of a repository that identifies it. Engines plug in below, at the ports."""

    _context: Context

    @property
    def namespace_id(self) -> str: ...

    @property
    def namespace_name(self) -> str: ...

    @property
    def capabilities(self) -> BackendCapabilities: ...

    async def get_entity(self, entity_id: str) -> Entity | None: ...

    async def ping(self) -> bool: ...

    async def close(self) -> None: ...

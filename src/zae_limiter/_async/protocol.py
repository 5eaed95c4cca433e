"""What a limiter needs of a repository: for those who wrap or replace it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from zae_limiter._async.repository.admission import Admission
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.models.bucket import BucketState
from zae_limiter.models.entity import Entity


@runtime_checkable
class RepositoryProtocol(Protocol):
    """The part of a repository that limiting uses. Engines plug in below it, at the ports."""

    admission: Admission

    @property
    def namespace_id(self) -> str: ...

    @property
    def namespace_name(self) -> str: ...

    @property
    def stack_name(self) -> str: ...

    @property
    def capabilities(self) -> BackendCapabilities: ...

    async def get_entity(self, entity_id: str) -> Entity | None: ...

    async def get_resource_buckets(
        self, resource: str, limit_name: str | None = None
    ) -> list[BucketState]: ...

    async def ping(self) -> bool: ...

    async def close(self) -> None: ...

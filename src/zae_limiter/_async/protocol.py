"""What every repository has in common, async and over any engine."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from zae_limiter._async.repository.admission import Admission
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.models.bucket import BucketState
from zae_limiter.models.entity import Entity


@runtime_checkable
class RepositoryProtocol(Protocol):
    """For annotations. An engine of one's own plugs in below: see ``Repository.over``."""

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

    async def get_buckets(
        self, entity_id: str, resource: str | None = None
    ) -> list[BucketState]: ...

    async def ping(self) -> bool: ...

    async def close(self) -> None: ...

"""The tables that an embedded engine supplies. Every call runs inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.usage import BucketHour, HourUsage
from zae_limiter.exceptions import NamespaceStateError
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import LevelConfig
from zae_limiter.models.entity import Entity, Namespace

NO_ENTITY = ""  # key part of resource and system defaults
NO_RESOURCE = ""  # key part of system defaults


BucketKey = tuple[str, str]  # entity and resource
T = TypeVar("T")
# A listing yields after each page and returns its result. Between two pages other operations may
# run and change the store.
Listing = Generator[None, None, T]


class BucketRow(NamedTuple):
    """A bucket with its key."""

    namespace_id: str
    entity_id: str
    resource: str
    image: BucketImage


class UndecodedBucket(NamedTuple):
    """A bucket with its key, decoded on demand; rows of equal ``revision`` have equal content."""

    entity_id: str
    resource: str
    revision: int | None
    image: Callable[[], BucketImage]


class Tables(Protocol):
    """Rows by key. Listings are sorted by id, so that a page can start after the last id.

    ``…_pages`` read one page each time they are advanced. Without an entity and a resource they
    list the whole namespace. Hours come in the order of time; the buckets of one hour, and those of
    a whole namespace, come in any order.
    """

    # buckets
    def get_bucket(
        self, namespace_id: str, entity_id: str, resource: str
    ) -> BucketImage | None: ...
    def put_bucket(
        self, namespace_id: str, entity_id: str, resource: str, image: BucketImage
    ) -> None: ...
    def delete_bucket(self, namespace_id: str, entity_id: str, resource: str) -> None: ...
    def buckets(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        after: BucketKey | None = None,
        limit: int | None = None,
    ) -> list[BucketRow]: ...
    def undecoded_buckets(
        self, namespace_id: str, after: BucketKey | None, limit: int
    ) -> list[UndecodedBucket]: ...
    def resources_in_use(self, namespace_id: str) -> list[str]: ...
    def entity_buckets(self, namespace_id: str, entity_id: str) -> list[BucketRow]: ...
    def bucket_pages(
        self, namespace_id: str, entity_id: str | None, resource: str | None
    ) -> Iterator[list[BucketRow]]: ...
    def expired_buckets(self, now_ms: int, limit: int) -> list[BucketRow]: ...

    # usage, one row per bucket and hour
    def add_usage(
        self, namespace_id: str, entity_id: str, resource: str, usage: HourUsage
    ) -> None: ...
    def usage_pages(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        from_hour: int,
        to_hour: int,
    ) -> Iterator[list[BucketHour]]: ...
    def delete_usage(self, before_hour: int, limit: int) -> int: ...

    # configuration; system defaults have neither entity nor resource
    def get_config(
        self, namespace_id: str, entity_id: str, resource: str
    ) -> LevelConfig | None: ...
    def put_config(
        self, namespace_id: str, entity_id: str, resource: str, config: LevelConfig
    ) -> None: ...
    def delete_config(self, namespace_id: str, entity_id: str, resource: str) -> None: ...
    def config_resources(self, namespace_id: str, entity_id: str) -> list[str]: ...
    def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]: ...
    def entity_config_resources(self, namespace_id: str) -> list[str]: ...
    def config_version(self, namespace_id: str) -> int: ...
    def bump_config_version(self, namespace_id: str) -> None: ...

    # entities
    def get_entity(self, namespace_id: str, entity_id: str) -> Entity | None: ...
    def put_entity(self, namespace_id: str, entity: Entity) -> None: ...
    def delete_entity(self, namespace_id: str, entity_id: str) -> None: ...
    def entities(
        self, namespace_id: str, parent_id: str, after: str, limit: int | None
    ) -> list[Entity]: ...
    def entities_in_use(self, namespace_id: str, after: str, limit: int | None) -> list[Entity]: ...

    # namespaces
    def get_namespace(self, namespace_id: str) -> Namespace | None: ...
    def active_namespace(self, name: str) -> Namespace | None: ...
    def namespaces(self) -> list[Namespace]: ...
    def put_namespace(self, namespace: Namespace) -> None: ...
    def delete_namespace(self, namespace_id: str) -> None: ...
    def is_purging(self, namespace_id: str) -> bool: ...
    def purge_rows(self, namespace_id: str, limit: int) -> int: ...
    def clear(self) -> None: ...

    # audit, newest first
    def add_audit(self, namespace_id: str, event: AuditEvent) -> None: ...
    def audit(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]: ...
    def delete_audit(self, before_event_id: str, limit: int) -> int: ...

    # small JSON documents: version of the store, state of the provisioner
    def get_document(self, namespace_id: str, key: str) -> dict[str, Any] | None: ...
    def put_document(self, namespace_id: str, key: str, value: dict[str, Any]) -> None: ...


def refuse_if_purging(tables: Tables, namespace_id: str) -> None:
    """Raise NamespaceStateError if the namespace is being purged.

    Every operation that would add a row calls this, so that a purge ends.
    """
    if tables.is_purging(namespace_id):
        raise NamespaceStateError(namespace_id, "is being purged; register a new namespace")

"""The life of a namespace: active, deleted (recoverable), purging, gone."""

from __future__ import annotations

from zae_limiter.embedded.audit import Change, record
from zae_limiter.embedded.tables import Tables
from zae_limiter.exceptions import NamespaceNotFoundError, NamespaceStateError
from zae_limiter.identifiers import new_namespace_id
from zae_limiter.models.audit import AuditAction, namespace_subject
from zae_limiter.models.config import Namespace
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.naming import RESERVED_NAMESPACE

ACTIVE, DELETED, PURGING = "active", "deleted", "purging"


def register(
    tables: Tables, names: tuple[str, ...], now_ms: int, principal: str | None
) -> dict[str, str]:
    """Ids of the namespaces, made where they do not exist."""
    ids = {}
    for name in names:
        known = tables.active_namespace(name)
        if known is None:
            known = Namespace(new_namespace_id(), name, ACTIVE, iso_from_ms(now_ms))
            tables.put_namespace(known)
            _log(tables, known, AuditAction.NAMESPACE_REGISTERED, now_ms, principal)
        ids[name] = known.namespace_id
    return ids


def find(tables: Tables, name: str) -> Namespace | None:
    return tables.active_namespace(name)


def listing(tables: Tables) -> list[Namespace]:
    return tables.namespaces()


def soft_delete(tables: Tables, name: str, now_ms: int, principal: str | None) -> str:
    """The name is free again; the data stays under its id until purged."""
    known = tables.active_namespace(name)
    if known is None:
        raise NamespaceNotFoundError(name)
    gone = Namespace(known.namespace_id, name, DELETED, known.created_at, iso_from_ms(now_ms))
    tables.put_namespace(gone)
    _log(tables, gone, AuditAction.NAMESPACE_DELETED, now_ms, principal)
    return known.namespace_id


def recover(tables: Tables, namespace_id: str, now_ms: int, principal: str | None) -> str:
    """Give a deleted namespace its name back."""
    known = tables.get_namespace(namespace_id)
    if known is None:
        raise NamespaceNotFoundError(namespace_id)
    if known.status != DELETED:
        raise NamespaceStateError(
            namespace_id, f"is {known.status}; only a deleted one can be recovered"
        )
    if tables.active_namespace(known.name) is not None:
        raise NamespaceStateError(
            namespace_id, f"its name {known.name!r} is in use; delete that namespace first"
        )
    back = Namespace(namespace_id, known.name, ACTIVE, known.created_at)
    tables.put_namespace(back)
    _log(tables, back, AuditAction.NAMESPACE_RECOVERED, now_ms, principal)
    return known.name


def begin_purge(tables: Tables, namespace_id: str) -> int:
    """Only a deleted namespace may be purged, or one whose purge was interrupted.

    A client that was open during a purge may have written since: such rows can be purged, too.
    Returns how many rows this has removed already.
    """
    known = tables.get_namespace(namespace_id)
    if known is None:
        removed = 0 if namespace_id == RESERVED_NAMESPACE else tables.purge_rows(namespace_id, 1)
        if not removed:
            raise NamespaceNotFoundError(namespace_id)
        return removed
    if known.status == ACTIVE:
        raise NamespaceStateError(namespace_id, "is active; delete_namespace() it before a purge")
    tables.put_namespace(
        Namespace(namespace_id, known.name, PURGING, known.created_at, known.deleted_at)
    )
    return 0


def purge_batch(tables: Tables, namespace_id: str, limit: int) -> int:
    """Remove up to ``limit`` rows; 0 when nothing is left."""
    return tables.purge_rows(namespace_id, limit)


def finish_purge(tables: Tables, namespace_id: str, now_ms: int, principal: str | None) -> None:
    known = tables.get_namespace(namespace_id)
    if known is not None:
        tables.delete_namespace(namespace_id)
        _log(tables, known, AuditAction.NAMESPACE_PURGED, now_ms, principal)


def _log(
    tables: Tables, namespace: Namespace, action: AuditAction, now_ms: int, principal: str | None
) -> None:
    change = Change(namespace_subject(namespace.name), now_ms, principal)
    record(tables, RESERVED_NAMESPACE, change, action, {"namespace_id": namespace.namespace_id})

"""The life of a namespace (active, deleted, purging, gone), and its documents."""

from __future__ import annotations

from typing import Any

from zae_limiter.admission.configuration import (
    PURGING,
    Event,
    Guard,
    check_free,
    delete_namespace,
    namespace_purged,
    purge_namespace,
    recover_namespace,
    register_namespace,
)
from zae_limiter.embedded.history import record
from zae_limiter.embedded.tables import Tables, refuse_if_purging
from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.models.audit import AuditedChange, namespace_subject
from zae_limiter.models.entity import Namespace
from zae_limiter.naming import RESERVED_NAMESPACE, new_namespace_id


def register(
    tables: Tables, names: tuple[str, ...], now_ms: int, principal: str | None = None
) -> dict[str, str]:
    """Return the ids of the namespaces; create those that do not exist."""
    ids = {}
    for name in names:
        namespace = tables.active_namespace(name)
        if namespace is None:
            namespace, event = register_namespace(new_namespace_id(), name, now_ms)
            _write(tables, namespace, event, now_ms, principal)
        ids[name] = namespace.namespace_id
    return ids


def find(tables: Tables, name: str) -> Namespace | None:
    return tables.active_namespace(name)


def listing(tables: Tables) -> list[Namespace]:
    return tables.namespaces()


def soft_delete(tables: Tables, name: str, now_ms: int, principal: str | None = None) -> str:
    """Free the name; the data stays under the returned id until it is purged."""
    gone, event = delete_namespace(tables.active_namespace(name), name, now_ms)
    _write(tables, gone, event, now_ms, principal)
    return gone.namespace_id


def recover(tables: Tables, namespace_id: str, now_ms: int, principal: str | None = None) -> str:
    """Give a deleted namespace its name back, and return the name."""
    back, event = recover_namespace(tables.get_namespace(namespace_id), namespace_id)
    check_free(back, is_taken=tables.active_namespace(back.name) is not None)
    _write(tables, back, event, now_ms, principal)
    return back.name


def begin_purge(tables: Tables, namespace_id: str) -> int:
    """Mark a deleted namespace as being purged, also one whose purge was interrupted.

    A purged namespace is accepted as long as it has rows: a client that was open during the purge
    may have written them. The namespace is registered again under its id, so that further rows are
    refused. Return the number of rows that this call has deleted.
    """
    namespace = tables.get_namespace(namespace_id)
    if namespace is None:
        removed = 0 if namespace_id == RESERVED_NAMESPACE else tables.purge_rows(namespace_id, 1)
        if not removed:
            raise NamespaceNotFoundError(namespace_id)
        tables.put_namespace(Namespace(namespace_id, namespace_id, PURGING, ""))
        return removed
    tables.put_namespace(purge_namespace(namespace))
    return 0


def purge_batch(tables: Tables, namespace_id: str, limit: int) -> int:
    """Delete up to ``limit`` rows; return their number, which is 0 at the end."""
    return tables.purge_rows(namespace_id, limit)


def finish_purge(
    tables: Tables, namespace_id: str, now_ms: int, principal: str | None = None
) -> None:
    namespace = tables.get_namespace(namespace_id)
    if namespace is None:
        return
    event = namespace_purged(namespace)
    tables.delete_namespace(namespace_id)
    if namespace.created_at:  # without it, a purge was logged before
        _log(tables, namespace, event, now_ms, principal)


def get_document(tables: Tables, namespace_id: str, key: str) -> dict[str, Any] | None:
    return tables.get_document(namespace_id, key)


def put_document(tables: Tables, namespace_id: str, key: str, value: dict[str, Any]) -> None:
    refuse_if_purging(tables, namespace_id)
    tables.put_document(namespace_id, key, value)


def replace_document(
    tables: Tables,
    namespace_id: str,
    key: str,
    value: dict[str, Any],
    *,
    revision: str | None,
    guard: Guard | None = None,
) -> bool:
    """Write a document if the stored document and the guard's have these revisions."""
    refuse_if_purging(tables, namespace_id)
    if guard is not None and not is_at(tables, namespace_id, *guard):
        return False
    if not is_at(tables, namespace_id, key, revision):
        return False
    tables.put_document(namespace_id, key, value)
    return True


def is_at(tables: Tables, namespace_id: str, key: str, revision: str | None) -> bool:
    """Return whether a document has this revision; None stands for a missing one."""
    document = tables.get_document(namespace_id, key)
    return (document or {}).get("revision") == revision


def _write(
    tables: Tables, namespace: Namespace, event: Event, now_ms: int, principal: str | None
) -> None:
    tables.put_namespace(namespace)
    _log(tables, namespace, event, now_ms, principal)


def _log(
    tables: Tables, namespace: Namespace, event: Event, now_ms: int, principal: str | None
) -> None:
    audited = AuditedChange.by(principal, namespace_subject(namespace.name), now_ms)
    record(tables, RESERVED_NAMESPACE, audited, *event)

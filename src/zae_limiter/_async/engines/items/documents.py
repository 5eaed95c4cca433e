"""The port of small documents: the version record, and the state of applied manifests."""

from __future__ import annotations

from typing import Any

from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.transactions import TransactionPlan
from zae_limiter.admission.configuration import Guard
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import ValidationError
from zae_limiter.items.stored import guarded_writes as guarded
from zae_limiter.items.stored import keys, system
from zae_limiter.items.stored.attributes import (
    DOCUMENT,
    MAX_DOCUMENT_CHARACTERS,
    Item,
    decode_document,
    text,
)
from zae_limiter.items.stored.update import ItemWrite


class ItemDocuments:
    """Small JSON documents, one item each."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._store = context.store

    async def get(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        item = await self._store.get(keys.record(namespace_id, key))
        return None if item is None else decode_document(item)

    async def put(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        item = _encoded(namespace_id, key, value)
        await self._context.refuse_if_purging(namespace_id)
        await self._store.put(item)

    async def replace(
        self,
        namespace_id: str,
        key: str,
        value: dict[str, Any],
        *,
        revision: str | None,
        guard: Guard | None = None,
    ) -> bool:
        item, record = _encoded(namespace_id, key, value), keys.record(namespace_id, key)
        guard_key = None if guard is None else keys.record(namespace_id, guard.key)
        wanted = [record] if guard_key is None else [record, guard_key]
        await self._context.refuse_if_purging(namespace_id)

        async def plan(deadline: Deadline) -> TransactionPlan[bool]:
            items = await self._store.get_several(wanted, consistent=True, deadline=deadline)
            before = items.get(record)
            if system.document_revision(before) == value["revision"]:
                return TransactionPlan(True, [])  # an earlier, unanswered attempt was committed
            writes: list[ItemWrite] = [guarded.put(item, before)]
            if guard is not None and guard_key is not None:
                if system.document_revision(items.get(guard_key)) != guard.revision:
                    return TransactionPlan(False, [])
                writes.append(guarded.check_revision(guard_key, guard.revision))
            if system.document_revision(before) != revision:
                return TransactionPlan(False, [])
            return TransactionPlan(True, writes)

        return await self._context.commit(namespace_id, plan)


def _encoded(namespace_id: str, key: str, value: dict[str, Any]) -> Item:
    """Return the item of a document; raise ValidationError if the document is too large."""
    item = system.encode_document(namespace_id, key, value)
    length = len(text(item[DOCUMENT]))
    if length > MAX_DOCUMENT_CHARACTERS:
        raise ValidationError(
            "document", length, f"must have at most {MAX_DOCUMENT_CHARACTERS} characters as JSON"
        )
    return item

"""The port of the namespace registry."""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.partitions import InTurn
from zae_limiter._async.engines.items.port import MAX_GROUP
from zae_limiter._async.engines.items.transactions import TransactionPlan
from zae_limiter.admission.configuration import (
    ACTIVE,
    DELETED,
    PURGING,
    Event,
    check_free,
    delete_namespace,
    namespace_purged,
    purge_namespace,
    recover_namespace,
    register_namespace,
)
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.items.stored import config_writes, keys, system
from zae_limiter.items.stored import guarded_writes as guarded
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.query import PREFIX, ItemQuery, Range
from zae_limiter.items.stored.update import ItemDelete, ItemUpdate, ItemWrite
from zae_limiter.models.audit import AuditedChange, namespace_subject
from zae_limiter.models.entity import Namespace
from zae_limiter.naming import RESERVED_NAMESPACE, new_namespace_id

MAX_PASSES = 2  # passes of one purge over the index
MAX_NAMES = MAX_GROUP // 3  # a namespace has an item by name, one by id, and an event


class ItemNamespaces:
    """Each step is one transaction. A purge takes many transactions, and can be resumed."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._store = context.store
        self._passes: dict[str, list[InTurn]] = {}  # the passes of each purge in progress

    async def register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None = None
    ) -> dict[str, str]:
        ids: dict[str, str] = {}
        wanted = tuple(dict.fromkeys(names))
        for start in range(0, len(wanted), MAX_NAMES):
            some = wanted[start : start + MAX_NAMES]
            ids |= await self._register(some, now_ms, principal)
        return ids

    async def _register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None
    ) -> dict[str, str]:
        new = {name: register_namespace(new_namespace_id(), name, now_ms) for name in names}

        async def plan(deadline: Deadline) -> TransactionPlan[dict[str, str]]:
            items = await self._store.get_several(
                map(keys.namespace_by_name, names), consistent=True, deadline=deadline
            )
            found = map(system.decode_namespace, items.values())
            ids = {namespace.name: namespace.namespace_id for namespace in found}
            writes: list[ItemWrite] = []
            for name in names:
                if name not in ids:
                    namespace, event = new[name]
                    ids[name] = namespace.namespace_id
                    writes.append(guarded.put_new(system.encode_by_name(namespace)))
                    writes.append(guarded.put_new(system.encode_by_id(namespace)))
                    writes.append(self._log(namespace, event, now_ms, principal))
            return TransactionPlan({name: ids[name] for name in names}, writes)

        return await self._context.commit(RESERVED_NAMESPACE, plan)

    async def find(self, name: str) -> Namespace | None:
        item = await self._store.get(keys.namespace_by_name(name))
        return None if item is None else system.decode_namespace(item)

    async def all(self) -> list[Namespace]:
        sort = Range(PREFIX, system.ID_PREFIX)
        query = ItemQuery(schema.pk_system(RESERVED_NAMESPACE), sort)
        namespaces = map(system.decode_namespace, await self._store.query(query).all())
        return sorted(namespaces, key=lambda namespace: (namespace.name, namespace.namespace_id))

    async def soft_delete(self, name: str, now_ms: int, principal: str | None = None) -> str:
        async def plan(deadline: Deadline) -> TransactionPlan[str]:
            key = keys.namespace_by_name(name)
            item = await self._store.get(key, deadline)
            before = None if item is None else system.decode_namespace(item)
            after, event = delete_namespace(before, name, now_ms)
            writes = [
                guarded.delete_if(key, "namespace_id", after.namespace_id),
                _transition(ACTIVE, after),
                self._log(after, event, now_ms, principal),
            ]
            return TransactionPlan(after.namespace_id, writes)

        return await self._context.commit(RESERVED_NAMESPACE, plan)

    async def recover(self, namespace_id: str, now_ms: int, principal: str | None = None) -> str:
        async def plan(deadline: Deadline) -> TransactionPlan[str]:
            before = await self._by_id(namespace_id, deadline)
            after, event = recover_namespace(before, namespace_id)
            by_name = await self._store.get(keys.namespace_by_name(after.name), deadline)
            check_free(after, is_taken=by_name is not None)
            writes = [
                guarded.put_new(system.encode_by_name(after)),
                _transition(DELETED, after),
                self._log(after, event, now_ms, principal),
            ]
            return TransactionPlan(after.name, writes)

        return await self._context.commit(RESERVED_NAMESPACE, plan)

    # --- purge

    async def begin_purge(self, namespace_id: str) -> int:
        """Mark a namespace, or purge items that a client wrote after an earlier purge."""

        async def plan(deadline: Deadline) -> TransactionPlan[bool]:
            namespace = await self._by_id(namespace_id, deadline)
            if namespace is None or namespace.status == PURGING:
                return TransactionPlan(namespace is not None, [])
            writes = [
                _transition(DELETED, purge_namespace(namespace)),
                config_writes.purge_mark(namespace_id),
            ]
            return TransactionPlan(True, writes)

        self._passes.pop(namespace_id, None)
        self._context.active_namespaces.forget(namespace_id)
        await self._context.later.drain()  # late writes must not follow the purge
        if await self._context.commit(RESERVED_NAMESPACE, plan):
            return 0
        reserved = namespace_id == RESERVED_NAMESPACE
        removed = 0 if reserved else await self.purge_batch(namespace_id, 1)
        if not removed:
            raise NamespaceNotFoundError(namespace_id)
        return removed

    async def purge_batch(self, namespace_id: str, limit: int) -> int:
        """Delete up to ``limit`` items.

        The index is read twice, because it is a moment behind the table, and no more often, so
        that a purge ends even if clients go on writing. The item with the mark, by which clients
        learn of the purge, is deleted last.
        """
        passes = self._passes.setdefault(namespace_id, [])
        mark = keys.system_config(namespace_id)
        while True:
            if not passes or (passes[-1].is_over and len(passes) < MAX_PASSES):
                passes.append(self._pass(namespace_id, limit))
            batch = [Key.of(item) for item in await passes[-1].take(limit)]
            if not batch and (len(passes) == MAX_PASSES or not passes[-1].count):
                return 0
            wanted = [key for key in batch if key != mark]
            try:
                await self._store.delete_many(wanted)
            finally:
                self._context.recent_changes.note(namespace_id)
            if wanted or (batch and len(passes) == 1):
                return len(batch) if len(passes) == 1 else len(wanted)

    def _pass(self, namespace_id: str, limit: int) -> InTurn:
        queries = [
            self._store.query(ItemQuery(partition, index_name="GSI4", page_size=limit))
            for partition in schema.gsi4_partitions(namespace_id)
        ]
        return InTurn(queries, self._context.parallel)

    async def finish_purge(
        self, namespace_id: str, now_ms: int, principal: str | None = None
    ) -> None:
        async def plan(deadline: Deadline) -> TransactionPlan[None]:
            namespace = await self._by_id(namespace_id, deadline)
            if namespace is None:  # not registered any more: only the mark is left
                mark = keys.system_config(namespace_id)
                return TransactionPlan(None, [ItemDelete(mark)])
            event = namespace_purged(namespace)
            writes = [
                guarded.delete_if(keys.namespace_by_id(namespace_id), "status", PURGING),
                ItemDelete(keys.system_config(namespace_id)),
                self._log(namespace, event, now_ms, principal),
            ]
            return TransactionPlan(None, writes)

        self._passes.pop(namespace_id, None)
        await self._context.commit(RESERVED_NAMESPACE, plan)

    async def _by_id(self, namespace_id: str, deadline: Deadline) -> Namespace | None:
        item = await self._store.get(keys.namespace_by_id(namespace_id), deadline)
        return None if item is None else system.decode_namespace(item)

    def _log(
        self, namespace: Namespace, event: Event, now_ms: int, principal: str | None
    ) -> ItemWrite:
        audited = AuditedChange.by(principal, namespace_subject(namespace.name), now_ms)
        return self._context.log(RESERVED_NAMESPACE, audited, *event)


def _transition(before: str, after: Namespace) -> ItemUpdate:
    """Return the update of a namespace, on the condition of its status before."""
    update = ItemUpdate(keys.namespace_by_id(after.namespace_id))
    update.equal("status", before)
    update.set("status", after.status)
    if after.deleted_at is None:
        update.remove("deleted_at")
    elif before == ACTIVE:
        update.set("deleted_at", after.deleted_at)
    return update

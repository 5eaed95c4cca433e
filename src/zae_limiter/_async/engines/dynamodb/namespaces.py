"""The registry of namespaces."""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.batches import batch_delete
from zae_limiter._async.engines.dynamodb.reading import Query, batch_get, get_item
from zae_limiter._async.engines.dynamodb.store import Store
from zae_limiter._async.engines.dynamodb.transactions import MOST_ACTIONS, Plan
from zae_limiter.exceptions import NamespaceNotFoundError, NamespaceStateError
from zae_limiter.identifiers import new_namespace_id
from zae_limiter.models.audit import AuditAction, namespace_subject
from zae_limiter.models.config import Namespace
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.naming import RESERVED_NAMESPACE
from zae_limiter.records.dynamodb import actions, keys
from zae_limiter.records.dynamodb import namespaces as stored
from zae_limiter.records.dynamodb.actions import Action
from zae_limiter.records.dynamodb.attributes import s
from zae_limiter.records.dynamodb.audit import Change
from zae_limiter.records.dynamodb.keys import Key
from zae_limiter.records.dynamodb.namespaces import ACTIVE, DELETED, PURGING
from zae_limiter.records.dynamodb.update import Update
from zae_limiter.transport.deadline import Deadline

NAMES_AT_ONCE = MOST_ACTIONS // 3  # a record by name, one by id and an event each


class DynamoNamespaces:
    """Each step is one transaction; a purge is many, and can be taken up again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = store.client

    async def register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None = None
    ) -> dict[str, str]:
        ids: dict[str, str] = {}
        wanted = tuple(dict.fromkeys(names))
        for start in range(0, len(wanted), NAMES_AT_ONCE):
            some = wanted[start : start + NAMES_AT_ONCE]
            ids |= await self._register(some, now_ms, principal)
        return ids

    async def _register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None
    ) -> dict[str, str]:
        made = {
            name: Namespace(new_namespace_id(), name, ACTIVE, iso_from_ms(now_ms)) for name in names
        }

        async def plan(deadline: Deadline) -> Plan[dict[str, str]]:
            found = await batch_get(
                self._client, map(keys.namespace_by_name, names), consistent=True, deadline=deadline
            )
            known = {each.name: each for each in map(stored.decode, found.values())}
            writes: list[Action] = []
            for name in names:
                if name not in known:
                    writes.append(actions.put_new(stored.encode_by_name(made[name])))
                    writes.append(actions.put_new(stored.encode_by_id(made[name])))
                    action = AuditAction.NAMESPACE_REGISTERED
                    writes.append(self._log(made[name], action, now_ms, principal))
            everything = made | known
            return Plan({name: everything[name].namespace_id for name in names}, writes)

        return await self._store.commit(RESERVED_NAMESPACE, plan)

    async def find(self, name: str) -> Namespace | None:
        item = await get_item(self._client, keys.namespace_by_name(name))
        return None if item is None else stored.decode(item)

    async def all(self) -> list[Namespace]:
        values = {":pk": s(schema.pk_system(RESERVED_NAMESPACE)), ":sk": s(stored.ID_PREFIX)}
        query = Query(self._client, "PK = :pk AND begins_with(SK, :sk)", values)
        found = map(stored.decode, await query.all())
        return sorted(found, key=lambda each: (each.name, each.namespace_id))

    async def soft_delete(self, name: str, now_ms: int, principal: str | None = None) -> str:
        async def plan(deadline: Deadline) -> Plan[str]:
            key = keys.namespace_by_name(name)
            item = await get_item(self._client, key, deadline)
            if item is None:
                raise NamespaceNotFoundError(name)
            known = stored.decode(item)
            update = _transition(known.namespace_id, ACTIVE, DELETED)
            update.set("deleted_at", s(iso_from_ms(now_ms)))
            writes = [
                actions.delete_if(key, "namespace_id", s(known.namespace_id)),
                actions.update(update),
                self._log(known, AuditAction.NAMESPACE_DELETED, now_ms, principal),
            ]
            return Plan(known.namespace_id, writes)

        return await self._store.commit(RESERVED_NAMESPACE, plan)

    async def recover(self, namespace_id: str, now_ms: int, principal: str | None = None) -> str:
        async def plan(deadline: Deadline) -> Plan[str]:
            known = await self._by_id(namespace_id, deadline)
            if known is None:
                raise NamespaceNotFoundError(namespace_id)
            if known.status != DELETED:
                raise NamespaceStateError(
                    namespace_id, f"is {known.status}; only a deleted one can be recovered"
                )
            by_name = keys.namespace_by_name(known.name)
            if await get_item(self._client, by_name, deadline) is not None:
                raise NamespaceStateError(
                    namespace_id, f"its name {known.name!r} is in use; delete that namespace first"
                )
            back = Namespace(namespace_id, known.name, ACTIVE, known.created_at)
            update = _transition(namespace_id, DELETED, ACTIVE)
            update.remove("deleted_at")
            writes = [
                actions.put_new(stored.encode_by_name(back)),
                actions.update(update),
                self._log(back, AuditAction.NAMESPACE_RECOVERED, now_ms, principal),
            ]
            return Plan(known.name, writes)

        return await self._store.commit(RESERVED_NAMESPACE, plan)

    # --- purge

    async def begin_purge(self, namespace_id: str) -> int:
        """Rows that a client wrote after a purge can be purged, too, though nobody owns them."""

        async def plan(deadline: Deadline) -> Plan[bool]:
            known = await self._by_id(namespace_id, deadline)
            if known is None or known.status == PURGING:
                return Plan(known is not None, [])
            if known.status == ACTIVE:
                raise NamespaceStateError(
                    namespace_id, "is active; delete_namespace() it before a purge"
                )
            return Plan(True, [actions.update(_transition(namespace_id, DELETED, PURGING))])

        if await self._store.commit(RESERVED_NAMESPACE, plan):
            return 0
        reserved = namespace_id == RESERVED_NAMESPACE
        removed = 0 if reserved else await self.purge_batch(namespace_id, 1)
        if not removed:
            raise NamespaceNotFoundError(namespace_id)
        return removed

    async def purge_batch(self, namespace_id: str, limit: int) -> int:
        values = {":namespace": s(schema.gsi4_pk_namespace(namespace_id))}
        query = Query(self._client, "GSI4PK = :namespace", values, index="GSI4", page_size=limit)
        found = [Key.of(item) for item in await query.page()]
        try:
            await batch_delete(self._client, found, self._store.parallel)
        finally:
            self._store.own_writes.note(namespace_id)
        return len(found)

    async def finish_purge(
        self, namespace_id: str, now_ms: int, principal: str | None = None
    ) -> None:
        async def plan(deadline: Deadline) -> Plan[None]:
            known = await self._by_id(namespace_id, deadline)
            if known is None:
                return Plan(None, [])
            if known.status != PURGING:
                raise NamespaceStateError(
                    namespace_id, f"is {known.status}; it is not being purged"
                )
            writes = [
                actions.delete_if(keys.namespace_by_id(namespace_id), "status", s(PURGING)),
                self._log(known, AuditAction.NAMESPACE_PURGED, now_ms, principal),
            ]
            return Plan(None, writes)

        await self._store.commit(RESERVED_NAMESPACE, plan)

    async def _by_id(self, namespace_id: str, deadline: Deadline) -> Namespace | None:
        item = await get_item(self._client, keys.namespace_by_id(namespace_id), deadline)
        return None if item is None else stored.decode(item)

    def _log(
        self, namespace: Namespace, action: AuditAction, now_ms: int, principal: str | None
    ) -> Action:
        change = Change.by(principal, namespace_subject(namespace.name), now_ms)
        details = {"namespace_id": namespace.namespace_id}
        return self._store.log(RESERVED_NAMESPACE, change, action, details)


def _transition(namespace_id: str, before: str, after: str) -> Update:
    """From one state to another, if nobody was faster."""
    update = Update(keys.namespace_by_id(namespace_id).item)
    update.require_equal("status", s(before))
    update.set("status", s(after))
    return update

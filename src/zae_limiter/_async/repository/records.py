"""Small documents that belong to a namespace or to the whole store."""

from __future__ import annotations

from typing import Any

from zae_limiter._async.repository.part import Part
from zae_limiter.naming import RESERVED_NAMESPACE, check_document

VERSION_RECORD = "version"
PROVISIONER_STATE = "provisioner"


class RecordPart(Part):
    """The version of the store, and what the provisioner manages in this namespace."""

    async def get_version_record(self) -> dict[str, Any] | None:
        return await self._context.engine.records.get(RESERVED_NAMESPACE, VERSION_RECORD)

    async def set_version_record(self, record: dict[str, Any]) -> None:
        await self._context.engine.records.put(
            RESERVED_NAMESPACE, VERSION_RECORD, check_document(record)
        )

    async def get_provisioner_state(self) -> dict[str, Any] | None:
        return await self._context.engine.records.get(self._context.namespace_id, PROVISIONER_STATE)

    async def put_provisioner_state(self, state: dict[str, Any]) -> None:
        await self._context.engine.records.put(
            self._context.namespace_id, PROVISIONER_STATE, check_document(state)
        )

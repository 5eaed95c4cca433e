"""Batches that the aggregator could not process in time, and that Lambda has kept in the archive.

    aws/lambda/{event source}/{shard}/2026/01/31/2026-01-31T12.00.00-{uuid}

Lambda chooses these names. An object describes the failure, and its ``payload`` is the whole batch.
"""

from __future__ import annotations

import json
from typing import Any

from zae_limiter.exceptions import InfrastructureError
from zae_limiter_ops.infra import names
from zae_limiter_ops.transport.control import AControl, ControlError

FOLDER = "aws/lambda/"
TOO_LARGE = "RequestTooLarge"

Records = list[dict[str, Any]]


class KeptBatches:
    """The kept batches in the archive of one stack."""

    def __init__(self, control: AControl, stack: str, bucket: str) -> None:
        self._control = control
        self._function = names.aggregator_function(stack)
        self._bucket = bucket

    async def names(self) -> list[str]:
        """Return the names of the kept batches, oldest first within a shard."""
        found: list[str] = []
        after: dict[str, str] = {}
        while True:
            answer = await self._control.acall(
                "s3", "list_objects_v2", Bucket=self._bucket, Prefix=FOLDER, **after
            )
            found += [each["Key"] for each in answer.get("Contents", ())]
            if not answer.get("IsTruncated"):
                return found
            after = {"StartAfter": found[-1]}

    async def replay(self, name: str) -> int:
        """Let the aggregator process a kept batch, then delete it; return the number of records.

        A batch that fails again stays. A batch may be replayed twice: the aggregator's writes are
        idempotent.
        """
        records = self._records(name, await self._control.aread_object(self._bucket, name))
        failed = await self._process(records)
        if failed:
            raise InfrastructureError(
                f"{failed} of {len(records)} records of {name} failed again; the batch is kept; "
                f"the log of {self._function} names the cause"
            )
        await self._control.acall("s3", "delete_object", Bucket=self._bucket, Key=name)
        return len(records)

    async def _process(self, records: Records) -> int:
        """Invoke the aggregator with the records; return the number of failed records."""
        try:
            answer = await self._control.ainvoke(self._function, {"Records": records})
        except ControlError as error:
            if error.code != TOO_LARGE or len(records) < 2:
                raise
            middle = len(records) // 2
            return await self._process(records[:middle]) + await self._process(records[middle:])
        return len(answer.get("batchItemFailures") or ())

    def _records(self, name: str, content: bytes) -> Records:
        try:
            payload = json.loads(content)["payload"]
            if isinstance(payload, str):
                payload = json.loads(payload)
            records: Records = list(payload["Records"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise InfrastructureError(
                f"{name} in {self._bucket} is not a batch that Lambda has kept "
                f"({type(error).__name__}); delete or move the object"
            ) from error
        return records

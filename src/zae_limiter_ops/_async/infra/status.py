"""Report on a deployed limiter: stack, table, functions, lag, alarms and cost drivers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from zae_limiter._async.engines.dynamodb.table_version import read_version_record
from zae_limiter._version import __version__
from zae_limiter.dynamodb.table import FUNCTIONS_VERSION, INDEXES
from zae_limiter.exceptions import (
    ForeignTableError,
    InfrastructureError,
    InfrastructureNotFoundError,
)
from zae_limiter.models.stack import Status
from zae_limiter_ops._async.infra.deployment import Deployment, FunctionCode, functions
from zae_limiter_ops._async.infra.kept_batches import KeptBatches
from zae_limiter_ops.infra import names
from zae_limiter_ops.infra.aggregator import ARCHIVE, QUEUE
from zae_limiter_ops.infra.packages import FunctionPackage, is_placeholder
from zae_limiter_ops.transport.control import FIRST_ANSWER_S

DAY_S = 86_400
RECENT_S = 3600  # the period of errors and lag in the report
# Spans of time that are searched for the newest error, one after the other: CloudWatch returns the
# oldest lines first, so the last line of the shortest span is the newest.
LOG_SPANS_S = (600, RECENT_S, DAY_S)
MAX_LOG_PAGES = 200  # of one span; a page may be empty although others follow
ERROR_PATTERN = '?ERROR ?Traceback ?"Task timed out"'  # a line that contains any of them


async def read_status(
    name: str, region: str | None = None, endpoint_url: str | None = None
) -> Status:
    """Return the state of a stack. A value that may not be read is None, with a note in details.

    Raises ForeignTableError for a table of another form.
    """
    deployment = Deployment(name, region, endpoint_url)
    try:
        return await StatusReader(deployment).read()
    finally:
        await deployment.close()


class StatusReader:
    """Asks every service about one stack; a refused call becomes a note in the details."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._name = deployment.name
        self._control = deployment.manager.control
        self._notes: list[str] = []

    async def read(self) -> Status:
        stack = await self._stack()
        table = await self._call("dynamodb", "describe_table", TableName=self._name)
        described: Mapping[str, Any] = (table or {}).get("Table", {})
        latency_ms, record, namespaces = await self._ask_table() if described else (None, {}, None)
        surroundings = await self._surroundings()
        details = {
            **surroundings,
            "namespaces": namespaces,
            "indexes": len(described.get("GlobalSecondaryIndexes", ())),
            "notes": self._notes,
        }
        schema = record.get("schema_version")
        return Status(
            name=self._name,
            region=_region(stack, described) or self._deployment.manager.region,
            available=latency_ms is not None,
            latency_ms=latency_ms,
            cfn_status=None if stack is None else str(stack["StackStatus"]),
            table_status=described.get("TableStatus"),
            aggregator_enabled=any(
                each["name"] == names.aggregator_function(self._name)
                for each in surroundings["functions"]
            ),
            schema_version=None if schema is None else str(schema),
            lambda_version=record.get(FUNCTIONS_VERSION),
            client_version=__version__,
            table_item_count=described.get("ItemCount"),
            table_size_bytes=described.get("TableSizeBytes"),
            details=details,
        )

    async def _surroundings(self) -> dict[str, Any]:
        """Return functions, lag, alarms and cost drivers; a table without a stack has none."""
        if not await self._deployment.manager.is_served():
            return {
                "functions": [],
                "iterator_age_ms": None,
                "dead_letters": None,
                "alarms": None,
                "last_day": {},
            }
        found = [
            await self._function(name, package) for name, package in functions(self._name).items()
        ]
        has_aggregator = found[0] is not None
        return {
            "functions": [function for function in found if function is not None],
            "iterator_age_ms": await self._lag_ms() if has_aggregator else None,
            "dead_letters": await self._dead_letters() if has_aggregator else None,
            "alarms": await self._alarms(),
            "last_day": await self._last_day(has_aggregator),
        }

    async def _stack(self) -> dict[str, Any] | None:
        if not await self._deployment.manager.is_served():
            return None
        try:
            return await self._deployment.manager.describe()
        except InfrastructureError as error:
            self._note(error)
            return None

    async def _ask_table(self) -> tuple[float | None, dict[str, Any], int | None]:
        """Return the latency of a read, the version record, and the number of namespaces."""
        try:
            async with self._deployment.opened_engine(request_timeout=FIRST_ANSWER_S) as engine:
                # The first call also connects, which is not measured.
                record = await read_version_record(engine.client) or {}
                began = time.perf_counter()
                await engine.ping()
                latency_ms = round((time.perf_counter() - began) * 1000, 1)
                namespaces = await engine.namespaces.all()
        except InfrastructureNotFoundError:
            return None, {}, None
        except ForeignTableError:
            raise
        except InfrastructureError as error:
            self._note(error)
            return None, {}, None
        return latency_ms, record, len(namespaces)

    async def _function(self, name: str, package: FunctionPackage) -> dict[str, Any] | None:
        try:
            configuration = await FunctionCode(self._control, name).configuration()
        except InfrastructureError as error:
            self._note(error)
            return None
        if configuration is None:
            return None
        errors = await self._sum("AWS/Lambda", "Errors", {"FunctionName": name}, RECENT_S)
        return {
            "name": name,
            "state": configuration.get("State"),
            "update": configuration.get("LastUpdateStatus"),
            "memory_mb": configuration.get("MemorySize"),
            "timeout_s": configuration.get("Timeout"),
            "has_code": not is_placeholder(configuration),
            "is_current": configuration.get("CodeSha256") == package.sha256,
            "event_source": await self._event_source(name),
            "errors_last_hour": errors,
            "last_error": await self._last_error(name),
        }

    async def _event_source(self, function: str) -> dict[str, Any] | None:
        answer = await self._call("lambda", "list_event_source_mappings", FunctionName=function)
        for mapping in (answer or {}).get("EventSourceMappings", ()):
            return {
                "state": mapping.get("State"),
                "last_result": mapping.get("LastProcessingResult"),
            }
        return None

    async def _last_error(self, function: str) -> str | None:
        for seconds in LOG_SPANS_S:
            newest = await self._newest_error(function, seconds)
            if newest is not None:
                return str(newest["message"]).strip()
        return None

    async def _newest_error(self, function: str, seconds: int) -> dict[str, Any] | None:
        """Return the newest log line of the last seconds that reports an error."""
        newest: dict[str, Any] | None = None
        token: dict[str, str] = {}
        start_ms = int((time.time() - seconds) * 1000)
        for _ in range(MAX_LOG_PAGES):
            page = await self._call(
                "logs",
                "filter_log_events",
                logGroupName=names.log_group(function),
                startTime=start_ms,
                filterPattern=ERROR_PATTERN,
                **token,
            )
            for event in (page or {}).get("events", ()):
                if newest is None or event["timestamp"] >= newest["timestamp"]:
                    newest = event
            following = (page or {}).get("nextToken")
            if not following:
                break
            token = {"nextToken": following}
        return newest

    async def _lag_ms(self) -> int | None:
        function = {"FunctionName": names.aggregator_function(self._name)}
        return await self._metric("AWS/Lambda", "IteratorAge", function, RECENT_S, "Maximum")

    async def _dead_letters(self) -> int | None:
        """Return the number of failed batches: those in the archive, and those in the queue."""
        try:
            pages = await self._control.apages(
                "cloudformation", "list_stack_resources", StackName=self._name
            )
            resources = {
                each["LogicalResourceId"]: str(each.get("PhysicalResourceId"))
                for page in pages
                for each in page["StackResourceSummaries"]
            }
            bucket, queue = resources.get(ARCHIVE), resources.get(QUEUE)
            kept = KeptBatches(self._control, self._name, bucket) if bucket else None
            batches = 0 if kept is None else len(await kept.names())
        except InfrastructureError as error:
            self._note(error)
            return None
        return batches + (0 if queue is None else await self._messages(queue))

    async def _messages(self, queue_url: str) -> int:
        answer = await self._call(
            "sqs",
            "get_queue_attributes",
            QueueUrl=queue_url,
            AttributeNames=["ApproximateNumberOfMessages"],
        )
        attributes = (answer or {}).get("Attributes", {})
        return int(attributes.get("ApproximateNumberOfMessages", 0))

    async def _alarms(self) -> dict[str, str] | None:
        answer = await self._call("cloudwatch", "describe_alarms", AlarmNamePrefix=f"{self._name}-")
        if answer is None:
            return None
        return {
            str(alarm["AlarmName"]): str(alarm["StateValue"])
            for alarm in answer.get("MetricAlarms", ())
        }

    async def _last_day(self, has_aggregator: bool) -> dict[str, int | None]:
        """Return the usage of the last day that AWS bills: units and invocations."""
        drivers = {
            "write_units": await self._units("ConsumedWriteCapacityUnits"),
            "read_units": await self._units("ConsumedReadCapacityUnits"),
        }
        if has_aggregator:
            function = {"FunctionName": names.aggregator_function(self._name)}
            drivers["invocations"] = await self._sum("AWS/Lambda", "Invocations", function)
        return drivers

    async def _units(self, metric: str) -> int | None:
        """Return the units of the table and its indexes; each is a metric of its own."""
        units = await self._sum("AWS/DynamoDB", metric, {"TableName": self._name})
        for index in INDEXES:
            dimensions = {"TableName": self._name, "GlobalSecondaryIndexName": index.name}
            more = await self._sum("AWS/DynamoDB", metric, dimensions)
            units = None if units is None or more is None else units + more
        return units

    async def _sum(
        self, namespace: str, metric: str, dimensions: dict[str, str], seconds: int = DAY_S
    ) -> int | None:
        return await self._metric(namespace, metric, dimensions, seconds, "Sum")

    async def _metric(
        self,
        namespace: str,
        metric: str,
        dimensions: dict[str, str],
        seconds: int,
        statistic: str,
    ) -> int | None:
        now = datetime.now(UTC)
        answer = await self._call(
            "cloudwatch",
            "get_metric_statistics",
            Namespace=namespace,
            MetricName=metric,
            Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
            StartTime=now - timedelta(seconds=seconds),
            EndTime=now,
            Period=seconds,
            Statistics=[statistic],
        )
        if answer is None:
            return None
        values = [point[statistic] for point in answer.get("Datapoints", ())]
        if statistic == "Maximum":
            return int(max(values)) if values else None
        return int(sum(values))

    async def _call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any] | None:
        try:
            return await self._control.acall(service, operation, **parameters)
        except InfrastructureError as error:
            if getattr(error, "code", "") != _ABSENT:
                self._note(error)
            return None

    def _note(self, error: InfrastructureError) -> None:
        if str(error) not in self._notes:  # without credentials every call fails the same way
            self._notes.append(str(error))


# The error code of a part that the stack was deployed without.
_ABSENT = "ResourceNotFoundException"


def _region(stack: Mapping[str, Any] | None, table: Mapping[str, Any]) -> str | None:
    """Return the region in the ARN of the stack or table: arn:aws:SERVICE:REGION:…"""
    arn = str((stack or {}).get("StackId") or table.get("TableArn") or "")
    return arn.split(":")[3] if arn.count(":") > 3 else None

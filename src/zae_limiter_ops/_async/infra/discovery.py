"""List the limiters that are deployed in a region."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.dynamodb.foreign import decode_version_record
from zae_limiter.dynamodb.table import FUNCTIONS_VERSION
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.items.stored import keys
from zae_limiter.models.stack import LimiterInfo
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter_ops._async.infra.stack_manager import MANAGED_BY
from zae_limiter_ops.infra import names
from zae_limiter_ops.infra.progress import TABLE_ONLY
from zae_limiter_ops.transport.control import AControl


async def list_deployed(
    region: str | None = None, endpoint_url: str | None = None
) -> list[LimiterInfo]:
    """Return the limiters of a region, sorted by name.

    A limiter is a stack with our tag or with the name prefix of older versions. If the endpoint has
    no CloudFormation, a limiter is a table with our version record.
    """
    control = AControl(region, endpoint_url)
    try:
        if not await control.aserves_stacks():
            return await _list_tables(control)
        pages = await control.apages("cloudformation", "describe_stacks")
        stacks = [stack for page in pages for stack in page["Stacks"] if _is_ours(stack)]
        infos = [
            _info(stack, await read_record(control, stack["StackName"]))
            for stack in sorted(stacks, key=lambda stack: str(stack["StackName"]))
        ]
    finally:
        control.close()
    return infos


async def _list_tables(control: AControl) -> list[LimiterInfo]:
    """Return the tables that have our version record, sorted by name."""
    names_found: list[str] = []
    start: dict[str, str] = {}
    while True:
        answer = await control.acall("dynamodb", "list_tables", **start)
        names_found += answer["TableNames"]
        last = answer.get("LastEvaluatedTableName")
        if last is None:
            break
        start = {"ExclusiveStartTableName": last}
    infos = []
    for name in sorted(names_found):
        record = await read_record(control, name)
        if record is not None:
            answer = await control.acall("dynamodb", "describe_table", TableName=name)
            infos.append(_table_info(answer["Table"], record))
    return infos


def _table_info(table: Mapping[str, Any], record: Mapping[str, Any]) -> LimiterInfo:
    schema = record.get("schema_version")
    return LimiterInfo(
        stack_name=table["TableName"],
        user_name=names.user_name(table["TableName"]),
        region=table["TableArn"].split(":")[3],  # arn:aws:dynamodb:REGION:…
        stack_status=TABLE_ONLY,
        creation_time=table["CreationDateTime"].isoformat(),
        version=record.get("client_version"),
        schema_version=None if schema is None else str(schema),
    )


async def read_record(control: AControl, table: str) -> dict[str, Any] | None:
    """Return the version record of a table; None if the record cannot be read."""
    key = keys.record(RESERVED_NAMESPACE, VERSION_RECORD).attributes
    try:
        answer = await control.acall("dynamodb", "get_item", TableName=table, Key=key)
        item = answer.get("Item")
        return None if item is None else decode_version_record(item, table)
    except InfrastructureError:  # the table is missing, forbidden, or another program's
        return None


def _is_ours(stack: Mapping[str, Any]) -> bool:
    if stack["StackStatus"] == "DELETE_COMPLETE":
        return False
    tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", ())}
    return tags.get("ManagedBy") == MANAGED_BY or stack["StackName"].startswith(names.LEGACY_PREFIX)


def _info(stack: Mapping[str, Any], record: Mapping[str, Any] | None) -> LimiterInfo:
    record = record or {}
    schema, updated = record.get("schema_version"), stack.get("LastUpdatedTime")
    return LimiterInfo(
        stack_name=stack["StackName"],
        user_name=names.user_name(stack["StackName"]),
        region=stack["StackId"].split(":")[3],  # arn:aws:cloudformation:REGION:…
        stack_status=stack["StackStatus"],
        creation_time=stack["CreationTime"].isoformat(),
        last_updated_time=None if updated is None else updated.isoformat(),
        version=record.get("client_version"),
        lambda_version=record.get(FUNCTIONS_VERSION),
        schema_version=None if schema is None else str(schema),
    )

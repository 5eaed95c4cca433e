"""Parts of a transaction, without the table's name: it is added where they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zae_limiter.records.dynamodb.attributes import Item, Value
from zae_limiter.records.dynamodb.keys import Key
from zae_limiter.records.dynamodb.update import Update

Action = dict[str, dict[str, Any]]

REVISION = "rev"  # the id of the audit event of the change that wrote the item


def put(item: Item, before: Item | None) -> Action:
    """Write an item over one that is still as it was read."""
    return {"Put": {"Item": item, **_unchanged(before)}}


def put_new(item: Item) -> Action:
    """Add an item."""
    return put(item, None)


def delete(before: Item) -> Action:
    """Remove an item that is still as it was read."""
    return {"Delete": {"Key": Key.of(before).item, **_unchanged(before)}}


def delete_if(key: Key, attribute: str, value: Value) -> Action:
    """Remove an item while an attribute has this value."""
    return {"Delete": {"Key": key.item, **_while("#0 = :0", {"#0": attribute}, {":0": value})}}


def delete_alike(before: Item, attributes: Sequence[str]) -> Action:
    """Remove an item as long as these attributes are as they were read."""
    names = {f"#{position}": name for position, name in enumerate(attributes)}
    values = {f":{position}": before[name] for position, name in enumerate(attributes)}
    condition = " AND ".join(f"#{position} = :{position}" for position in range(len(names)))
    return {"Delete": {"Key": Key.of(before).item, **_while(condition, names, values)}}


def update(change: Update) -> Action:
    return {"Update": change.action()}


def require_revision(change: Update, before: Item | None) -> None:
    """Nobody has written the item's main part since it was read; others may count in it."""
    revision = before.get(REVISION) if before else None
    if revision is None:
        change.require(f"attribute_not_exists({change.name(REVISION)})")
    else:
        change.require_equal(REVISION, revision)


def _unchanged(before: Item | None) -> dict[str, Any]:
    if before is None:
        return _while("attribute_not_exists(PK)")
    revision = before.get(REVISION)
    if revision is None:  # written by other means
        condition = "attribute_exists(PK) AND attribute_not_exists(#0)"
        return _while(condition, {"#0": REVISION})
    return _while("#0 = :0", {"#0": REVISION}, {":0": revision})


def _while(
    condition: str, names: dict[str, str] | None = None, values: Item | None = None
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "ConditionExpression": condition,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if names:
        fields["ExpressionAttributeNames"] = names
    if values:
        fields["ExpressionAttributeValues"] = values
    return fields

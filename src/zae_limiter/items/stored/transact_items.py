"""Actions of a transaction, without the table's name, which ``transact`` adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zae_limiter.items.stored.attributes import REVISION, Item, Value
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update_expression import UpdateExpression

Action = dict[str, dict[str, Any]]


def put(item: Item, before: Item | None) -> Action:
    """Write an item if the stored item is as it was read."""
    return {"Put": {"Item": item, **_unchanged(before)}}


def put_new(item: Item) -> Action:
    """Write an item if its key is free."""
    return put(item, None)


def delete(before: Item) -> Action:
    """Delete an item if it is as it was read."""
    return {"Delete": {"Key": Key.of(before).attributes, **_unchanged(before)}}


def delete_if(key: Key, attribute: str, value: Value) -> Action:
    """Delete an item if an attribute has this value."""
    return {
        "Delete": {"Key": key.attributes, **_condition("#0=:0", {"#0": attribute}, {":0": value})}
    }


def delete_any(key: Key) -> Action:
    """Delete an item, if it exists, without a condition."""
    return {"Delete": {"Key": key.attributes}}


def delete_alike(before: Item, attributes: Sequence[str]) -> Action:
    """Delete an item if these attributes are as they were read."""
    names = {f"#{position}": name for position, name in enumerate(attributes)}
    values = {f":{position}": before[name] for position, name in enumerate(attributes)}
    condition = " AND ".join(f"#{position}=:{position}" for position in range(len(names)))
    return {"Delete": {"Key": Key.of(before).attributes, **_condition(condition, names, values)}}


def check_revision(key: Key, revision: str) -> Action:
    """Write nothing, but require that an item has this revision."""
    condition = _condition("#0=:0", {"#0": REVISION}, {":0": {"S": revision}})
    return {"ConditionCheck": {"Key": key.attributes, **condition}}


def update(change: UpdateExpression) -> Action:
    return {"Update": change.action()}


def require_revision(change: UpdateExpression, before: Item | None) -> None:
    """Require the revision that was read; counters in the same item may have changed."""
    revision = before.get(REVISION) if before else None
    if revision is None:
        change.require(f"attribute_not_exists({change.name(REVISION)})")
    else:
        change.require_equal(REVISION, revision)


def _unchanged(before: Item | None) -> dict[str, Any]:
    if before is None:
        return _condition("attribute_not_exists(PK)")
    revision = before.get(REVISION)
    if revision is None:  # another program has written the item
        condition = "attribute_exists(PK) AND attribute_not_exists(#0)"
        return _condition(condition, {"#0": REVISION})
    return _condition("#0=:0", {"#0": REVISION}, {":0": revision})


def _condition(
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

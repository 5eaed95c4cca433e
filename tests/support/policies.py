"""What IAM would say: the parts of a request that are authorised, and an evaluator of statements.

Only what our policies use: Allow statements, actions by name, the table and its indexes as
resources, and ``dynamodb:LeadingKeys`` with a principal's tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

TABLE = "table"
OWN = "own"  # stands for the id of a namespace
# Right of a single item: the action in a transaction, and what IAM calls it.
WRITE_PARTS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
# "For all values" is true of none: a condition on keys does not keep these from other namespaces.
WITHOUT_KEYS = frozenset({"DescribeTable", "Scan"})


class Access(NamedTuple):
    """One right that a request needs: a call on a resource, with all its partition keys."""

    call: str
    resource: str  # "table", or the name of an index
    keys: frozenset[str] = frozenset()

    def of_kind(self, namespace_id: str) -> Access:
        """Return it with the same keys as all others of its kind: only their first part matters."""
        parts = {key.partition("/")[:2] for key in self.keys}
        own = (namespace_id, "/")
        kinds = {f"{OWN if part == own else part[0]}{part[1]}x" for part in parts}
        return self._replace(keys=frozenset(kinds))


def accesses(operation: str, body: dict[str, Any]) -> Iterator[Access]:
    """Iterate over the rights that a request to DynamoDB needs."""
    if operation == "TransactWriteItems":
        for action in body["TransactItems"]:
            ((kind, part),) = action.items()
            item = part["Item"] if kind == "Put" else part["Key"]
            yield Access(WRITE_PARTS[kind], TABLE, _partitions([item]))
    elif operation == "TransactGetItems":
        for action in body["TransactItems"]:
            yield Access("GetItem", TABLE, _partitions([action["Get"]["Key"]]))
    elif operation == "BatchGetItem":
        for request in body["RequestItems"].values():
            yield Access(operation, TABLE, _partitions(request["Keys"]))
    elif operation == "BatchWriteItem":
        for requests in body["RequestItems"].values():
            items = [part.get("Item") or part["Key"] for each in requests for part in each.values()]
            yield Access(operation, TABLE, _partitions(items))
    elif operation == "Query":
        yield Access(operation, body.get("IndexName", TABLE), frozenset({_queried(body)}))
    elif operation in WITHOUT_KEYS:
        yield Access(operation, body.get("IndexName", TABLE))
    elif operation == "PutItem":
        yield Access(operation, TABLE, _partitions([body["Item"]]))
    else:
        yield Access(operation, TABLE, _partitions([body["Key"]]))


def _partitions(items: list[dict[str, Any]]) -> frozenset[str]:
    return frozenset(item["PK"]["S"] for item in items)


def _queried(body: dict[str, Any]) -> str:
    """Return the partition that a query reads: the value after the first `=`."""
    condition = body["KeyConditionExpression"].replace("(", " ").replace(")", " ")
    words = condition.split()
    name = words[words.index("=") + 1]
    return str(body["ExpressionAttributeValues"][name]["S"])


def allows(document: dict[str, Any], access: Access, tag: str = "") -> bool:
    """Tell whether a policy permits an access to a principal whose namespace tag is ``tag``."""
    return any(_matches(each, access, tag) for each in document["Statement"])


def granted(document: dict[str, Any]) -> set[tuple[str, bool]]:
    """Return every call that a policy permits, and whether on an index."""
    return {
        (action.removeprefix("dynamodb:"), _is_index(resource))
        for statement in document["Statement"]
        for action in statement["Action"]
        for resource in statement["Resource"]
    }


def _matches(statement: dict[str, Any], access: Access, tag: str) -> bool:
    assert statement["Effect"] == "Allow"
    if f"dynamodb:{access.call}" not in statement["Action"]:
        return False
    on_index = access.resource != TABLE
    if on_index not in {_is_index(each) for each in statement["Resource"]}:
        return False
    condition = statement.get("Condition")
    if condition is None:
        return True
    ((operator, keys),) = condition.items()
    assert operator == "ForAllValues:StringLike"
    ((name, patterns),) = keys.items()
    assert name == "dynamodb:LeadingKeys"
    patterns = [each.replace("${aws:PrincipalTag/zael_namespace_id}", tag) for each in patterns]
    return all(any(fnmatchcase(key, each) for each in patterns) for key in access.keys)


def _is_index(resource: Any) -> bool:
    return "/index/" in str(resource)

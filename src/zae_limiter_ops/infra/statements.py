"""Policy documents: the calls of each role, and the statements that allow exactly these calls.

IAM authorises a transaction by its parts: TransactWriteItems needs the permissions for the Put,
Update, Delete and ConditionCheck actions inside, TransactGetItems the permission for GetItem.
"""

from __future__ import annotations

from typing import Any

Statement = dict[str, Any]

NAMESPACE_TAG = "zael_namespace_id"
REGISTRY_KEYS = "_/*"  # the version record and the namespaces, which every client reads on opening

# tests/integration/dynamodb/policies records the calls of clients, and fails if one of these lists
# has a call too many or too few.
READ_CALLS = ("BatchGetItem", "GetItem")
WRITE_CALLS = ("ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem")
REGISTRY_CALLS = ("GetItem",)  # opening a namespace
REGISTRY_QUERIES = ("Query",)  # listing namespaces
PURGE_CALLS = ("BatchWriteItem",)  # purging a namespace, which no tenant may do
STREAM_CALLS = ("DescribeStream", "GetRecords", "GetShardIterator")
AGGREGATOR_CALLS = ("GetItem", "UpdateItem")  # GetItem reads the retention of usage
# Query searches the audit log for the principal of a change by hand.
PROVISIONER_CALLS = (*READ_CALLS, *WRITE_CALLS, "Query")

TABLE_ARN: dict[str, Any] = {"Fn::GetAtt": ["Table", "Arn"]}
INDEX_ARNS: dict[str, Any] = {"Fn::Sub": "${Table.Arn}/index/*"}


def actions(service: str, calls: tuple[str, ...]) -> list[str]:
    return [f"{service}:{call}" for call in sorted(set(calls))]


def allow(sid: str, calls: list[str], resources: list[Any], **rest: Any) -> Statement:
    return {"Sid": sid, "Effect": "Allow", "Action": calls, "Resource": resources, **rest}


def document(*statements: Statement) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _leading_keys(pattern: Any) -> dict[str, Any]:
    return {"Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [pattern]}}}


OWN_KEYS = f"${{aws:PrincipalTag/{NAMESPACE_TAG}}}/*"


def _namespace(calls: tuple[str, ...], *, queries: bool) -> dict[str, Any]:
    """Return a policy that allows calls on the caller's namespace, and reads of the registry."""
    own = _leading_keys(OWN_KEYS)
    registry = _leading_keys(REGISTRY_KEYS)
    registry_calls = REGISTRY_CALLS + (REGISTRY_QUERIES if queries else ())
    permitted = [
        allow("OwnItems", actions("dynamodb", calls), [TABLE_ARN], **own),
        allow("Registry", actions("dynamodb", registry_calls), [TABLE_ARN], **registry),
    ]
    if queries:
        permitted.append(_queries("OwnQueries", **own))
    return document(*permitted)


def _whole_table(calls: tuple[str, ...], *, queries: bool) -> dict[str, Any]:
    permitted = [allow("Items", actions("dynamodb", calls), [TABLE_ARN])]
    if queries:
        permitted.append(_queries("Queries"))
        permitted.append(allow("Status", ["dynamodb:DescribeTable"], [TABLE_ARN]))
    return document(*permitted)


def _queries(sid: str, **rest: Any) -> Statement:
    return allow(sid, ["dynamodb:Query"], [TABLE_ARN, INDEX_ARNS], **rest)


def policy_documents() -> dict[str, dict[str, Any]]:
    """Return the document of each managed policy, by the component in its name."""
    return {
        "acq": _whole_table(READ_CALLS + WRITE_CALLS, queries=False),
        "full": _whole_table(READ_CALLS + WRITE_CALLS + PURGE_CALLS, queries=True),
        "read": _whole_table(READ_CALLS, queries=True),
        "ns-acq": _namespace(READ_CALLS + WRITE_CALLS, queries=False),
        "ns-full": _namespace(READ_CALLS + WRITE_CALLS, queries=True),
        "ns-read": _namespace(READ_CALLS, queries=True),
    }

"""Temporary roles with the six policies of the stack: permitted calls and denied calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, NamedTuple

from tools.accept_aws.records import Skip
from tools.accept_aws.run import Run
from zae_limiter import SyncRepository
from zae_limiter.exceptions import PermissionDenied
from zae_limiter_ops.infra.access import LOGICAL_POLICIES
from zae_limiter_ops.infra.statements import NAMESPACE_TAG
from zae_limiter_ops.transport.control import ControlError

OWN, OTHER, REGISTRY = "own", "other", "registry"
NAMESPACES = {OWN: "accept-own", OTHER: "accept-other"}
SORT_KEY = "#ACCEPT"
WHOLE_TABLE, OF_NAMESPACE = ("acq", "full", "read"), ("ns-acq", "ns-full", "ns-read")
WITHOUT = "none"  # a role that has no policy
SESSION_S = 900  # the shortest that STS offers
IN_FORCE_WITHIN_S = 60.0  # a new role, its tag and its policy take some seconds to be in force
PAUSE_S = 2.0

# The program of an application that may acquire.
ACQUIRE = """
import json, sys
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

with SyncRepository.open(**json.loads(sys.argv[1])) as repository:
    limits = [Limit.per_minute("rpm", 10)]
    with SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpm": 1}, limits=limits):
        pass
"""


class Call(NamedTuple):
    """A call of DynamoDB on the keys of namespaces. More than one: a single request for all."""

    operation: str
    namespaces: tuple[str, ...]
    index_name: str | None = None

    def __str__(self) -> str:
        place = f" of {self.index_name}" if self.index_name else ""
        return f"{self.operation}{place} on {' and '.join(self.namespaces) or 'the table'}"


def _calls(operation: str, *namespaces: str, index: str | None = None) -> set[Call]:
    return {Call(operation, (each,), index) for each in namespaces}


READS = _calls("get_item", OWN, REGISTRY) | _calls("batch_get_item", OWN)
WRITES = _calls("update_item", OWN) | _calls("put_item", OWN) | _calls("delete_item", OWN)
QUERIES = _calls("query", OWN) | _calls("query", OWN, index="GSI1")
READS_OF_OTHERS = _calls("get_item", OTHER) | {Call("batch_get_item", (OWN, OTHER))}
WRITES_OF_OTHERS = _calls("update_item", OTHER, REGISTRY) | {
    Call("transact_write_items", (OWN, OTHER))
}
QUERIES_OF_OTHERS = _calls("query", OTHER) | _calls("query", OTHER, index="GSI1")
REGISTRY_QUERY = _calls("query", REGISTRY)
PURGE = _calls("batch_write_item", OWN)
STATUS = {Call("describe_table", ())}
NOBODY = {Call("scan", ())}
ALL_CALLS = (
    READS | WRITES | QUERIES | READS_OF_OTHERS | WRITES_OF_OTHERS | QUERIES_OF_OTHERS
    | REGISTRY_QUERY | PURGE | STATUS | NOBODY
)  # fmt: skip
# The permitted calls of each policy. All other calls must be denied.
PERMITTED = {
    "acq": READS | WRITES | READS_OF_OTHERS | WRITES_OF_OTHERS,
    "full": ALL_CALLS - NOBODY,
    "read": READS | READS_OF_OTHERS | QUERIES | QUERIES_OF_OTHERS | REGISTRY_QUERY | STATUS,
    "ns-acq": READS | WRITES,
    "ns-full": READS | WRITES | QUERIES | REGISTRY_QUERY,
    "ns-read": READS | QUERIES | REGISTRY_QUERY,
}


def check_policies(run: Run) -> str:
    """Assume a role with each policy; require that exactly its calls are permitted."""
    with SyncRepository.open(**run.opening) as repository:
        ids = repository.register_namespaces(NAMESPACES.values())
    prefixes = {place: ids[name] for place, name in NAMESPACES.items()} | {REGISTRY: "_"}
    outputs = run.deployment.manager.outputs()
    try:
        _make_role(run, WITHOUT, prefixes[OWN])
        for policy, (logical, _) in LOGICAL_POLICIES.items():
            _make_role(run, policy, prefixes[OWN], outputs[f"{logical}Arn"])
        _require_checks(run, prefixes)
        wrong = _mistakes(run, WHOLE_TABLE, prefixes)
        assert not wrong, "\n".join(wrong)
        wrong = _mistakes(run, OF_NAMESPACE, prefixes)
        for policy in ("acq", "ns-acq"):
            _acquire_as(run, policy)
    finally:
        delete_roles(run)
    is_open = bool(wrong) and all(each.endswith("is permitted") for each in wrong)
    if run.settings.endpoint_url is not None and is_open:
        raise Skip(
            f"{', '.join(WHOLE_TABLE)} hold; this server does not evaluate dynamodb:LeadingKeys, "
            f"so the policies of namespaces were not tried ({len(wrong)} wrong answers)"
        )
    assert not wrong, "\n".join(wrong)
    return f"{len(PERMITTED)} policies, {len(ALL_CALLS)} calls each"


def _require_checks(run: Run, prefixes: dict[str, str]) -> None:
    """Skip the step on a local server that checks no rights; on AWS this is a failure."""
    client = _assumed_client(run, WITHOUT)
    if _is_permitted(client, Call("get_item", (OWN,)), run.name, prefixes):
        assert run.settings.endpoint_url is not None, "a role without a policy may read the table"
        raise Skip("this server permits everything to a role without a policy")


def delete_roles(run: Run) -> None:
    """Delete the temporary roles that exist."""
    for policy in (*PERMITTED, WITHOUT):
        name = _role_name(run, policy)
        try:
            attached = run.control.call("iam", "list_attached_role_policies", RoleName=name)
        except ControlError as error:
            if error.code == "NoSuchEntity":
                continue
            raise
        for each in attached["AttachedPolicies"]:
            arn = each["PolicyArn"]
            run.control.call("iam", "detach_role_policy", RoleName=name, PolicyArn=arn)
        run.control.call("iam", "delete_role", RoleName=name)


def _role_name(run: Run, policy: str) -> str:
    return f"{run.name}-accept-{policy}"


def _make_role(run: Run, policy: str, namespace_id: str, policy_arn: str | None = None) -> None:
    account = f"arn:{run.partition}:iam::{run.report.account}:root"
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": account}, "Action": "sts:AssumeRole"}
        ],
    }
    name = _role_name(run, policy)
    tags = [{"Key": NAMESPACE_TAG, "Value": namespace_id}]
    document = json.dumps(trust)
    run.control.call(
        "iam", "create_role", RoleName=name, AssumeRolePolicyDocument=document, Tags=tags
    )
    if policy_arn is not None:
        run.control.call("iam", "attach_role_policy", RoleName=name, PolicyArn=policy_arn)


def _mistakes(run: Run, policies: tuple[str, ...], prefixes: dict[str, str]) -> list[str]:
    """Return the calls that are permitted or denied against the table above."""
    wrong = []
    for policy in policies:
        client = _assumed_client(run, policy)
        for call in sorted(ALL_CALLS, key=str):
            expected = call in PERMITTED[policy]
            found = _is_permitted(client, call, run.name, prefixes)
            give_up_at = time.monotonic() + IN_FORCE_WITHIN_S
            while expected and not found and time.monotonic() < give_up_at:
                time.sleep(PAUSE_S)
                found = _is_permitted(client, call, run.name, prefixes)
            if found != expected:
                wrong.append(f"{policy}: {call} is {'permitted' if found else 'denied'}")
    return wrong


def _acquire_as(run: Run, policy: str) -> None:
    """Let a process with the rights of a policy make an acquire in its own namespace."""
    credentials = _assume(run, policy)
    others = {name: text for name, text in os.environ.items() if name != "AWS_PROFILE"}
    done = subprocess.run(
        [sys.executable, "-c", ACQUIRE, json.dumps({**run.opening, "namespace": NAMESPACES[OWN]})],
        env={
            **others,
            "AWS_ACCESS_KEY_ID": credentials["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": credentials["SecretAccessKey"],
            "AWS_SESSION_TOKEN": credentials["SessionToken"],
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"an acquire with {policy} failed: {done.stderr[-1000:]}"


def _assumed_client(run: Run, policy: str) -> Any:
    from botocore.session import Session

    credentials = _assume(run, policy)
    return Session().create_client(
        "dynamodb",
        region_name=run.settings.region,
        endpoint_url=run.settings.endpoint_url,
        aws_access_key_id=credentials["AccessKeyId"],
        aws_secret_access_key=credentials["SecretAccessKey"],
        aws_session_token=credentials["SessionToken"],
    )


def _assume(run: Run, policy: str) -> dict[str, str]:
    """Return credentials of the role of a policy, as soon as it can be assumed."""
    role_arn = f"arn:{run.partition}:iam::{run.report.account}:role/{_role_name(run, policy)}"
    arguments = {"RoleArn": role_arn, "RoleSessionName": "acceptance", "DurationSeconds": SESSION_S}
    give_up_at = time.monotonic() + IN_FORCE_WITHIN_S
    while True:
        try:
            return dict(run.control.call("sts", "assume_role", **arguments)["Credentials"])
        except PermissionDenied:
            if time.monotonic() > give_up_at:
                raise
        time.sleep(PAUSE_S)


def _is_permitted(client: Any, call: Call, table: str, prefixes: dict[str, str]) -> bool:
    from botocore.exceptions import ClientError

    partitions = [f"{prefixes[each]}/ACCEPT" for each in call.namespaces]
    try:
        getattr(client, call.operation)(**_request(call, table, partitions))
    except ClientError as error:
        if error.response["Error"]["Code"] == "AccessDeniedException":
            return False
        raise
    return True


def _request(call: Call, table: str, partitions: list[str]) -> dict[str, Any]:
    """Return the arguments of a call; it touches nothing but items of its own sort key."""
    keys = [{"PK": {"S": each}, "SK": {"S": SORT_KEY}} for each in partitions]
    if call.operation == "batch_get_item":
        return {"RequestItems": {table: {"Keys": keys}}}
    if call.operation == "batch_write_item":
        return {"RequestItems": {table: [{"DeleteRequest": {"Key": key}} for key in keys]}}
    if call.operation == "transact_write_items":
        return {"TransactItems": [{"Delete": {"TableName": table, "Key": key}} for key in keys]}
    request: dict[str, Any] = {"TableName": table}
    if call.operation == "query":
        partition = "PK" if call.index_name is None else f"{call.index_name}PK"
        request["KeyConditionExpression"] = f"{partition} = :partition"
        request["ExpressionAttributeValues"] = {":partition": {"S": partitions[0]}}
        if call.index_name is not None:
            request["IndexName"] = call.index_name
    elif call.operation == "put_item":
        request["Item"] = keys[0]
    elif keys:
        request["Key"] = keys[0]
    return request

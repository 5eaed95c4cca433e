"""What every public method is for, and whether a recorded request stays within its policies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support import journal
from tests.support.dynamodb.recording import Recorded, recording
from tests.support.policies import TABLE, Access, accesses, allows
from zae_limiter.infra.statements import policy_documents

METHODS = {
    "acq": frozenset(
        {
            *("acquire", "adjust", "consume", "release", "settle", "close"),
            *("available", "check_availability", "is_available", "time_until_available", "pause"),
        }
    ),
    "read": frozenset(
        {
            *("get_audit_events", "get_bucket", "get_buckets", "get_children", "get_entity"),
            *("get_last_use", "get_limits", "get_namespace", "get_provisioner_state"),
            *("get_resource_buckets", "get_resource_capacity", "get_resource_defaults"),
            *("get_system_defaults", "get_top_usage", "get_usage_snapshots", "get_usage_summary"),
            *("get_version_record", "list_buckets", "list_entities", "list_namespaces"),
            *("list_entities_with_custom_limits", "list_orphan_namespaces", "list_resources"),
            *("list_resources_with_defaults", "list_resources_with_entity_configs"),
            *("ping", "resolve_limits"),
        }
    ),
    "full": frozenset(
        {
            *("create_entity", "delete_entity", "delete_limits", "delete_resource_defaults"),
            *("delete_system_defaults", "provisioner", "put_provisioner_state", "reset_bucket"),
            *("set_limits", "set_parent", "set_resource_defaults", "set_system_defaults"),
            *("ensure_entity", "top_up", "update_entity"),
        }
    ),
    # Namespaces and the version record belong to the table, not to a tenant.
    "administrator": frozenset(
        {
            *("register_namespace", "register_namespaces", "delete_namespace"),
            *("recover_namespace", "purge_namespace", "set_version_record"),
        }
    ),
    # Reads the registry; creates the table and the namespace where it was asked to.
    "opening": frozenset({"build", "open", "namespace"}),
}
ALL_METHODS = frozenset().union(*METHODS.values())
NAMESPACE_POLICIES = ("ns-acq", "ns-full", "ns-read")
OTHER = "zzzzzzzz"  # the id of another tenant's namespace
# Calls of the account's administrator, who creates, changes and deletes tables.
OF_TABLES = frozenset({"CreateTable", "DeleteTable", "DescribeTable", "UpdateTimeToLive"})

Documents = dict[str, dict[str, Any]]


@contextmanager
def within_policies() -> Iterator[None]:
    """Fail if a method in the block has sent a request that its role's policies do not permit.

    Nor may a tenant of another namespace be permitted to send it.
    """
    with recording(ALL_METHODS) as recorder:
        yield
    if not recorder.requests:
        return
    documents = policy_documents()
    reports = beyond_policies(recorder.requests, documents)
    reports += open_to_others(recorder.requests, documents)
    journal.note(needed(recorder.requests), reports)
    assert not reports, "\n".join(reports)


def needed(requests: Iterable[Recorded]) -> Iterator[tuple[str, Access]]:
    """Iterate over the rights that requests need, by role; what several may need is left out."""
    for request, access in _accesses(requests):
        roles = {_role(method) for method in request.methods}
        if len(roles) == 1:
            yield roles.pop(), access.of_kind(_namespace_of(access))


def beyond_policies(requests: Iterable[Recorded], documents: Documents) -> list[str]:
    """Return the requests that a policy of the calling method's role would refuse.

    Where methods of several roles are under way, the request is of one of them. One of none is of
    the test itself.
    """
    return [
        f"{' or '.join(sorted(methods))} calls {access}, which {refusing} does not permit"
        for methods, access in _distinct(requests)
        if (refusing := _refusing(methods, access, documents)) is not None
    ]


def open_to_others(requests: Iterable[Recorded], documents: Documents) -> list[str]:
    """Return the requests to a namespace that a policy would permit to another one's tenant."""
    return [
        f"{access} is permitted by {policy} to a tenant of another namespace"
        for _, access in _distinct(requests)
        if _namespace_of(access) != TABLE
        for policy in NAMESPACE_POLICIES
        if allows(documents[policy], access, OTHER)
    ]


def _accesses(requests: Iterable[Recorded]) -> Iterator[tuple[Recorded, Access]]:
    for request in requests:
        if request.methods and request.operation not in OF_TABLES:
            for access in accesses(request.operation, json.loads(request.raw_body)):
                yield request, access


def _distinct(requests: Iterable[Recorded]) -> Iterable[tuple[frozenset[str], Access]]:
    """Return each access once: most requests of a test need what an earlier one needed."""
    return dict.fromkeys((request.methods, access) for request, access in _accesses(requests))


def _refusing(methods: frozenset[str], access: Access, documents: Documents) -> str | None:
    """Return a policy that refuses an access; None if all of one role permit it."""
    refusing = None
    for role in {_role(method) for method in methods}:
        refused = [
            policy
            for policy in _policies(role, access)
            if not allows(documents[policy], access, _namespace_of(access))
        ]
        if not refused:
            return None
        refusing = refused[-1]
    return refusing


def _policies(role: str, access: Access) -> tuple[str, ...]:
    """Return the policies of a role, all of which must permit an access."""
    if role == "opening":
        is_read = access.call == "GetItem"  # BatchGetItem begins a registration
        return ("acq", "read", "ns-acq", "ns-read") if is_read else ("full",)
    return ("full",) if role == "administrator" else (role, f"ns-{role}")


def _role(method: str) -> str:
    return next(role for role, methods in METHODS.items() if method in methods)


def _namespace_of(access: Access) -> str:
    """Return the id that the principal's tag must have: a request is of one namespace."""
    ids = {key.partition("/")[0] for key in access.keys} - {"_"}
    return min(ids, default=TABLE)

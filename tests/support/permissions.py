"""Whether a recorded request stays within the policies of the role that sends it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from tests.support import journal
from tests.support.dynamodb.recording import Recorded, recording
from tests.support.policies import TABLE, Access, accesses, allows
from tests.support.roles import role_of
from zae_limiter._async.removed_limits import MAX_EVENTS
from zae_limiter_ops.infra.statements import policy_documents

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
    with recording() as recorder:
        yield
    if not recorder.requests:
        return
    documents = policy_documents()
    reports = beyond_policies(recorder.requests, documents)
    reports += open_to_others(recorder.requests, documents)
    journal.note(needed(recorder.requests), reports)
    assert not reports, "\n".join(reports)


def needed(requests: Iterable[Recorded]) -> Iterator[tuple[str, Access]]:
    """Iterate over the rights that requests need, by role."""
    for request, access in _accesses(requests):
        yield role_of(request.method), access.of_kind(_namespace_of(access))


def beyond_policies(requests: Iterable[Recorded], documents: Documents) -> list[str]:
    """Return the requests that a policy of the calling method's role would refuse."""
    return [
        f"{method} calls {access}, which {policy} does not permit"
        for method, access in _distinct(requests)
        for policy in _policies(role_of(method), access)
        if not allows(documents[policy], access, _namespace_of(access))
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
    """Iterate over the rights of requests; those without a method are the test's own."""
    for request in requests:
        if request.method and request.operation not in OF_TABLES:
            for access in _accesses_of(request.operation, request.raw_body):
                yield request, access


@lru_cache(maxsize=1000)  # of one test, all of which are asked for several times
def _accesses_of(operation: str, raw_body: bytes) -> tuple[Access, ...]:
    body = json.loads(raw_body)
    is_optional = _is_first_look(operation, body) or _asks_who_changed(operation, body)
    return () if is_optional else tuple(accesses(operation, body))


def _is_first_look(operation: str, body: dict[str, Any]) -> bool:
    """Return whether an opening looks for one item of a table that has no version record.

    Whoever has created the table may do so; the opening does without it under any of the policies.
    """
    return operation == "Scan" and body.get("Limit") == 1


def _asks_who_changed(operation: str, body: dict[str, Any]) -> bool:
    """Return whether a failed call asks the audit log who has removed the limit that it names.

    Where the policy of applications refuses this, the error does without the answer. Queries of
    this size are made by nothing else.
    """
    return (
        operation == "Query" and body.get("Limit") == MAX_EVENTS and "/AUDIT#" in json.dumps(body)
    )


def _distinct(requests: Iterable[Recorded]) -> Iterable[tuple[str, Access]]:
    """Return each access once: most requests of a test need what an earlier one needed."""
    return dict.fromkeys((request.method, access) for request, access in _accesses(requests))


def _policies(role: str, access: Access) -> tuple[str, ...]:
    """Return the policies of a role, all of which must permit an access."""
    if role == "opening":
        is_read = access.call == "GetItem"  # BatchGetItem begins a registration
        return ("acq", "read", "ns-acq", "ns-read") if is_read else ("full",)
    return ("full",) if role == "administrator" else (role, f"ns-{role}")


def _namespace_of(access: Access) -> str:
    """Return the id that the principal's tag must have: a request is of one namespace."""
    ids = {key.partition("/")[0] for key in access.keys} - {"_"}
    return min(ids, default=TABLE)

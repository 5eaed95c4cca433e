"""The events and states of a stack: progress, the first failure, and advice about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

TABLE_ONLY = "TABLE_ONLY"  # the status of a limiter whose table belongs to no stack
# Reasons of resources that fail only because another resource has failed.
_CONSEQUENCES = (
    "Resource creation cancelled",
    "Resource update cancelled",
    "The following resource",
)
_SUCCEEDED = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"})
EMPTY = "REVIEW_IN_PROGRESS"  # a change set exists, and the stack has no resources yet
# A failed creation leaves nothing of value behind: the stack can be deleted and created again.
FAILED_CREATIONS = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", EMPTY})
USABLE = _SUCCEEDED | {"UPDATE_ROLLBACK_COMPLETE"}


class StackEvent(NamedTuple):
    """A change of the state of a resource."""

    event_id: str
    logical_id: str
    resource_type: str
    status: str
    reason: str
    at: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> StackEvent:
        moment: Any = event.get("Timestamp")
        return cls(
            str(event.get("EventId", "")),
            str(event.get("LogicalResourceId", "")),
            str(event.get("ResourceType", "")),
            str(event.get("ResourceStatus", "")),
            str(event.get("ResourceStatusReason", "")),
            moment.isoformat() if hasattr(moment, "isoformat") else str(moment or ""),
        )

    @property
    def is_failure(self) -> bool:
        return self.status.endswith("_FAILED") and not self.reason.startswith(_CONSEQUENCES)


def is_settled(status: str) -> bool:
    """Return whether no operation is in progress; a review only waits for its change set."""
    return not status.endswith("_IN_PROGRESS") or status == EMPTY


def succeeded(status: str) -> bool:
    return status in _SUCCEEDED


def failure(events: Iterable[StackEvent], status: str) -> str:
    """Return a line with the first failed resource, its reason, and advice."""
    for event in events:
        if event.is_failure:
            return (
                f"{event.logical_id} ({event.resource_type}) failed: "
                f"{event.reason or 'no reason was given'}{_advice(event)}"
            )
    return f"the stack ended as {status}; its events are in the CloudFormation console"


def _advice(event: StackEvent) -> str:
    text = event.reason.lower()
    if "not authorized" in text or "access denied" in text or "accessdenied" in text:
        return "; give the caller this permission, or deploy with --no-iam if it concerns IAM"
    if "already exists" in text:
        return "; delete the existing resource, or choose another --name"
    if "limit" in text or "quota" in text:
        return "; raise the quota of the account, or delete unused resources"
    return ""

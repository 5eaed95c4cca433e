"""The protocol of ``Custom::ZaeLimiterLimits``: requests of CloudFormation and their answers.

The physical id of the resource names the table and the namespace. CloudFormation deletes the old
resource when an update returns another id: this is right when a template names another namespace,
so the id must not change otherwise. CloudFormation also deletes a resource whose creation failed.
If the creation has changed nothing, the id begins with ``not-applied``, and the deletion leaves the
limits alone: another template may have applied them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from zae_limiter.clock import Deadline
from zae_limiter.exceptions import (
    InfrastructureNotFoundError,
    NamespaceNotFoundError,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter_ops._sync.provisioner import SyncProvisioner
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.deletions import ALL, DeletionsRefused
from zae_limiter_ops.manifest.diff import ApplyResult
from zae_limiter_ops.manifest.problems import ApplyConflict
from zae_limiter_provisioner import actions
from zae_limiter_provisioner.table import opened_provisioner

APPLIED, NOT_APPLIED = "limits", "not-applied"
MAX_ANSWER_BYTES = 4096  # CloudFormation's limit for a whole answer
SEND_S = 5.0
SEND_PAUSES_S = (0.2, 1.0)  # between attempts: without an answer a stack waits for an hour
_SERVICE_PROPERTIES = frozenset({"ServiceToken", "ServiceTimeout"})
ALLOW_DELETIONS = "AllowDeletions"
_PROPERTIES = ("Manifest", "Namespace", ALLOW_DELETIONS)
_ECHOED = ("StackId", "RequestId", "LogicalResourceId")
_COUNTS = ("created", "updated", "deleted", "adopted", "unchanged")


class OutOfTime(ZAELimiterError):
    """The function's time is over before the apply is done.

    The changes that were made stay; the next apply makes the others.
    """


class ResourceOutcome(NamedTuple):
    """The outcome of a request; ``data`` holds the attributes for ``Fn::GetAtt``."""

    succeeded: bool
    reason: str = ""
    data: Mapping[str, int] = {}


class ResourceRequest:
    """One request of CloudFormation. Any field may be missing."""

    def __init__(self, event: Mapping[str, Any], table: str) -> None:
        self._event = event
        self._table = table
        self.kind = _text(event, "RequestType")
        self.response_url = _text(event, "ResponseURL")
        self._physical_id = _text(event, "PhysicalResourceId") or f"{NOT_APPLIED}:{table}"

    def execute(self, deadline: Deadline) -> ResourceOutcome:
        """Apply the manifest, or remove the applied limits; any error is raised."""
        actions.checked_mapping("request", self._event)
        if self.kind == "Delete":
            return self._remove(deadline)
        manifest, namespace = self._manifest_and_namespace()
        principal, allowed = self._principal(), self._allowed_deletions()
        with opened_provisioner(self._table, namespace, principal) as provisioner:
            if self.kind == "Create":
                # An error of the plan leaves the id at NOT_APPLIED: nothing was changed.
                provisioner.plan(manifest)
            result = self._apply(provisioner, manifest, namespace, deadline, allowed)
        counts = result.to_dict()
        return ResourceOutcome(True, data={name.title(): counts[name] for name in _COUNTS})

    def _apply(
        self,
        provisioner: SyncProvisioner,
        manifest: LimitsManifest,
        namespace: str,
        deadline: Deadline,
        allow_deletions: int | None,
    ) -> ApplyResult:
        before, self._physical_id = self._physical_id, f"{APPLIED}:{self._table}:{namespace}"
        try:
            return _apply_all(provisioner, manifest, deadline, allow_deletions)
        except (ApplyConflict, DeletionsRefused):
            # This request has changed nothing that a deletion should remove.
            self._physical_id = before
            raise
        except BaseException:
            if self.kind == "Update":  # CloudFormation rolls back to the resource as it was
                self._physical_id = before
            raise

    def answer(self, outcome: ResourceOutcome) -> dict[str, Any]:
        """Return the answer to CloudFormation as a document."""
        answer = {
            "Status": "SUCCESS" if outcome.succeeded else "FAILED",
            "Reason": "",
            "PhysicalResourceId": self._physical_id,
            **{name: _text(self._event, name) for name in _ECHOED},
            "Data": dict(outcome.data),
        }
        reason = outcome.reason or "see the log of the function"
        return {**answer, "Reason": _cut(reason, MAX_ANSWER_BYTES - len(_encoded(answer)))}

    def _remove(self, deadline: Deadline) -> ResourceOutcome:
        """Remove the limits of this resource by applying an empty manifest."""
        kind, _, place = self._physical_id.partition(":")
        namespace = place.partition(":")[2]
        if kind != APPLIED or not namespace:
            return ResourceOutcome(True, "nothing was applied")
        try:
            with opened_provisioner(self._table, namespace, self._principal()) as provisioner:
                _apply_all(provisioner, LimitsManifest(namespace), deadline, ALL)
        except (InfrastructureNotFoundError, NamespaceNotFoundError) as error:
            return ResourceOutcome(True, f"nothing is left to be removed: {error}")
        return ResourceOutcome(True)

    def _manifest_and_namespace(self) -> tuple[LimitsManifest, str]:
        properties = self._event.get("ResourceProperties")
        if not isinstance(properties, Mapping):
            properties = {}
        unknown = sorted(set(properties) - _SERVICE_PROPERTIES - set(_PROPERTIES))
        if unknown:
            known = ", ".join(_PROPERTIES)
            raise ValidationError(unknown[0], properties[unknown[0]], f"is not known; use {known}")
        manifest = actions.read_manifest(properties.get("Manifest"))
        return manifest, actions.namespace_of(properties.get("Namespace"), manifest)

    def _allowed_deletions(self) -> int | None:
        """Return the larger number of the properties before and after an update.

        When CloudFormation rolls back, the properties before are those of the failed update.
        """
        numbers = []
        for name in ("ResourceProperties", "OldResourceProperties"):
            properties = self._event.get(name)
            if isinstance(properties, Mapping):
                value = properties.get(ALLOW_DELETIONS)
                numbers.append(actions.allowed_deletions(ALLOW_DELETIONS, value))
        return max((number for number in numbers if number is not None), default=None)

    def _principal(self) -> str:
        """Return the principal for the audit log, with the stack's name out of the stack's id.

        The id is an ARN: ``arn:aws:cloudformation:…:stack/NAME/ID``.
        """
        parts = _text(self._event, "StackId").split("/")
        return f"cloudformation:{parts[1] if len(parts) > 1 else 'unknown'}"


def _encoded(answer: object) -> bytes:
    return json.dumps(answer).encode()


def _cut(text: str, most_bytes: int) -> str:
    """Return the beginning of a text that has at most this many bytes within a JSON document."""
    size = 0
    for position, character in enumerate(text):
        size += len(_encoded(character)) - len('""')
        if size > most_bytes:
            return text[:position]
    return text


def _text(event: Mapping[str, Any], name: str) -> str:
    """Return a field of a request; empty text if it is missing or no text."""
    value = event.get(name)
    return value if isinstance(value, str) else ""


def _apply_all(
    provisioner: SyncProvisioner,
    manifest: LimitsManifest,
    deadline: Deadline,
    allow_deletions: float | None,
) -> ApplyResult:
    """Apply a manifest; raise OutOfTime if the deadline comes first."""
    result = actions.apply(provisioner, manifest, deadline, allow_deletions=allow_deletions)
    unfinished = result.unfinished
    if unfinished is not None:
        raise OutOfTime(
            f"{unfinished.done} of {unfinished.total} changes were made before the function's time "
            "was over; apply again to continue"
        )
    return result


def send(url: str, answer: Mapping[str, Any]) -> None:
    """Send the answer to CloudFormation's URL; raises OSError if every attempt fails."""
    body = _encoded(answer)
    # CloudFormation has signed the URL for a request without a content type.
    request = Request(url, data=body, headers={"Content-Type": ""}, method="PUT")
    for pause_s in (*SEND_PAUSES_S, None):
        try:
            with urlopen(request, timeout=SEND_S) as response:
                response.read()
            return
        except OSError:
            if pause_s is None:
                raise
            time.sleep(pause_s)

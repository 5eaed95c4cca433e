"""The protocol of ``Custom::ZaeLimiterLimits``: what CloudFormation asks, and how it is answered.

The physical id names table and namespace. It is stable: CloudFormation deletes the old resource
when an update returns another id, as it should when a template names another namespace. The id of
a creation that has changed nothing says so: its deletion, with which CloudFormation follows up,
must not touch what another template has applied.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.exceptions import (
    InfrastructureNotFoundError,
    NamespaceNotFoundError,
    ValidationError,
)
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.problems import ApplyConflict
from zae_limiter_provisioner import actions
from zae_limiter_provisioner.table import opened_provisioner

if TYPE_CHECKING:
    from zae_limiter_ops._sync.provisioner import SyncProvisioner
    from zae_limiter_ops.manifest.diff import ApplyResult

APPLIED, NOT_APPLIED = "limits", "not-applied"
MAX_REASON = 1000  # characters; CloudFormation takes answers of at most 4096 bytes
SEND_S = 5.0
SEND_PAUSES_S = (0.2, 1.0)  # between attempts: without an answer a stack waits for an hour
_SERVICE_PROPERTIES = frozenset({"ServiceToken", "ServiceTimeout"})
_PROPERTIES = ("Manifest", "Namespace")


class ResourceOutcome(NamedTuple):
    """What became of a request; ``data`` is what ``Fn::GetAtt`` offers."""

    succeeded: bool
    reason: str = ""
    data: Mapping[str, int] = {}


class ResourceRequest:
    """One request of CloudFormation; nothing about it is trusted to be there."""

    def __init__(self, event: Mapping[str, Any], table: str) -> None:
        self._event = event
        self._table = table
        self.kind = str(event.get("RequestType"))
        self.response_url = str(event.get("ResponseURL"))
        self._physical_id = str(event.get("PhysicalResourceId") or f"{NOT_APPLIED}:{table}")

    def carry_out(self, until: float) -> ResourceOutcome:
        """Apply the manifest, or remove what was applied; raises what goes wrong."""
        if self.kind == "Delete":
            return self._remove(until)
        manifest, namespace = self._wanted()
        principal = self._principal()
        with opened_provisioner(self._table, namespace, principal) as provisioner:
            if self.kind == "Create":
                provisioner.plan(manifest)  # what fails here has changed nothing
            result = self._apply(provisioner, manifest, namespace, until)
        counts = result.to_dict()
        return ResourceOutcome(True, data={name.title(): counts[name] for name in _COUNTS})

    def _apply(
        self, provisioner: SyncProvisioner, manifest: LimitsManifest, namespace: str, until: float
    ) -> ApplyResult:
        before, self._physical_id = self._physical_id, f"{APPLIED}:{self._table}:{namespace}"
        try:
            return actions.apply(provisioner, manifest, until)
        except ApplyConflict:  # another apply is in charge: nothing of ours is to be removed
            self._physical_id = before
            raise
        except BaseException:
            if self.kind == "Update":  # which is rolled back: the resource stays the one it was
                self._physical_id = before
            raise

    def failed(self, reason: str) -> ResourceOutcome:
        return ResourceOutcome(False, reason)

    def answer(self, outcome: ResourceOutcome) -> dict[str, Any]:
        """Return the document that CloudFormation expects."""
        return {
            "Status": "SUCCESS" if outcome.succeeded else "FAILED",
            "Reason": outcome.reason[:MAX_REASON] or "see the log of the function",
            "PhysicalResourceId": self._physical_id,
            "StackId": self._event.get("StackId"),
            "RequestId": self._event.get("RequestId"),
            "LogicalResourceId": self._event.get("LogicalResourceId"),
            "Data": dict(outcome.data),
        }

    def _remove(self, until: float) -> ResourceOutcome:
        """Apply an empty manifest where this resource has applied one."""
        kind, _, place = self._physical_id.partition(":")
        namespace = place.partition(":")[2]
        if kind != APPLIED or not namespace:
            return ResourceOutcome(True, "nothing was applied")
        try:
            with opened_provisioner(self._table, namespace, self._principal()) as provisioner:
                actions.apply(provisioner, LimitsManifest(namespace), until)
        except (InfrastructureNotFoundError, NamespaceNotFoundError) as error:
            return ResourceOutcome(True, f"nothing is left to be removed: {error}")
        return ResourceOutcome(True)

    def _wanted(self) -> tuple[LimitsManifest, str]:
        properties = self._event.get("ResourceProperties")
        if not isinstance(properties, Mapping):
            properties = {}
        unknown = sorted(set(properties) - _SERVICE_PROPERTIES - set(_PROPERTIES))
        if unknown:
            known = " and ".join(_PROPERTIES)
            raise ValidationError(unknown[0], properties[unknown[0]], f"is not known; use {known}")
        manifest = actions.read_manifest(properties.get("Manifest"))
        return manifest, actions.namespace_of(properties.get("Namespace"), manifest)

    def _principal(self) -> str:
        """Return the stack's name, for the audit log: arn:aws:cloudformation:…:stack/NAME/ID."""
        parts = str(self._event.get("StackId") or "").split("/")
        return f"cloudformation:{parts[1] if len(parts) > 1 else 'unknown'}"


_COUNTS = ("created", "updated", "deleted", "adopted", "unchanged")


def send(url: str, answer: Mapping[str, Any]) -> None:
    """Put the answer where CloudFormation waits for it; raises OSError if that fails each time."""
    from urllib.request import Request, urlopen  # payloads of the command line need no answer

    body = json.dumps(answer).encode()
    # The address is signed for a request without a content type.
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

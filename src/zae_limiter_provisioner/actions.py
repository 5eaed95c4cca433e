"""Plan, apply and diff on the table of the function; errors are part of the answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zae_limiter.bounded_json import parse_bounded
from zae_limiter.exceptions import ValidationError, ZAELimiterError
from zae_limiter.naming import check_principal
from zae_limiter_ops._sync.provisioner import WAIT_SECONDS
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.problems import ApplyConflict, ManifestError
from zae_limiter_provisioner.table import opened_provisioner

if TYPE_CHECKING:
    from zae_limiter_ops._sync.provisioner import Progress, SyncProvisioner
    from zae_limiter_ops.manifest.diff import ApplyResult

ACTIONS = ("plan", "apply", "diff")
MAX_CHARACTERS = 6_000_000  # of a manifest as text: Lambda takes no larger payload
DEFAULT_NAMESPACE = "default"
DEFAULT_PRINCIPAL = "limits-provisioner"


class OutOfTime(ZAELimiterError):
    """The function ends before the apply does; what was written stays, and the next goes on."""


def answer(payload: Mapping[str, Any], table: str, until: float) -> dict[str, Any]:
    """Carry out a payload; ``until`` is on the monotonic clock."""
    try:
        return _carried_out(payload, table, until)
    except ZAELimiterError as error:
        return {"error": describe(error)}


def _carried_out(payload: Mapping[str, Any], table: str, until: float) -> dict[str, Any]:
    action = payload.get("action")
    if action not in ACTIONS:
        raise ValidationError("action", action, f"must be one of {', '.join(ACTIONS)}")
    manifest = read_manifest(payload.get("manifest"))
    namespace = namespace_of(payload.get("namespace"), manifest)
    principal = check_principal(payload.get("principal")) or DEFAULT_PRINCIPAL
    if action == "apply":
        with opened_provisioner(table, namespace, principal) as provisioner:
            approved, wait_s = payload.get("revision"), payload.get("wait_seconds")
            return apply(
                provisioner, manifest, until, approved=approved, wait_seconds=wait_s
            ).to_dict()
    with opened_provisioner(table, namespace, principal) as provisioner:
        if action == "plan":
            return provisioner.plan(manifest).to_dict()
        return {"drift": [drift.to_dict() for drift in provisioner.diff(manifest)]}


def apply(
    provisioner: SyncProvisioner,
    manifest: LimitsManifest,
    until: float,
    *,
    approved: str | None = None,
    wait_seconds: float | None = None,
) -> ApplyResult:
    """Apply a manifest, and stop between two batches when the time is over."""
    left_s = max(until - time.monotonic(), 0)
    wait_s = WAIT_SECONDS if wait_seconds is None else wait_seconds
    return provisioner.apply(
        manifest, approved=approved, wait_seconds=min(wait_s, left_s), progress=stop_at(until)
    )


def stop_at(until: float) -> Progress:
    """Return a progress callback that stops an apply between two batches after a moment."""

    def stop(done: int, total: int) -> None:
        if done < total and time.monotonic() >= until:
            changes = "1 change" if total == 1 else f"{total} changes"
            raise OutOfTime(
                f"{done} of {changes} were made before the function's time was over; "
                "apply again to go on"
            )

    return stop


def read_manifest(document: object) -> LimitsManifest:
    """Read a manifest from JSON data, or from its text; raises ManifestError."""
    if isinstance(document, str):
        document = _parsed(document)
    if not isinstance(document, Mapping):
        raise ValidationError("manifest", document, "must be a mapping")
    return LimitsManifest.from_dict(document)


def _parsed(text: str) -> object:
    from json import JSONDecodeError

    try:
        return parse_bounded(text, longest=MAX_CHARACTERS)
    except JSONDecodeError as error:
        raise ValidationError("manifest", None, f"is not JSON: {error}") from error
    except ValueError as error:
        raise ValidationError("manifest", None, str(error)) from error


def namespace_of(named: object, manifest: LimitsManifest) -> str:
    """Return the namespace to work on: the one that was named, or that of the manifest."""
    return str(named or manifest.namespace or DEFAULT_NAMESPACE)


def describe(error: ZAELimiterError) -> dict[str, Any]:
    """Return an error as a document, from which the caller raises one like it."""
    described: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, ManifestError):
        described["problems"] = [
            {"path": list(problem.path), "reason": problem.reason} for problem in error.problems
        ]
    elif isinstance(error, ApplyConflict):
        described["message"] = error.reason
    return described

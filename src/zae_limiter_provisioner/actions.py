"""The actions of a payload: plan, apply or diff a manifest on the function's table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any

from zae_limiter.bounded_json import parse_bounded
from zae_limiter.exceptions import ValidationError, ZAELimiterError
from zae_limiter.naming import check_principal
from zae_limiter_ops._sync.provisioner import WAIT_SECONDS, Progress, SyncProvisioner
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.diff import ApplyResult
from zae_limiter_ops.manifest.problems import ApplyConflict, ManifestError
from zae_limiter_provisioner.table import opened_provisioner

ACTIONS = ("plan", "apply", "diff")
MAX_CHARACTERS = 6_000_000  # of a manifest as text: Lambda accepts no larger payload
DEFAULT_NAMESPACE = "default"
DEFAULT_PRINCIPAL = "limits-provisioner"


class OutOfTime(ZAELimiterError):
    """The function's time is over before the apply is done.

    The changes that were made stay; the next apply makes the others.
    """


def answer(payload: Mapping[str, Any], table: str, deadline: float) -> dict[str, Any]:
    """Return the answer to a payload; an error is part of the answer.

    ``deadline`` is a time of the monotonic clock.
    """
    try:
        return _run_action(payload, table, deadline)
    except ZAELimiterError as error:
        return {"error": describe(error)}


def _run_action(payload: Mapping[str, Any], table: str, deadline: float) -> dict[str, Any]:
    action = payload.get("action")
    if action not in ACTIONS:
        raise ValidationError("action", action, f"must be one of {', '.join(ACTIONS)}")
    manifest = read_manifest(payload.get("manifest"))
    namespace = namespace_of(payload.get("namespace"), manifest)
    principal = check_principal(payload.get("principal")) or DEFAULT_PRINCIPAL
    if action == "apply":
        with opened_provisioner(table, namespace, principal) as provisioner:
            result = apply(
                provisioner,
                manifest,
                deadline,
                approved=payload.get("revision"),
                wait_seconds=payload.get("wait_seconds"),
            )
            return result.to_dict()
    with opened_provisioner(table, namespace, principal) as provisioner:
        if action == "plan":
            return provisioner.plan(manifest).to_dict()
        return {"drift": [drift.to_dict() for drift in provisioner.diff(manifest)]}


def apply(
    provisioner: SyncProvisioner,
    manifest: LimitsManifest,
    deadline: float,
    *,
    approved: str | None = None,
    wait_seconds: float | None = None,
) -> ApplyResult:
    """Apply a manifest; raise OutOfTime between two batches once the deadline is over."""
    remaining_s = max(deadline - time.monotonic(), 0)
    wait_s = WAIT_SECONDS if wait_seconds is None else wait_seconds
    return provisioner.apply(
        manifest,
        approved=approved,
        wait_seconds=min(wait_s, remaining_s),
        progress=stop_at(deadline),
    )


def stop_at(deadline: float) -> Progress:
    """Return a progress callback that raises OutOfTime once the deadline is over."""

    def stop(done: int, total: int) -> None:
        if done < total and time.monotonic() >= deadline:
            changes = "1 change" if total == 1 else f"{total} changes"
            raise OutOfTime(
                f"{done} of {changes} were made before the function's time was over; "
                "apply again to go on"
            )

    return stop


def read_manifest(document: object) -> LimitsManifest:
    """Read a manifest from JSON data or from JSON text; raises ManifestError."""
    if isinstance(document, str):
        document = _parsed(document)
    if not isinstance(document, Mapping):
        raise ValidationError("manifest", document, "must be a mapping")
    return LimitsManifest.from_dict(document)


def _parsed(text: str) -> object:

    try:
        return parse_bounded(text, longest=MAX_CHARACTERS)
    except JSONDecodeError as error:
        raise ValidationError("manifest", None, f"is not JSON: {error}") from error
    except ValueError as error:
        raise ValidationError("manifest", None, str(error)) from error


def namespace_of(named: object, manifest: LimitsManifest) -> str:
    """Return the namespace of the request, else the manifest's, else ``default``."""
    return str(named or manifest.namespace or DEFAULT_NAMESPACE)


def describe(error: ZAELimiterError) -> dict[str, Any]:
    """Return an error as a document, from which the caller makes an error of the same kind."""
    described: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, ManifestError):
        described["problems"] = [
            {"path": list(problem.path), "reason": problem.reason} for problem in error.problems
        ]
    elif isinstance(error, ApplyConflict):
        described["message"] = error.reason
    return described

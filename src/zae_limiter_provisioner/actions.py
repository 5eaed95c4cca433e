"""The actions of a payload: plan, apply or diff a manifest on the function's table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any

from zae_limiter.bounded_json import is_deeper, parse_bounded, too_deep
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import InfrastructureError, ValidationError, ZAELimiterError
from zae_limiter.naming import DEFAULT_NAMESPACE, check_principal
from zae_limiter_ops._sync.provisioner import WAIT_SECONDS, SyncProvisioner
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.diff import ApplyResult
from zae_limiter_ops.manifest.problems import ApplyConflict, ManifestError
from zae_limiter_provisioner.table import opened_provisioner

ACTIONS = ("plan", "apply", "diff")
MAX_CHARACTERS = 6_000_000  # of a manifest as text: Lambda accepts no larger payload
MAX_DIGITS = 9  # of a number of settings
MAX_ANSWER_BYTES = 6_000_000  # Lambda passes no larger answer on
DEFAULT_PRINCIPAL = "limits-provisioner"


def answer(payload: object, table: str, deadline: Deadline) -> dict[str, Any]:
    """Return the answer to a payload; an error is part of the answer."""
    try:
        document = _run_action(checked_mapping("payload", payload), table, deadline)
        refuse_large(document)
    except ZAELimiterError as error:
        return {"error": describe(error)}
    return document


def refuse_large(document: Mapping[str, Any]) -> None:
    """Raise if Lambda would not pass an answer on; its own error does not say what helps."""
    if len(json.dumps(document)) > MAX_ANSWER_BYTES:
        made = "; changes were made" if "created" in document else ""
        raise InfrastructureError(
            f"the answer has more than {MAX_ANSWER_BYTES:,} bytes{made}; divide the manifest, or "
            "use --direct"
        )


def checked_mapping(name: str, document: object) -> Mapping[str, Any]:
    """Return a document from outside if it is a mapping and not nested too deeply.

    Other code formats and encodes values, which recurses for each level of nesting.
    """
    if is_deeper(document):
        raise ValidationError(name, None, too_deep())
    if not isinstance(document, Mapping):
        raise ValidationError(name, document, "must be a mapping")
    return document


def _run_action(payload: Mapping[str, Any], table: str, deadline: Deadline) -> dict[str, Any]:
    action = payload.get("action")
    if action not in ACTIONS:
        raise ValidationError("action", action, f"must be one of {', '.join(ACTIONS)}")
    manifest = read_manifest(payload.get("manifest"))
    namespace = namespace_of(payload.get("namespace"), manifest)
    principal = check_principal(payload.get("principal")) or DEFAULT_PRINCIPAL
    if action == "apply":
        approved = _checked_text("revision", payload.get("revision"))
        allowed = allowed_deletions("allow_deletions", payload.get("allow_deletions"))
        seconds, wait_seconds = _seconds(payload, "seconds"), _seconds(payload, "wait_seconds")
        if seconds is not None:
            deadline = Deadline(min(seconds, deadline.left()))
        with opened_provisioner(table, namespace, principal) as provisioner:
            return apply(
                provisioner,
                manifest,
                deadline,
                approved=approved,
                allow_deletions=allowed,
                wait_seconds=wait_seconds,
            ).to_dict()
    with opened_provisioner(table, namespace, principal) as provisioner:
        if action == "plan":
            return provisioner.plan(manifest).to_dict()
        return {"drift": [drift.to_dict() for drift in provisioner.diff(manifest)]}


def apply(
    provisioner: SyncProvisioner,
    manifest: LimitsManifest,
    deadline: Deadline,
    *,
    approved: str | None = None,
    allow_deletions: float | None = None,
    wait_seconds: float | None = None,
) -> ApplyResult:
    """Apply a manifest until the deadline, after which the result is unfinished."""
    wait_s = WAIT_SECONDS if wait_seconds is None else wait_seconds
    return provisioner.apply(
        manifest,
        approved=approved,
        allow_deletions=allow_deletions,
        wait_seconds=min(wait_s, max(deadline.left(), 0)),
        deadline=deadline,
    )


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
    return _checked_text("namespace", named) or manifest.namespace or DEFAULT_NAMESPACE


def _checked_text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValidationError(name, value, "must be text")
    return value


def allowed_deletions(name: str, value: object) -> int | None:
    """Return a number of settings, which CloudFormation sends as text; None if none is named."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= MAX_DIGITS:
        return int(value)
    if value is None or (type(value) is int and value >= 0):
        return value
    raise ValidationError(name, value, "must be a number of settings, 0 or more")


def _seconds(payload: Mapping[str, Any], name: str) -> float | None:
    value = payload.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 <= value < math.inf):
        raise ValidationError(name, value, "must be a number of seconds, 0 or more")
    return value


def describe(error: ZAELimiterError) -> dict[str, Any]:
    """Return an error as a document, from which the caller makes an error of the same kind."""
    described: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, ManifestError):
        described["problems"] = [
            {"path": list(problem.path), "reason": problem.reason} for problem in error.problems
        ]
    elif isinstance(error, ApplyConflict):
        described["message"] = error.reason
        described["in_progress"] = error.is_in_progress
    return described

"""An event of the audit log as a line for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter_ops.views.formatting import describe_limits, format_number

if TYPE_CHECKING:
    from zae_limiter.models.audit import AuditEvent


def describe_event(event: AuditEvent) -> str:
    """Describe the change in one line; most actions show their details as stored."""
    details = event.details
    if event.action in ("limits_set", "limits_deleted"):
        return _limits_change(details, is_deletion=event.action == "limits_deleted")
    if filled := _filled(details):
        return filled
    if event.action == "parent_set":
        return f"{_parent(details)} (was {_parent(details.get('previous') or {})})"
    given = {key: value for key, value in details.items() if value not in (None, {}, [], False)}
    return " ".join(f"{key}={_text(value)}" for key, value in given.items())


def _limits_change(details: Mapping[str, Any], *, is_deletion: bool) -> str:
    before = _limits((details.get("previous") or {}).get("limits"))
    if is_deletion:
        return f"was {before}"
    policy = details.get("on_unavailable")
    outage = f"; in an outage: {policy}" if policy else ""
    return f"{_limits(details.get('limits'))} (was {before}){outage}"


def _limits(stored: list[dict[str, Any]] | None) -> str:
    try:
        return describe_limits(Limit.from_dict(limit) for limit in stored or ())
    except (ValidationError, TypeError):  # of another version
        return json.dumps(stored)


def _parent(details: Mapping[str, Any]) -> str:
    if details.get("parent_id") is None:
        return "no parent"
    cascades = "" if details.get("cascade") else ", not charged"
    return f"parent {details['parent_id']}{cascades}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _filled(details: Mapping[str, Any]) -> str | None:
    """Return what a reset or top-up added, by the details of its audit event; None for others."""
    if forgiven := _added(details, "forgiven"):
        return f"forgiven {_describe_amounts(forgiven)}"
    if added := _added(details, "added"):
        asked = {name: Decimal(amount) for name, amount in details["amounts"].items()}
        cut = "" if added == asked else f" (asked for {_describe_amounts(asked)})"
        return f"added {_describe_amounts(added)}{cut}"
    return None


def _added(details: Mapping[str, Any], word: str) -> dict[str, Decimal]:
    """Return amounts in tokens and in currency units."""
    milli, money = details.get(f"{word}_milli", {}), details.get(f"{word}_money", {})
    tokens = {name: Decimal(amount).scaleb(-3).normalize() for name, amount in milli.items()}
    added = tokens | {name: Decimal(amount) for name, amount in money.items()}
    return dict(sorted(added.items()))


def _describe_amounts(amounts: Mapping[str, Decimal]) -> str:
    return ", ".join(f"{name} {format_number(amount)}" for name, amount in amounts.items())

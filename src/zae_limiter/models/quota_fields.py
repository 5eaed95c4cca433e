"""Quotas and budgets as JSON values. Fields that have their default are left out.

Holds that do not expire have a ``hold_ttl`` of null. Where null is not possible it is ``never``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.calendar import MIDNIGHT, Calendar
from zae_limiter.models.limit import (
    DEFAULT_CURRENCY,
    DEFAULT_HOLD_TTL,
    DEFAULT_THRESHOLDS,
    FirstUse,
    Limit,
    refuse_cron,
)
from zae_limiter.models.notation import NEVER

WINDOW_FIELDS = ("per", "every", "zone", "on", "at", "after_first_use")
OPTION_FIELDS = ("soft", "hold_ttl", "thresholds")
QUOTA_FIELDS = ("quota", *WINDOW_FIELDS, *OPTION_FIELDS)
BUDGET_FIELDS = ("budget", "currency", *WINDOW_FIELDS, *OPTION_FIELDS)


def quota_fields(limit: Limit) -> dict[str, Any]:
    """Return the fields of a quota or budget, without its name."""
    fields: dict[str, Any] = {}
    if limit.currency is None:
        fields["quota"] = limit.capacity
    else:
        fields["budget"] = f"{limit.amount:f}"
        if limit.currency != DEFAULT_CURRENCY:
            fields["currency"] = limit.currency
    fields.update(_window_fields(limit))
    if limit.soft:
        fields["soft"] = True
    if limit.hold_ttl != DEFAULT_HOLD_TTL:
        fields["hold_ttl"] = limit.hold_ttl
    if limit.thresholds != DEFAULT_THRESHOLDS:
        fields["thresholds"] = list(limit.thresholds)
    return fields


def _window_fields(limit: Limit) -> dict[str, Any]:
    window = limit.window
    if isinstance(window, FirstUse):
        return {"after_first_use": window.seconds}
    assert isinstance(window, Calendar)
    fields: dict[str, Any] = {"per": window.unit}
    if window.every != 1:
        fields["every"] = window.every
    fields["zone"] = window.zone
    if window.on is not None:
        fields["on"] = window.on
    if window.at != MIDNIGHT:
        fields["at"] = window.at
    return fields


def quota_from(data: Mapping[str, Any]) -> Limit:
    """Return a quota or budget from its fields; raise ValidationError for unknown ones."""
    is_budget = "budget" in data
    known = BUDGET_FIELDS if is_budget else QUOTA_FIELDS
    options: dict[str, Any] = {}
    refuse_cron(data.get("cron"))
    for field, value in data.items():
        if field not in ("name", *known):
            raise ValidationError(
                f"limit.{field}", value, f"is unknown; the fields are {', '.join(known)}"
            )
        if field == "hold_ttl" and value == NEVER:
            options[field] = None
        elif field not in ("name", "quota", "budget"):
            options[field] = value
    if "name" not in data:
        raise ValidationError("limit", dict(data), "lacks name")
    if is_budget:
        return Limit.budget(data["name"], data["budget"], **options)
    return Limit.quota(data["name"], data["quota"], **options)

"""Commands and the page describe an event alike."""

import pytest

from zae_limiter import Limit
from zae_limiter.models.audit import AuditEvent
from zae_limiter_dashboard.templating import environment
from zae_limiter_ops.views.audit_text import describe_event

RPM, TPM = (Limit.per_minute(name, 60).to_dict() for name in ("rpm", "tpm"))


def event(action, **details):
    return AuditEvent("01K", "2026-01-01T00:00:00Z", action, "key-7", "ops", "gpt-4", details)


@pytest.mark.parametrize(
    ("action", "details", "text"),
    [
        (
            "limits_set",
            {"limits": [RPM], "previous": {"limits": [TPM]}, "on_unavailable": "allow"},
            "rpm 60/min (was tpm 60/min); in an outage: allow",
        ),
        ("limits_set", {"limits": [RPM], "previous": None}, "rpm 60/min (was none)"),
        ("limits_deleted", {"previous": {"limits": [RPM]}}, "was rpm 60/min"),
        ("limits_set", {"limits": [{"odd": 1}]}, '[{"odd": 1}] (was none)'),
        (
            "parent_set",
            {"parent_id": "p", "cascade": True, "previous": {"parent_id": None}},
            "parent p (was no parent)",
        ),
        (
            "parent_set",
            {"parent_id": None, "cascade": False, "previous": {"parent_id": "p"}},
            "no parent (was parent p, not charged)",
        ),
        ("bucket_reset", {"forgiven_milli": {"rpm": 2500}}, "forgiven rpm 2.5"),
        (
            "bucket_topped_up",
            {"added_milli": {"rpm": 1000}, "amounts": {"rpm": 3}},
            "added rpm 1 (asked for rpm 3)",
        ),
        ("mode_set", {"mode": "deny", "until": None, "previous": None}, "mode=deny"),
    ],
)
def test_an_event_is_a_line(action, details, text):
    changed = event(action, **details)
    assert describe_event(changed) == text
    assert (
        environment().from_string("{{ event|details }}").render(event=changed).replace("&#34;", '"')
        == text
    )

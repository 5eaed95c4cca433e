"""Find changes of stack options that lower the protection of data."""

from __future__ import annotations

from zae_limiter.models.stack import StackOptions

RETENTIONS = ("usage_retention_days", "audit_retention_days", "log_retention_days")


def less_protection(before: StackOptions, after: StackOptions) -> list[str]:
    """Return each change that lowers the protection of a stack, as a phrase for people."""
    lowered = []
    if before.enable_deletion_protection and not after.enable_deletion_protection:
        lowered.append("the table is no longer protected from deletion")
    if (before.pitr_recovery_days or 0) > (after.pitr_recovery_days or 0):
        days = "off" if after.pitr_recovery_days is None else f"{after.pitr_recovery_days} days"
        lowered.append(
            f"point-in-time recovery goes from {before.pitr_recovery_days} days to {days}"
        )
    for name in RETENTIONS:
        kept, wanted = getattr(before, name), getattr(after, name)
        if wanted < kept:
            lowered.append(f"{name} goes from {kept} to {wanted}")
    if before.permission_boundary and before.permission_boundary != after.permission_boundary:
        new = after.permission_boundary or "none"
        lowered.append(f"the permission boundary {before.permission_boundary} becomes {new}")
    if before.enable_alarms and not after.enable_alarms:
        lowered.append("the alarms are removed")
    if before.alarm_sns_topic and before.alarm_sns_topic != after.alarm_sns_topic:
        lowered.append(f"the alarms no longer notify {before.alarm_sns_topic}")
    if before.archives_events and not after.archives_events:
        lowered.append("expired audit events are no longer archived")
    return lowered

"""Parameters of the template, one for each option, and the conditions on them."""

from __future__ import annotations

from typing import Any, NamedTuple

from zae_limiter.models.stack import DAYS_OF_LOG_RETENTION, MAX_RETENTION_DAYS, StackOptions
from zae_limiter_ops.infra import names


class Parameter(NamedTuple):
    """A parameter and the text of its default."""

    name: str
    default: str
    description: str
    rules: dict[str, Any]


YES, NO = "true", "false"
_SWITCH: dict[str, Any] = {"AllowedValues": [YES, NO]}


def _whole(least: int, most: int) -> dict[str, Any]:
    return {"Type": "Number", "MinValue": least, "MaxValue": most}


# A parameter that is empty or 0 leaves its part out.
PARAMETERS = (
    Parameter("SnapshotWindows", "hourly,daily,monthly", "Windows that reports offer", {}),
    Parameter(
        "UsageRetentionDays",
        "90",
        "Days that usage is kept; 0: none",
        _whole(0, MAX_RETENTION_DAYS),
    ),
    Parameter(
        "AuditRetentionDays", "90", "Days that audit events are kept", _whole(1, MAX_RETENTION_DAYS)
    ),
    Parameter("EnableAggregator", YES, "Create the aggregator function", _SWITCH),
    Parameter("PitrRecoveryDays", "0", "Days of point-in-time recovery; 0: off", _whole(0, 35)),
    Parameter(
        "LogRetentionDays",
        "30",
        "Days that logs are kept",
        {"Type": "Number", "AllowedValues": [str(days) for days in DAYS_OF_LOG_RETENTION]},
    ),
    Parameter("LambdaTimeout", "60", "Seconds that a function may take", _whole(1, 900)),
    Parameter("LambdaMemory", "256", "Memory of a function in MB", _whole(128, 3008)),
    Parameter("ReservedConcurrency", "0", "Reserved concurrency; 0: none", _whole(0, 1000)),
    Parameter(
        "LambdaDurationThresholdMs",
        "48000",
        "Alarm if the aggregator takes longer, in milliseconds",
        _whole(1, 900000),
    ),
    Parameter("EnableAlarms", YES, "Create the alarms", _SWITCH),
    Parameter("AlarmSnsTopic", "", "ARN of the SNS topic that alarms notify", {}),
    Parameter("PermissionBoundary", "", "ARN of the boundary of every role", {}),
    Parameter("RoleNamePrefix", "", "Text before the name of each role", {}),
    Parameter("RoleNameSuffix", "", "Text after the name of each role", {}),
    Parameter("PolicyNamePrefix", "", "Text before the name of each policy", {}),
    Parameter("PolicyNameSuffix", "", "Text after the name of each policy", {}),
    Parameter("EnableAuditArchival", YES, "Archive expired audit events in S3", _SWITCH),
    Parameter(
        "AuditArchiveGlacierDays", "90", "Days until archives move to Glacier", _whole(1, 3650)
    ),
    Parameter("EnableTracing", NO, "Trace the functions with X-Ray", _SWITCH),
    Parameter("CreateIam", YES, "Create roles and policies", _SWITCH),
    Parameter("CreateIamRoles", NO, "Create roles for applications, too", _SWITCH),
    Parameter("AggregatorRoleArn", "", "ARN of an existing role of the functions", {}),
    Parameter("EnableDeletionProtection", NO, "Protect the table from deletion", _SWITCH),
)


def section() -> dict[str, Any]:
    """Return the Parameters of the template."""
    return {
        each.name: {
            "Type": "String",
            "Default": each.default,
            "Description": each.description,
            **each.rules,
        }
        for each in PARAMETERS
    }


def conditions() -> dict[str, Any]:
    """Return the Conditions of the template, in the long form that every control plane accepts."""

    def on(parameter: str) -> dict[str, Any]:
        return {"Fn::Equals": [{"Ref": parameter}, YES]}

    def given(parameter: str, empty: str = "") -> dict[str, Any]:
        return {"Fn::Not": [{"Fn::Equals": [{"Ref": parameter}, empty]}]}

    def all_of(*parts: dict[str, Any]) -> dict[str, Any]:
        return {"Fn::And": list(parts)}

    def condition(name: str) -> dict[str, Any]:
        return {"Condition": name}

    return {
        "HasIam": on("CreateIam"),
        "HasOwnRole": given("AggregatorRoleArn"),
        "CanRun": {"Fn::Or": [condition("HasIam"), condition("HasOwnRole")]},
        "HasAggregator": all_of(on("EnableAggregator"), condition("CanRun")),
        "MakesRole": all_of(on("CreateIam"), {"Fn::Equals": [{"Ref": "AggregatorRoleArn"}, ""]}),
        "MakesAggregatorRole": all_of(condition("MakesRole"), condition("HasAggregator")),
        "HasRoles": all_of(on("CreateIam"), on("CreateIamRoles")),
        "HasBoundary": given("PermissionBoundary"),
        "HasArchive": all_of(on("EnableAuditArchival"), condition("HasAggregator")),
        "HasTracing": on("EnableTracing"),
        "HasPitr": given("PitrRecoveryDays", "0"),
        "HasConcurrency": given("ReservedConcurrency", "0"),
        "HasAlarms": on("EnableAlarms"),
        "HasAggregatorAlarms": all_of(on("EnableAlarms"), condition("HasAggregator")),
        "HasTopic": given("AlarmSnsTopic"),
        "IsProtected": on("EnableDeletionProtection"),
    }


def only_if(condition: str, value: Any) -> dict[str, Any]:
    """Return a property that is left out where a condition does not hold."""
    return {"Fn::If": [condition, value, {"Ref": "AWS::NoValue"}]}


def values(options: StackOptions) -> dict[str, str]:
    """Return the value of every parameter for these options."""
    role_before, role_after = names.split_format(options.role_name_format)
    policy_before, policy_after = names.split_format(options.policy_name_format)
    threshold_ms = options.lambda_timeout * 10 * options.lambda_duration_threshold_pct
    given: dict[str, str | int | bool] = {
        "SnapshotWindows": options.snapshot_windows,
        "UsageRetentionDays": options.usage_retention_days,
        "AuditRetentionDays": options.audit_retention_days,
        "EnableAggregator": options.enable_aggregator,
        "PitrRecoveryDays": options.pitr_recovery_days or 0,
        "LogRetentionDays": options.log_retention_days,
        "LambdaTimeout": options.lambda_timeout,
        "LambdaMemory": options.lambda_memory,
        "ReservedConcurrency": options.reserved_concurrency or 0,
        "LambdaDurationThresholdMs": threshold_ms,
        "EnableAlarms": options.enable_alarms,
        "AlarmSnsTopic": options.alarm_sns_topic or "",
        "PermissionBoundary": options.permission_boundary or "",
        "RoleNamePrefix": role_before,
        "RoleNameSuffix": role_after,
        "PolicyNamePrefix": policy_before,
        "PolicyNameSuffix": policy_after,
        "EnableAuditArchival": options.enable_audit_archival,
        "AuditArchiveGlacierDays": options.audit_archive_glacier_days,
        "EnableTracing": options.enable_tracing,
        "CreateIam": options.create_iam,
        "CreateIamRoles": options.create_iam_roles,
        "AggregatorRoleArn": options.aggregator_role_arn or "",
        "EnableDeletionProtection": options.enable_deletion_protection,
    }
    return {
        name: (YES if value else NO) if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }

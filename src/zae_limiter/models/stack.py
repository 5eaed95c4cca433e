"""A deployed stack: its options, its entry in a listing, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zae_limiter.exceptions import ValidationError

DAYS_OF_LOG_RETENTION = (  # the values that CloudWatch accepts
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
WINDOWS = ("hourly", "daily", "monthly")
MAX_RETENTION_DAYS = 36_500  # a century
MAX_FORMAT_LENGTH = 120
MAX_TAGS = 45  # CloudFormation accepts 50 per stack; five are for our own tags
NAME_FORMAT_GAP = "{}"


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Options of the CloudFormation stack. Each is a parameter of the template.

    ``pitr_recovery_days`` None leaves point-in-time recovery off. ``role_name_format`` and
    ``policy_name_format`` contain ``{}``, which stands for the name. ``create_iam`` False creates
    no role and no policy: the functions then need ``aggregator_role_arn``, or are left out.
    """

    snapshot_windows: str = "hourly,daily,monthly"
    usage_retention_days: int = 90
    audit_retention_days: int = 90
    enable_aggregator: bool = True
    pitr_recovery_days: int | None = None
    log_retention_days: int = 30
    lambda_timeout: int = 60
    lambda_memory: int = 256
    reserved_concurrency: int | None = None
    lambda_duration_threshold_pct: int = 80
    enable_alarms: bool = True
    alarm_sns_topic: str | None = None
    permission_boundary: str | None = None
    role_name_format: str | None = None
    policy_name_format: str | None = None
    enable_audit_archival: bool = True
    audit_archive_glacier_days: int = 90
    enable_tracing: bool = False
    create_iam: bool = True
    create_iam_roles: bool = False
    aggregator_role_arn: str | None = None
    enable_deletion_protection: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_windows()
        _check_range(self.usage_retention_days, 0, MAX_RETENTION_DAYS, "usage_retention_days")
        _check_range(self.audit_retention_days, 1, MAX_RETENTION_DAYS, "audit_retention_days")
        _check_range(self.lambda_timeout, 1, 900, "lambda_timeout")
        _check_range(self.lambda_memory, 128, 3008, "lambda_memory")
        _check_range(self.lambda_duration_threshold_pct, 1, 100, "lambda_duration_threshold_pct")
        _check_range(self.audit_archive_glacier_days, 1, 3650, "audit_archive_glacier_days")
        if self.pitr_recovery_days is not None:
            _check_range(self.pitr_recovery_days, 1, 35, "pitr_recovery_days")
        if self.reserved_concurrency is not None:
            _check_range(self.reserved_concurrency, 1, 1000, "reserved_concurrency")
        if self.log_retention_days not in DAYS_OF_LOG_RETENTION:
            offered = ", ".join(map(str, DAYS_OF_LOG_RETENTION))
            raise ValidationError(
                "log_retention_days", self.log_retention_days, f"must be one of {offered}"
            )
        _check_format(self.role_name_format, "role_name_format")
        _check_format(self.policy_name_format, "policy_name_format")
        _check_arn(self.alarm_sns_topic, "sns", "alarm_sns_topic")
        _check_arn(self.aggregator_role_arn, "iam", "aggregator_role_arn")
        _check_arn(self.permission_boundary, "iam", "permission_boundary")
        if self.create_iam_roles and not self.create_iam:
            raise ValidationError("create_iam_roles", True, "contradicts create_iam=False")
        _check_tags(self.tags)

    def _check_windows(self) -> None:
        names = self.snapshot_windows.split(",")
        if not set(names) <= set(WINDOWS) or len(set(names)) < len(names):
            raise ValidationError(
                "snapshot_windows",
                self.snapshot_windows,
                f"must name some of {', '.join(WINDOWS)}, separated by commas",
            )

    @property
    def has_functions(self) -> bool:
        """Whether the stack can have functions, which need a role."""
        return self.create_iam or self.aggregator_role_arn is not None


@dataclass(frozen=True, slots=True)
class LimiterInfo:
    """One deployed limiter, as a listing of the region shows it."""

    stack_name: str
    user_name: str
    region: str
    stack_status: str
    creation_time: str
    last_updated_time: str | None = None
    version: str | None = None
    lambda_version: str | None = None
    schema_version: str | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether the last deployment succeeded."""
        return self.stack_status in ("CREATE_COMPLETE", "UPDATE_COMPLETE")

    @property
    def is_in_progress(self) -> bool:
        """Whether a deployment is under way."""
        return self.stack_status.endswith("_IN_PROGRESS")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a stack, its table and its functions; None where unknown or absent."""

    name: str
    region: str | None
    available: bool
    latency_ms: float | None
    cfn_status: str | None
    table_status: str | None
    aggregator_enabled: bool
    schema_version: str | None
    lambda_version: str | None
    client_version: str
    table_item_count: int | None
    table_size_bytes: int | None
    details: Mapping[str, Any] = field(default_factory=dict)


def _check_range(value: object, least: int, most: int, name: str) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValidationError(name, value, f"must be a whole number from {least} to {most}")


def _check_format(value: str | None, name: str) -> None:
    if value is None:
        return
    if value.count(NAME_FORMAT_GAP) != 1:
        raise ValidationError(name, value, "must contain {} once, for the name")
    if len(value) > MAX_FORMAT_LENGTH:
        raise ValidationError(name, value, f"must have at most {MAX_FORMAT_LENGTH} characters")


def _check_arn(value: str | None, service: str, name: str) -> None:
    if value is not None and not (value.startswith("arn:") and f":{service}:" in value):
        raise ValidationError(name, value, f"must be an ARN of {service.upper()}, arn:aws:…")


def _check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > MAX_TAGS:
        raise ValidationError("tags", len(tags), f"at most {MAX_TAGS} tags")
    for key, value in tags.items():
        if not key or len(key) > 128 or len(value) > 256 or key.lower().startswith("aws:"):
            raise ValidationError(
                "tags", {key: value}, "keys have 1 to 128 characters and do not start with aws:"
            )

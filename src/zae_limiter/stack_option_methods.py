"""The methods of the builder for the options of a stack, one for each field of StackOptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from zae_limiter.models.stack import StackOptions


class StackOptionMethods:
    """Collects the options with which a missing stack is deployed.

    An existing stack is not changed; ``zae-limiter deploy`` or ``Repository.create_stack`` does it.
    """

    def __init__(self) -> None:
        self._base_options: StackOptions | None = None
        self._options: dict[str, Any] = {}

    def stack_options(self, options: StackOptions | None) -> Self:
        """Set all options at once; other methods of the builder change single options."""
        self._base_options = options
        return self

    def enable_aggregator(self, enabled: bool) -> Self:
        """Create the function that stores each hour of usage when the hour is over."""
        return self._option(enable_aggregator=enabled)

    def pitr_recovery_days(self, days: int | None) -> Self:
        """Enable point-in-time recovery of the table for the last 1 to 35 days."""
        return self._option(pitr_recovery_days=days)

    def log_retention_days(self, days: int) -> Self:
        """Set how long the logs of functions are kept."""
        return self._option(log_retention_days=days)

    def lambda_timeout(self, seconds: int) -> Self:
        """Set how long a function may take for a batch."""
        return self._option(lambda_timeout=seconds)

    def lambda_memory(self, megabytes: int) -> Self:
        """Set the memory of functions, from 128 to 3008 MB."""
        return self._option(lambda_memory=megabytes)

    def reserved_concurrency(self, count: int | None) -> Self:
        """Reserve this many concurrent executions for the aggregator."""
        return self._option(reserved_concurrency=count)

    def lambda_duration_threshold_pct(self, percent: int) -> Self:
        """Set the percentage of its timeout at which a slow function raises an alarm."""
        return self._option(lambda_duration_threshold_pct=percent)

    def enable_alarms(self, enabled: bool) -> Self:
        """Create CloudWatch alarms."""
        return self._option(enable_alarms=enabled)

    def alarm_sns_topic(self, arn: str | None) -> Self:
        """Set the SNS topic that alarms notify."""
        return self._option(alarm_sns_topic=arn)

    def permission_boundary(self, arn: str | None) -> Self:
        """Set the permission boundary of every role."""
        return self._option(permission_boundary=arn)

    def role_name_format(self, text: str | None) -> Self:
        """Set the format of role names, such as "pb-{}-PowerUser"."""
        return self._option(role_name_format=text)

    def policy_name_format(self, text: str | None) -> Self:
        """Set the format of names of managed policies, such as "pb-{}-PowerUser"."""
        return self._option(policy_name_format=text)

    def enable_audit_archival(self, enabled: bool) -> Self:
        """Archive expired audit events in S3."""
        return self._option(enable_audit_archival=enabled)

    def audit_archive_glacier_days(self, days: int) -> Self:
        """Set the number of days after which archived events move to Glacier."""
        return self._option(audit_archive_glacier_days=days)

    def enable_tracing(self, enabled: bool) -> Self:
        """Trace functions with X-Ray."""
        return self._option(enable_tracing=enabled)

    def create_iam(self, enabled: bool) -> Self:
        """Create roles and policies. Without them, functions need ``aggregator_role_arn``."""
        return self._option(create_iam=enabled)

    def create_iam_roles(self, enabled: bool) -> Self:
        """Create roles for applications, operators and readers."""
        return self._option(create_iam_roles=enabled)

    def aggregator_role_arn(self, arn: str | None) -> Self:
        """Let functions run with an existing role."""
        return self._option(aggregator_role_arn=arn)

    def enable_deletion_protection(self, enabled: bool) -> Self:
        """Protect the table from deletion."""
        return self._option(enable_deletion_protection=enabled)

    def tags(self, tags: Mapping[str, str]) -> Self:
        """Set the tags of the stack and everything in it."""
        return self._option(tags=dict(tags))

    def _option(self, **option: Any) -> Self:
        from zae_limiter.models.stack import StackOptions

        StackOptions(**option)  # raises for a value out of range
        self._options |= option
        return self

    def collected_options(self) -> StackOptions | None:
        """Return the options that were set; None if there are none."""
        if self._base_options is None and not self._options:
            return None
        from dataclasses import replace

        from zae_limiter.models.stack import StackOptions

        return replace(self._base_options or StackOptions(), **self._options)

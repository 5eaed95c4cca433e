"""A deployed stack: its options, its entry in a listing, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, cast

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
class StackOption:
    """One option of a stack: its flag, its help, and the values that it takes.

    The flags of ``deploy``, the parameters of the template and the checks of ``StackOptions`` are
    made from it. ``least`` and ``most`` bound a whole number, ``choices`` lists the only ones,
    ``arn_of`` names the service whose ARN is taken, ``is_format`` is a pattern with ``{}`` in it.
    ``unset_flag`` takes the value away again, since a deployment keeps what it does not name.
    """

    flag: str
    help: str
    least: int = 0
    most: int | None = None
    choices: tuple[int, ...] = ()
    arn_of: str | None = None
    is_format: bool = False
    unset_flag: str | None = None

    def check(self, name: str, value: object) -> None:
        """Raise ValidationError for a value that the option does not take."""
        if value is None:  # the option is not set; only optional ones have this default
            return
        if self.most is not None and not _is_whole(value, self.least, self.most):
            reason = f"must be a whole number from {self.least} to {self.most}"
            raise ValidationError(name, value, reason)
        if self.choices and value not in self.choices:
            raise ValidationError(
                name, value, f"must be one of {', '.join(map(str, self.choices))}"
            )
        if self.arn_of is not None:
            _check_arn(str(value), self.arn_of, name)
        if self.is_format:
            _check_format(str(value), name)


def _option(default: Any, flag: str, text: str, **rules: Any) -> Any:
    """Declare a field of ``StackOptions`` together with its ``StackOption``."""
    return field(default=default, metadata={"option": StackOption(flag, text, **rules)})


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Options of the CloudFormation stack; ``described_options`` says what each one means.

    ``pitr_recovery_days`` None leaves point-in-time recovery off. ``role_name_format`` and
    ``policy_name_format`` contain ``{}``, which stands for the name. ``create_iam`` False creates
    no role and no policy: the functions then need ``aggregator_role_arn``, or are left out.
    """

    snapshot_windows: str = _option(
        ",".join(WINDOWS),
        "--snapshot-windows",
        "Windows that usage reports offer, separated by commas.",
    )
    usage_retention_days: int = _option(
        90,
        "--usage-retention-days",
        "Days that usage is kept; 0 keeps none.",
        most=MAX_RETENTION_DAYS,
    )
    audit_retention_days: int = _option(
        90,
        "--audit-retention-days",
        "Days that audit events are kept in the table.",
        least=1,
        most=MAX_RETENTION_DAYS,
    )
    enable_aggregator: bool = _option(
        True,
        "--aggregator/--no-aggregator",
        "Create the function that stores hours of usage as soon as they are over; default: yes.",
    )
    pitr_recovery_days: int | None = _option(
        None,
        "--pitr-recovery-days",
        "Enable point-in-time recovery of the table, for this many days.",
        least=1,
        most=35,
        unset_flag="--no-pitr",
    )
    log_retention_days: int = _option(
        30,
        "--log-retention-days",
        "Days that the logs of functions are kept, as CloudWatch offers them.",
        choices=DAYS_OF_LOG_RETENTION,
    )
    lambda_timeout: int = _option(
        60, "--lambda-timeout", "Seconds that a function may take for a batch.", least=1, most=900
    )
    lambda_memory: int = _option(
        256, "--lambda-memory", "Memory of functions in MB.", least=128, most=3008
    )
    reserved_concurrency: int | None = _option(
        None,
        "--reserved-concurrency",
        "Concurrent executions that are reserved for the aggregator.",
        least=1,
        most=1000,
        unset_flag="--no-reserved-concurrency",
    )
    lambda_duration_threshold_pct: int = _option(
        80,
        "--lambda-duration-threshold-pct",
        "Share of the timeout at which a slow function raises an alarm.",
        least=1,
        most=100,
    )
    enable_alarms: bool = _option(True, "--alarms/--no-alarms", "Create alarms; default: yes.")
    alarm_sns_topic: str | None = _option(
        None,
        "--alarm-sns-topic",
        "SNS topic that alarms notify.",
        arn_of="sns",
        unset_flag="--no-alarm-sns-topic",
    )
    permission_boundary: str | None = _option(
        None,
        "--permission-boundary",
        "Permission boundary of every role.",
        arn_of="iam",
        unset_flag="--no-permission-boundary",
    )
    role_name_format: str | None = _option(
        None,
        "--role-name-format",
        "Name of roles, such as 'pb-{}-PowerUser'.",
        is_format=True,
        unset_flag="--no-role-name-format",
    )
    policy_name_format: str | None = _option(
        None,
        "--policy-name-format",
        "Name of policies, such as 'pb-{}-Power'.",
        is_format=True,
        unset_flag="--no-policy-name-format",
    )
    enable_audit_archival: bool = _option(
        True,
        "--audit-archival/--no-audit-archival",
        "Archive expired audit events in S3; default: yes.",
    )
    audit_archive_glacier_days: int = _option(
        90,
        "--audit-archive-glacier-days",
        "Days until archived events move to Glacier.",
        least=1,
        most=3650,
    )
    enable_tracing: bool = _option(
        False, "--enable-tracing/--no-tracing", "Trace functions with X-Ray; default: no."
    )
    create_iam: bool = _option(True, "--iam/--no-iam", "Create roles and policies; default: yes.")
    create_iam_roles: bool = _option(
        False,
        "--create-iam-roles/--no-create-iam-roles",
        "Create roles for applications, operators and readers, too; default: no.",
    )
    aggregator_role_arn: str | None = _option(
        None,
        "--aggregator-role-arn",
        "Existing role that functions run with.",
        arn_of="iam",
        unset_flag="--no-aggregator-role-arn",
    )
    enable_deletion_protection: bool = _option(
        False,
        "--enable-deletion-protection/--no-deletion-protection",
        "Protect the table from deletion; default: no.",
    )
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in described_options():
            each.option.check(each.name, getattr(self, each.name))
        self._check_windows()
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

    @property
    def archives_events(self) -> bool:
        """Whether the aggregator archives expired audit events."""
        return self.enable_audit_archival and self.enable_aggregator and self.has_functions


class DescribedOption(NamedTuple):
    """A field of ``StackOptions``: its name, its default and its description."""

    name: str
    default: str | int | bool | None
    option: StackOption


def described_options() -> list[DescribedOption]:
    """Return every option but the tags, in the order of the fields."""
    return [
        DescribedOption(each.name, cast(Any, each.default), each.metadata["option"])
        for each in fields(StackOptions)
        if each.metadata
    ]


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


def _is_whole(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _check_format(value: str, name: str) -> None:
    if value.count(NAME_FORMAT_GAP) != 1:
        raise ValidationError(name, value, "must contain {} once, for the name")
    if len(value) > MAX_FORMAT_LENGTH:
        raise ValidationError(name, value, f"must have at most {MAX_FORMAT_LENGTH} characters")


def _check_arn(value: str, service: str, name: str) -> None:
    if not (value.startswith("arn:") and f":{service}:" in value):
        raise ValidationError(name, value, f"must be an ARN of {service.upper()}, arn:aws:…")


def _check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > MAX_TAGS:
        raise ValidationError("tags", len(tags), f"at most {MAX_TAGS} tags")
    for key, value in tags.items():
        if not key or len(key) > 128 or len(value) > 256 or key.lower().startswith("aws:"):
            raise ValidationError(
                "tags", {key: value}, "keys have 1 to 128 characters and do not start with aws:"
            )

"""Flags of ``deploy``, one for each option of a stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from zae_limiter.models.stack import StackOptions

F = TypeVar("F", bound=Callable[..., Any])
ARN = "ARN"
DAYS = "DAYS"


def _tags(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{value!r} must have the form KEY=VALUE", ctx, param)
        tags[key] = text
    return tags


def checked_options(stack: str, options: dict[str, Any]) -> StackOptions:
    """Return the options; what is wrong with one is reported as wrong usage of its flag."""
    from zae_limiter.exceptions import ValidationError
    from zae_limiter.models.stack import StackOptions
    from zae_limiter_ops.infra.names import check_names

    try:
        wanted = StackOptions(**options)
        check_names(stack, wanted)
    except ValidationError as error:
        ctx = click.get_current_context()
        param = next((each for each in ctx.command.params if each.name == error.field), None)
        if param is None:
            raise
        raise click.BadParameter(f"{error.value!r} {error.reason}", ctx, param) from None
    return wanted


def _number(*names: str, default: int | None, least: int, most: int, text: str, **rest: Any) -> Any:
    return click.option(
        *names,
        type=click.IntRange(least, most),
        default=default,
        show_default=default is not None,
        help=text,
        **rest,
    )


def _switch(names: str, field: str, default: bool, text: str) -> Any:
    return click.option(names, field, default=default, help=text)


# The parameter of each has the name of the field of StackOptions; defaults are its defaults.
OPTIONS = (
    click.option(
        "--snapshot-windows",
        metavar="LIST",
        default="hourly,daily,monthly",
        show_default=True,
        help="Windows that usage reports offer, separated by commas.",
    ),
    _number(
        "--usage-retention-days",
        default=90,
        least=0,
        most=36500,
        text="Days that usage is kept; 0 keeps none.",
    ),
    _number(
        "--audit-retention-days",
        default=90,
        least=1,
        most=36500,
        text="Days that audit events are kept in the table.",
    ),
    _switch(
        "--aggregator/--no-aggregator",
        "enable_aggregator",
        True,
        "Create the function that stores hours of usage as soon as they are over; default: yes.",
    ),
    _number(
        "--pitr-recovery-days",
        default=None,
        least=1,
        most=35,
        text="Enable point-in-time recovery of the table, for this many days.",
    ),
    click.option(
        "--log-retention-days",
        type=int,
        default=30,
        show_default=True,
        help="Days that the logs of functions are kept, as CloudWatch offers them.",
    ),
    _number(
        "--lambda-timeout",
        default=60,
        least=1,
        most=900,
        text="Seconds that a function may take for a batch.",
    ),
    _number(
        "--lambda-memory", default=256, least=128, most=3008, text="Memory of functions in MB."
    ),
    _number(
        "--reserved-concurrency",
        default=None,
        least=1,
        most=1000,
        text="Concurrent executions that are reserved for the aggregator.",
    ),
    _number(
        "--lambda-duration-threshold-pct",
        default=80,
        least=1,
        most=100,
        text="Share of the timeout at which a slow function raises an alarm.",
    ),
    _switch("--alarms/--no-alarms", "enable_alarms", True, "Create alarms; default: yes."),
    click.option("--alarm-sns-topic", metavar=ARN, help="SNS topic that alarms notify."),
    click.option("--permission-boundary", metavar=ARN, help="Permission boundary of every role."),
    click.option(
        "--role-name-format", metavar="FORMAT", help="Name of roles, such as 'pb-{}-PowerUser'."
    ),
    click.option(
        "--policy-name-format", metavar="FORMAT", help="Name of policies, such as 'pb-{}-Power'."
    ),
    _switch(
        "--audit-archival/--no-audit-archival",
        "enable_audit_archival",
        True,
        "Archive expired audit events in S3; default: yes.",
    ),
    _number(
        "--audit-archive-glacier-days",
        default=90,
        least=1,
        most=3650,
        text="Days until archived events move to Glacier.",
    ),
    click.option("--enable-tracing", is_flag=True, help="Trace functions with X-Ray."),
    _switch("--iam/--no-iam", "create_iam", True, "Create roles and policies; default: yes."),
    click.option(
        "--create-iam-roles",
        is_flag=True,
        help="Create roles for applications, operators and readers, too.",
    ),
    click.option(
        "--aggregator-role-arn", metavar=ARN, help="Existing role that functions run with."
    ),
    click.option(
        "--enable-deletion-protection", is_flag=True, help="Protect the table from deletion."
    ),
    click.option(
        "--tag",
        "-t",
        "tags",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_tags,
        help="Tag of the stack and everything in it; may be repeated.",
    ),
)


def stack_option_flags(command: F) -> F:
    """Pass the options of a stack as keywords."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command

"""Options that commands share."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from zae_limiter.cli.completion import complete_entity, complete_namespace, complete_resource
from zae_limiter.cli.store import Store

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit

F = TypeVar("F", bound=Callable[..., Any])

PERIODS = {"sec": 1, "min": 60, "hour": 3600, "day": 86_400}
_LIMIT = re.compile(r"([^:]+):([0-9][0-9_]*)(?:/([a-z]+))?(?::([0-9][0-9_]*))?")
_WHOLE = re.compile(r"[0-9][0-9_]*")


def checked(
    check: Callable[[Any], object],
) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback that reports what the library would, as wrong usage of the parameter."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        from zae_limiter.exceptions import ValidationError

        try:
            return check(value)
        except ValidationError as error:
            raise click.BadParameter(f"{value!r} {error.reason}", ctx, param) from error

    return callback


# --- which store -----------------------------------------------------------------------------


def _url(value: str) -> str:
    from zae_limiter.store_url import parse_url

    parse_url(value)
    return value


def _stack(value: str) -> str:
    from zae_limiter.naming import check_stack_name

    return check_stack_name(value)


def _namespace(value: str) -> str:
    from zae_limiter.naming import check_namespace

    return check_namespace(value)


url_option = click.option(
    "--url",
    envvar="ZAEL_URL",
    show_envvar=True,
    metavar="URL",
    callback=checked(_url),
    help="Store: memory://, sqlite:///limits.db or dynamodb://STACK.",
)
namespace_option = click.option(
    "--namespace",
    "-N",
    envvar="ZAEL_NAMESPACE",
    show_envvar=True,
    metavar="NAME",
    callback=checked(_namespace),
    shell_complete=complete_namespace,
    help="Isolated part of the store; 'default' unless named.",
)
_STACK_OPTIONS = (
    url_option,
    click.option(
        "--name",
        "-n",
        "stack",
        metavar="STACK",
        callback=checked(_stack),
        help="DynamoDB stack, instead of --url.",
    ),
    click.option("--region", metavar="REGION", help="AWS region of the stack."),
    click.option("--endpoint-url", metavar="URL", help="DynamoDB endpoint of the stack."),
)


def store_options(command: F) -> F:
    """``store``, with the namespace that --namespace names."""
    return _with_store(command, (*_STACK_OPTIONS, namespace_option))


def registry_options(command: F) -> F:
    """``store``, for commands that concern all namespaces."""
    return _with_store(command, _STACK_OPTIONS)


def _with_store(command: F, options: tuple[Callable[[Any], Any], ...]) -> F:
    @functools.wraps(command)
    def call(
        *args: Any,
        url: str | None,
        stack: str | None,
        region: str | None,
        endpoint_url: str | None,
        namespace: str | None = None,
        **rest: Any,
    ) -> Any:
        store = _store(url, stack, region, endpoint_url, namespace)
        return command(*args, store=store, **rest)

    wrapped: Any = call
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def _store(
    url: str | None,
    stack: str | None,
    region: str | None,
    endpoint_url: str | None,
    namespace: str | None,
) -> Store:
    """The command line wins over the environment; on it, --url and a stack exclude each other."""
    stack_given = stack or region or endpoint_url
    if url is None or not stack_given:
        return Store(url, stack, region, endpoint_url, namespace)
    if click.get_current_context().get_parameter_source("url") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--url names the store; leave out --name, --region, --endpoint-url")
    from urllib.parse import urlencode

    given = {"region": region, "endpoint_url": endpoint_url}
    query = urlencode({key: value for key, value in given.items() if value})
    place = f"dynamodb://{stack or 'zae-limiter'}" + (f"?{query}" if query else "")
    return Store(place, stack, region, endpoint_url, namespace)


# --- output and consent ----------------------------------------------------------------------

output_option = click.option(
    "--output",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="For people, or for programs.",
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def _principal(value: str) -> str:
    from zae_limiter.naming import check_principal

    return check_principal(value) or ""


def os_user() -> str | None:
    """Who is at the keyboard."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container without a user database
        return None


principal_option = click.option(
    "--principal",
    envvar="ZAEL_PRINCIPAL",
    show_envvar=True,
    metavar="WHO",
    default=os_user,
    show_default="the user of the operating system",
    callback=checked(_principal),
    help="Whom the audit log names.",
)


# --- names -----------------------------------------------------------------------------------


def _entity_id(value: str) -> str:
    from zae_limiter.naming import check_entity_id

    return check_entity_id(value)


def _resource(value: str) -> str:
    from zae_limiter.naming import check_resource

    return check_resource(value)


def _resource_or_default(value: str) -> str:
    from zae_limiter.naming import check_resource_or_default

    return check_resource_or_default(value)


check_entity = checked(_entity_id)
check_resource_name = checked(_resource)
check_any_resource = checked(_resource_or_default)
check_namespace_name = checked(
    lambda value: tuple(map(_namespace, value)) if isinstance(value, tuple) else _namespace(value)
)

entity_argument = click.argument(
    "entity_id", metavar="ENTITY", callback=check_entity, shell_complete=complete_entity
)
resource_argument = click.argument(
    "resource", metavar="RESOURCE", callback=check_resource_name, shell_complete=complete_resource
)
level_option = click.option(
    "--resource",
    "-r",
    metavar="NAME",
    default="_default_",
    callback=check_any_resource,
    shell_complete=complete_resource,
    help="Only on this resource; else on all without limits of their own.",
)
resource_filter = click.option(
    "--resource",
    "-r",
    metavar="NAME",
    callback=check_resource_name,
    shell_complete=complete_resource,
    help="Only this resource.",
)


# --- values ----------------------------------------------------------------------------------


class LimitType(click.ParamType["Limit"]):
    """``name:rate[/period][:burst]``."""

    name = "limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Limit:
        from zae_limiter.exceptions import ValidationError
        from zae_limiter.models.limit import Limit

        found = _LIMIT.fullmatch(value)
        if found is None:
            self.fail(
                f"{value!r} is not name:rate[/period][:burst], such as rpm:60 or tpm:9000/min:9999",
                param,
                ctx,
            )
        name, rate, period, burst = found.groups()
        if period is not None and period not in PERIODS:
            self.fail(f"{value!r}: the period is one of {', '.join(PERIODS)}", param, ctx)
        try:
            return Limit(name, int(burst or rate), int(rate), PERIODS[period or "min"])
        except ValidationError as error:
            self.fail(f"{value!r}: {error.field.removeprefix('limit.')} {error.reason}", param, ctx)


def _limits(value: tuple[Limit, ...]) -> tuple[Limit, ...]:
    from zae_limiter.models.limit import check_limits

    return check_limits(value)


limits_option = click.option(
    "--limit",
    "-l",
    "limits",
    type=LimitType(),
    multiple=True,
    required=True,
    metavar="NAME:RATE[/PERIOD][:BURST]",
    callback=checked(_limits),
    help="May be repeated. Period: sec, min (default), hour or day.",
)


class AmountType(click.ParamType[tuple[str, int]]):
    """``name=amount``."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        name, equals, amount = value.partition("=")
        if not (name and equals and _WHOLE.fullmatch(amount)):
            self.fail(f"{value!r} is not name=amount, such as tpm=500", param, ctx)
        return name, int(amount)


def _amounts(value: tuple[tuple[str, int], ...]) -> dict[str, int]:
    from zae_limiter.exceptions import ValidationError
    from zae_limiter.models.limit import check_amounts

    amounts = dict(value)
    if len(amounts) < len(value):
        raise ValidationError("amounts", value, "names a limit twice")
    return check_amounts(amounts, "amounts")


def amounts_option(*names: str, required: bool, help: str) -> Callable[[F], F]:  # noqa: A002
    """Whole tokens by limit name."""
    return click.option(
        *names,
        "amounts",
        type=AmountType(),
        multiple=True,
        required=required,
        metavar="NAME=AMOUNT",
        callback=checked(_amounts),
        help=help,
    )


class Seconds(click.ParamType[float]):
    """A finite span of time within bounds."""

    name = "seconds"

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        if math.isnan(seconds) or not self._least <= seconds <= self._most:
            self.fail(f"{value} is not between {self._least:g} and {self._most:g}", param, ctx)
        return seconds

"""Options that name the store: ``--url``, or the options of a DynamoDB stack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from zae_limiter.naming import check_stack_name
from zae_limiter.store_url import check_region, masked_url, parse_url
from zae_limiter_ops.cli.shared.completion import complete_namespace
from zae_limiter_ops.cli.shared.options import check_namespace_name, validation_callback
from zae_limiter_ops.cli.shared.store import StoreLocation, resolve_url
from zae_limiter_ops.views.advice import GivenOptions

F = TypeVar("F", bound=Callable[..., Any])


def _url(value: str) -> str:
    parsed = parse_url(value)
    check_region(parsed.options.get("region"))
    _endpoint(parsed.options.get("endpoint_url"))
    return value


def _check_stack_option(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    try:
        return validation_callback(check_stack_name, _masked)(ctx, param, value)
    except click.BadParameter as error:
        message = f"{error.message}{_display_name_hint(ctx)}"
        raise click.BadParameter(message, ctx, param) from error


def _display_name_hint(ctx: click.Context) -> str:
    """Return a hint for a command that has two options for a name."""
    if all(param.name != "display_name" for param in ctx.command.params):
        return ""
    return "; --name is the stack, and --display-name the name shown to people"


def _endpoint(value: str | None) -> str | None:
    from zae_limiter.transport.messages import parse_endpoint

    if value is not None:
        parse_endpoint(value)
    return value


def _masked(value: str) -> str:
    return repr(masked_url(value))


url_option = click.option(
    "--url",
    envvar="ZAEL_URL",
    show_envvar=True,
    metavar="URL",
    callback=validation_callback(_url, _masked),
    help="URL of the store: memory://, sqlite:///limits.db or dynamodb://STACK.",
)
namespace_option = click.option(
    "--namespace",
    "-N",
    envvar="ZAEL_NAMESPACE",
    show_envvar=True,
    metavar="NAME",
    callback=check_namespace_name,
    shell_complete=complete_namespace,
    help="Namespace of the store; default: 'default'.",
)


def region_option(text: str) -> Callable[[F], F]:
    return click.option(
        "--region", metavar="REGION", callback=validation_callback(check_region), help=text
    )


def endpoint_option(text: str) -> Callable[[F], F]:
    return click.option(
        "--endpoint-url", metavar="URL", callback=validation_callback(_endpoint, _masked), help=text
    )


_STACK_OPTIONS = (
    url_option,
    click.option(
        "--name",
        "-n",
        "stack",
        metavar="STACK",
        callback=_check_stack_option,
        help="Name of the DynamoDB stack, instead of --url; or ZAEL_STACK.",
    ),
    region_option("AWS region of the stack."),
    endpoint_option("Endpoint of DynamoDB, such as http://localhost:8000."),
)


def store_options(command: F) -> F:
    """Pass ``store``: the store and namespace that the options name."""
    return _with_store(command, (*_STACK_OPTIONS, namespace_option))


def registry_options(command: F) -> F:
    """Pass ``store``, for commands that concern all namespaces."""
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
        **others: Any,
    ) -> Any:
        stack_options = {"stack": stack, "region": region, "endpoint_url": endpoint_url}
        ctx = click.get_current_context()
        _remember_given(ctx)
        source = ctx.get_parameter_source("url")
        if url and any(stack_options.values()) and source is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                "--url names the store already; leave out --name, --region and --endpoint-url"
                + _display_name_hint(ctx)
            )
        return command(
            *args, store=StoreLocation(resolve_url(url, stack_options), namespace), **others
        )

    wrapped: Any = call
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def _remember_given(ctx: click.Context) -> None:
    """Remember the options of the command line for the commands that hints suggest."""
    given = ctx.find_object(GivenOptions)
    if given is None:  # a command that is invoked by itself, without the program around it
        return
    given.region = _given(ctx, {"region": "--region", "endpoint_url": "--endpoint-url"})
    given.store = _given(ctx, {"url": "--url", "stack": "--name"}) + given.region
    given.namespace = _given(ctx, {"namespace": "--namespace"})


def _given(ctx: click.Context, options: dict[str, str]) -> tuple[str, ...]:
    return tuple(
        word
        for name, option in options.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        for word in (option, str(ctx.params[name]))
    )

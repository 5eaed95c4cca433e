"""Flags of ``deploy``, one for each option of a stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from zae_limiter.models.stack import StackOption, described_options

if TYPE_CHECKING:
    from zae_limiter.models.stack import StackOptions

F = TypeVar("F", bound=Callable[..., Any])


def _tags(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{value!r} must have the form KEY=VALUE", ctx, param)
        tags[key] = text
    return tags


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the command line names; the others keep the values of the stack."""
    ctx = click.get_current_context()
    given = {
        name: value
        for name, value in options.items()
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    for each in described_options():
        if given.pop(_unset(each.name), False):
            if each.name in given:
                flags = f"{each.option.unset_flag} contradicts {each.option.flag}"
                raise click.UsageError(f"{flags}; leave one of them out")
            given[each.name] = None
    return given


def _unset(name: str) -> str:
    """Return the name of the parameter that takes the value of an option away."""
    return f"without_{name}"


def checked_options(
    stack: str, given: dict[str, Any], deployed: StackOptions | None
) -> StackOptions:
    """Return the deployed options, or the defaults, with those that were given in their place.

    What is wrong with an option is reported as wrong usage of its flag.
    """
    from dataclasses import replace

    from zae_limiter.exceptions import ValidationError
    from zae_limiter.models.stack import StackOptions
    from zae_limiter_ops.infra.names import check_names

    try:
        wanted = replace(deployed or StackOptions(), **given)
        check_names(stack, wanted)
    except ValidationError as error:
        ctx = click.get_current_context()
        param = next((each for each in ctx.command.params if each.name == error.field), None)
        if param is None:
            raise
        raise click.BadParameter(f"{error.value!r} {error.reason}", ctx, param) from None
    return wanted


def _flag(name: str, default: Any, option: StackOption) -> Callable[[F], F]:
    """Return the flag of one option; its parameter has the name of the field."""
    if isinstance(default, bool):
        return click.option(option.flag, name, is_flag=True, default=default, help=option.help)
    kind: click.ParamType[Any] = click.STRING
    if option.most is not None:
        kind = click.IntRange(option.least, option.most)
    elif option.choices:
        kind = click.INT  # the error lists the choices; the help would become too long
    return click.option(
        option.flag,
        name,
        type=kind,
        metavar=_metavar(option),
        default=default,
        show_default=default is not None,
        help=option.help,
    )


def _metavar(option: StackOption) -> str | None:
    """Return the word for the value in the help; None lets click say it."""
    if option.arn_of is not None:
        return "ARN"
    if option.is_format:
        return "FORMAT"
    if option.most is None and not option.choices:
        return "LIST"
    return None


def stack_option_flags(command: F) -> F:
    """Pass the options of a stack as keywords, and flags that take values away."""
    command = click.option(
        "--tag",
        "-t",
        "tags",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_tags,
        help="Tag of the stack and everything in it; may be repeated.",
    )(command)
    for each in reversed(described_options()):
        if each.option.unset_flag is not None:
            text = f"Deploy without {each.option.flag}, if the stack has it."
            unset = click.option(each.option.unset_flag, _unset(each.name), is_flag=True, help=text)
            command = unset(command)
        command = _flag(each.name, each.default, each.option)(command)
    return command

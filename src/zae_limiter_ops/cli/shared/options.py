"""Options and arguments that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from zae_limiter.exceptions import ValidationError
from zae_limiter.naming import (
    DEFAULT_RESOURCE,
    check_cursor,
    check_entity_id,
    check_namespace,
    check_resource,
    check_resource_or_default,
    check_text,
    process_author,
)
from zae_limiter_ops.cli.shared.completion import complete_entity, complete_resource


def validation_callback(
    check: Callable[[Any], object], shown: Callable[[Any], str] = repr
) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a click callback that reports the library's ValidationError as wrong usage.

    ``shown`` formats the value for the message.
    """

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        try:
            return check(value)
        except ValidationError as error:
            raise click.BadParameter(f"{shown(value)} {error.reason}", ctx, param) from error

    return callback


def _text(value: str) -> str:
    if not value.strip():
        raise ValidationError("text", value, "must not be empty")
    return check_text(value, "text") or ""


def _cursor(value: str) -> str:
    if not value.strip():
        raise ValidationError("cursor", value, "must not be empty")
    return check_cursor(value) or ""


check_free_text = validation_callback(_text)


# --- output, confirmation and audit ----------------------------------------------------------

output_option = click.option(
    "--output",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="Output format: a table for people, JSON for programs.",
)
if_missing_option = click.option(
    "--if-missing", is_flag=True, help="Keep the stored setting if there is one; for scripts."
)
add_option = click.option(
    "--add", is_flag=True, help="Keep the limits in force, and replace only those that are named."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def count_option(things: str) -> Callable[[Any], Any]:
    """Return ``--limit``, the maximum number of ``things`` in a listing."""
    return click.option(
        "--limit",
        type=click.IntRange(1, 1_000_000),  # a page is held in memory
        default=100,
        show_default=True,
        help=f"Maximum number of {things}.",
    )


def page_options(things: str, thing: str, metavar: str) -> Callable[[Any], Any]:
    """Return the options of a listing that comes in pages."""
    options = (
        count_option(things),
        click.option(
            "--all", "list_all", is_flag=True, help=f"List all {things}; --limit is ignored."
        ),
        click.option(
            "--cursor",
            metavar=metavar,
            callback=validation_callback(_cursor),
            help=f"Continue after this {thing}.",
        ),
    )

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


principal_option = click.option(
    "--principal",
    envvar="ZAEL_PRINCIPAL",
    show_envvar=True,
    metavar="NAME",
    default=process_author,
    show_default="user and host of the process",
    callback=check_free_text,
    help="Author of the change in the audit log.",
)


# --- names -----------------------------------------------------------------------------------


def _namespaces(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if isinstance(value, tuple):
        return tuple(map(check_namespace, value))
    return check_namespace(value)


check_entity = validation_callback(check_entity_id)
check_resource_name = validation_callback(check_resource)
check_any_resource = validation_callback(check_resource_or_default)
check_namespace_name = validation_callback(_namespaces)

entity_argument = click.argument(
    "entity_id", metavar="ENTITY", callback=check_entity, shell_complete=complete_entity
)
resource_argument = click.argument(
    "resource", metavar="RESOURCE", callback=check_resource_name, shell_complete=complete_resource
)
optional_resource_argument = click.argument(
    "resource",
    metavar="[RESOURCE]",
    required=False,
    callback=check_resource_name,
    shell_complete=complete_resource,
)
resource_or_default_option = click.option(
    "--resource",
    "-r",
    metavar="NAME",
    default=DEFAULT_RESOURCE,
    callback=check_any_resource,
    shell_complete=complete_resource,
    help="Resource of the limits; default: all resources without limits of their own.",
)


def resource_filter(help: str) -> Callable[[Any], Any]:  # noqa: A002
    """Return ``--resource``, which narrows what a command lists or changes."""
    return click.option(
        "--resource",
        "-r",
        metavar="NAME",
        callback=check_resource_name,
        shell_complete=complete_resource,
        help=help,
    )


def entity_filter(help: str) -> Callable[[Any], Any]:  # noqa: A002
    """Return ``--entity``, which narrows what a command lists."""
    return click.option(
        "--entity",
        "-e",
        "entity_id",
        metavar="ENTITY",
        callback=check_entity,
        shell_complete=complete_entity,
        help=help,
    )

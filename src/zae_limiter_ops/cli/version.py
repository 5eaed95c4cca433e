"""``zae-limiter version``: what is installed, and which version created the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter._version import __version__
from zae_limiter_ops.cli.shared.options import output_option
from zae_limiter_ops.cli.shared.store import DEFAULT_STACK
from zae_limiter_ops.cli.shared.store_options import registry_options
from zae_limiter_ops.cli.shared.tables import print_fields, print_result

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.store import StoreLocation

NONE_NAMED = f"none named; commands use the DynamoDB stack {DEFAULT_STACK!r} (or --url, --name)"


@click.command()
@registry_options
@output_option
def version(store: StoreLocation, output: str) -> None:
    """Show the versions of program, Python and store.

    The store's version is shown if a store is named; otherwise the stack that commands use.

    \b
    Examples:
      zae-limiter version
      zae-limiter version --url sqlite:///limits.db --output json

    JSON: version, python, sqlite, store (null, or: engine, place, record), default_stack.
    """
    import platform
    import sqlite3

    data: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "store": None,
        "default_stack": DEFAULT_STACK,
    }
    if store.url:
        with store.registry() as repository:
            data["store"] = {
                "engine": repository.capabilities.engine,
                "place": repository.stack_name,
                "record": repository.get_version_record(),
            }
    if output == "json":
        print_result(output, data)
        return
    opened = data["store"]
    name = f"{opened['engine']} {opened['place']}" if opened else NONE_NAMED
    record = opened and opened["record"]
    print_fields(
        [
            ("zae-limiter", data["version"]),
            ("Python", data["python"]),
            ("SQLite", data["sqlite"]),
            ("store", name),
            (
                "record",
                " ".join(f"{key}={value}" for key, value in record.items()) if record else None,
            ),
        ]
    )

"""``zae-limiter version``: the versions of the program, of Python and of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter._version import __version__
from zae_limiter.naming import DEFAULT_STACK
from zae_limiter_ops.cli.shared.console import print_json
from zae_limiter_ops.cli.shared.options import output_option
from zae_limiter_ops.cli.shared.store_options import registry_options
from zae_limiter_ops.cli.shared.tables import print_fields

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.store import StoreLocation

NONE_NAMED = f"none named; commands use the DynamoDB stack {DEFAULT_STACK!r} (or --url, --name)"


@click.command()
@registry_options
@output_option
def version(store: StoreLocation, output: str) -> None:
    """Show the versions of program, Python and store.

    The command shows the version of the store if a store is named, and otherwise the stack that
    commands use.

    \b
    Examples:
      zae-limiter version
      zae-limiter version --url sqlite:///limits.db --output json

    JSON: version, python, sqlite, store (null, or: engine, place, record), default_stack.
    """
    data = _versions(store)
    if output == "json":
        print_json(data)
        return
    opened = data["store"]
    record = opened and opened["record"]
    print_fields(
        [
            ("zae-limiter", data["version"]),
            ("Python", data["python"]),
            ("SQLite", data["sqlite"]),
            ("store", f"{opened['engine']} {opened['place']}" if opened else NONE_NAMED),
            ("record", _describe(record) if record else None),
        ]
    )


def _versions(store: StoreLocation) -> dict[str, Any]:
    """Return the versions; a store is opened only if one is named."""
    import platform
    import sqlite3

    return {
        "version": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "store": _opened(store) if store.url else None,
        "default_stack": DEFAULT_STACK,
    }


def _opened(store: StoreLocation) -> dict[str, Any]:
    with store.registry() as repository:
        return {
            "engine": repository.capabilities.engine,
            "place": repository.stack_name,
            "record": repository.get_version_record(),
        }


def _describe(record: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in record.items())

"""``zae-limiter limits export --from-table``: limits of a table of another implementation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter_ops.cli.shared.console import status
from zae_limiter_ops.cli.shared.tables import print_hint
from zae_limiter_ops.views.formatting import count_of

if TYPE_CHECKING:
    from zae_limiter_ops._sync.provisioner.foreign_table import TableRead
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.manifest.declarations import LimitsManifest
    from zae_limiter_ops.manifest.foreign_forms import Found

F = TypeVar("F", bound=Callable[..., Any])

FORMS = ("composite", "per-limit")
UNITS = ("tokens", "millitokens")
DEFAULT_READ_UNITS = 100  # a second: 800 KB of the table
MAX_ATTRIBUTES = 3  # unknown attributes that are named; the others are counted
MAX_PROBLEMS = 50  # settings that are named; the others are counted


class Source(NamedTuple):
    """The options that name a table of another implementation."""

    table: str | None
    form: str | None
    unit: str | None
    read_units: int | None


def _check_table(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{3,255}", name):
        raise click.BadParameter("is no name of a DynamoDB table", ctx, param)
    return name


def source_options(command: F) -> F:
    """Pass the options of a ``Source``, one by one."""
    options = (
        click.option(
            "--from-table",
            metavar="TABLE",
            callback=_check_table,
            help="Read this table of another implementation; it is not changed.",
        ),
        click.option("--form", type=click.Choice(FORMS), help="Form of the items of that table."),
        click.option(
            "--unit",
            type=click.Choice(UNITS),
            help="Unit of the amounts in that table; default: tokens for composite, else "
            "millitokens.",
        ),
        click.option(
            "--read-units",
            type=click.IntRange(1, 40_000),
            metavar="NUMBER",
            help=f"Read units a second that the reading may cost; default: {DEFAULT_READ_UNITS}.",
        ),
    )
    wrapped: Any = command
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def check_source(source: Source) -> None:
    """Raise UsageError for options that contradict each other."""
    if source.table is None:
        if any(source[1:]):
            raise click.UsageError("--form, --unit and --read-units are for --from-table")
        return
    if click.get_current_context().params["stack"] is not None:
        raise click.UsageError("--from-table names the table; leave out --name")
    if source.form is None:
        raise click.UsageError(
            "--from-table needs --form: composite if its keys begin with a namespace, as in "
            "a7x3kq/ENTITY#key-1; per-limit if they do not, as in ENTITY#key-1"
        )


def read_manifest_of(store: StoreLocation, source: Source) -> tuple[LimitsManifest, Found]:
    """Read the table, report on stderr, and return the manifest of its settings."""
    from zae_limiter._sync.engines.dynamodb.client import DynamoClient
    from zae_limiter_ops._sync.provisioner.foreign_table import read_foreign_table
    from zae_limiter_ops.manifest.foreign_forms import DEFAULT_UNITS, SCALES

    table, form = str(source.table), str(source.form)
    unit = source.unit or DEFAULT_UNITS[form]
    region, endpoint_url = store.stack()[1:] if store.has_stack else (None, None)
    client = DynamoClient(table, region=region, endpoint_url=endpoint_url)
    try:
        with status(f"reading {table}") as show:
            client.find_credentials()
            found, read = read_foreign_table(
                client,
                form,
                namespace=store.namespace or DEFAULT_NAMESPACE,
                scale=SCALES[unit],
                units_per_second=source.read_units or DEFAULT_READ_UNITS,
                on_page=lambda read: show(f"reading {table}: {_progress(read)}"),
            )
    finally:
        client.close()
    if found.is_empty:
        raise click.ClickException(_nothing_found(table, form, found, read))
    for line in _report(table, unit, found, read):
        print_hint("table", line)
    namespace = (store.namespace or DEFAULT_NAMESPACE) if form == "composite" else store.namespace
    return found.manifest(namespace), found


def refuse_incomplete(found: Found) -> None:
    """Raise if a setting was left out, after the manifest of the others was written."""
    if found.problems:
        raise click.ClickException(
            f"{count_of(len(found.problems), 'setting')} could not be carried over; the manifest "
            "has all others; add the missing ones by hand"
        )


def _progress(read: TableRead) -> str:
    return f"{count_of(read.items, 'item')}, {read.units:,.1f} read units"


def _nothing_found(table: str, form: str, found: Found, read: TableRead) -> str:
    others = ", ".join(name for name in FORMS if name != form)
    example = f", such as {found.unknown[0]!r}" if found.unknown else ""
    return (
        f"table {table!r} has neither limits nor entities in the form {form}: {_progress(read)} "
        f"were read{example}; check --namespace, or try another form: {others}"
    )


def _report(table: str, unit: str, found: Found, read: TableRead) -> Iterator[str]:
    """Yield the notes: the cost, the unit, and all that the manifest does not carry over."""
    yield f"note: {table} was read and not changed: {_progress(read)}"
    yield f"note: stored amounts were taken as {unit}; compare one limit, or give --unit"
    left = found.left
    if left["buckets"]:
        yield f"not carried over: the present levels of {count_of(left['buckets'], 'bucket')}"
    if left["usage"]:
        yield f"not carried over: {count_of(left['usage'], 'record')} of usage"
    if left["events"]:
        yield f"not carried over: {count_of(left['events'], 'audit event')}"
    if left["described"]:
        yield f"not carried over: names or metadata of {_entities(left['described'])}"
    if left["cascades"]:
        yield (
            f"not carried over: the cascade of {_entities(left['cascades'])} with a parent, which "
            "each call of that form decides; declare it: cascade: true"
        )
    if left["namespaces"]:
        yield f"not carried over: {count_of(left['namespaces'], 'item')} of other namespaces"
    for name, number in found.attributes.most_common(MAX_ATTRIBUTES):
        yield f"not carried over: the attribute {name!r} of {count_of(number, 'item')}"
    if len(found.attributes) > MAX_ATTRIBUTES:
        yield f"not carried over: {len(found.attributes) - MAX_ATTRIBUTES} other attributes"
    if found.unknown:
        items = count_of(left["unknown"], "item")
        keys = ", ".join(map(repr, found.unknown))
        yield f"not carried over: {items} of an unknown kind, such as {keys}"
    yield from (f"not carried over: {problem}" for problem in found.problems[:MAX_PROBLEMS])
    if len(found.problems) > MAX_PROBLEMS:
        rest = len(found.problems) - MAX_PROBLEMS
        yield f"not carried over: {count_of(rest, 'other setting')}"


def _entities(number: int) -> str:
    return count_of(number, "entity", "entities")

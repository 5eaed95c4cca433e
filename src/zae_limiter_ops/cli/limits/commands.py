"""``zae-limiter limits``: limits declared by manifests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.limits.diff import print_applied, print_drift, print_plan
from zae_limiter_ops.cli.limits.foreign_export import (
    Source,
    check_source,
    read_manifest_of,
    refuse_incomplete,
    source_options,
)
from zae_limiter_ops.cli.limits.routes import Document, open_route
from zae_limiter_ops.cli.limits.source import as_yaml, in_namespace, manifest_option, read_manifest
from zae_limiter_ops.cli.shared.console import confirm, confirm_number, print_json, status
from zae_limiter_ops.cli.shared.errors import CHANGES, DONE
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.options import output_option, principal_option
from zae_limiter_ops.cli.shared.result_files import (
    check_result_file,
    result_file_option,
    write_text,
)
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_result
from zae_limiter_ops.views.formatting import count_of, format_number

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.store import StoreLocation

direct_option = click.option(
    "--direct", is_flag=True, help="Work on the store itself, even if the stack has a function."
)
exitcode_option = click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit with 3 if there are differences, with 0 if there are none.",
)


@click.group(cls=CommandGroup)
def limits() -> None:
    """Manage limits by manifests: plan, apply, diff, export.

    A manifest declares limits of the system, of resources and of entities. An apply stores the
    declared settings, and deletes the settings that an earlier manifest declared and this manifest
    does not. It leaves alone settings that no manifest ever declared.

    \b
    Examples:
      zae-limiter limits export > limits.yaml
      zae-limiter limits plan -f limits.yaml
      zae-limiter limits apply -f limits.yaml
    """


@limits.command()
@manifest_option
@exitcode_option
@direct_option
@store_options
@output_option
def plan(
    store: StoreLocation,
    files: tuple[str, ...],
    detailed_exitcode: bool,
    direct: bool,
    output: str,
) -> int:
    """Show what an apply would change; nothing is changed.

    For a SQLite file that does not exist, the plan is for an empty store, and no file is created.

    \b
    Examples:
      zae-limiter limits plan -f limits.yaml
      zae-limiter limits plan -n my-app -f team-a.yaml -f team-b.yaml --detailed-exitcode
      zae-limiter limits plan -f limits/ --output json

    JSON: changes (each: action, kind, entity_id, resource, before, after), create, update, delete,
    adopt (as declared, but not managed yet), unchanged, existing (managed settings that exist),
    revision.
    """
    from zae_limiter_ops.manifest.deletions import are_too_many

    manifest = read_manifest(files, output)
    with open_route(_planned_store(store, output), manifest, direct=direct) as route:
        planned = route.plan(manifest)
    if output == "json":
        print_json(planned)
    else:
        print_plan(planned)
        if are_too_many(planned["delete"], planned["existing"], None):
            print_hint(
                output,
                f"{_deletions(planned)}: an apply needs --allow-deletions {planned['delete']}",
            )
    return CHANGES if detailed_exitcode and planned["changes"] else DONE


def _planned_store(store: StoreLocation, output: str) -> StoreLocation:
    """Return the store to plan on: an empty store for a file that an apply would create."""
    file = store.missing_file
    if file is None:
        return store
    print_hint(
        output, f"note: there is no store at {quoted(file)} yet; the plan is for an empty store"
    )
    return store._replace(url="memory://")


@limits.command()
@manifest_option
@click.option(
    "--yes", "-y", "--auto-approve", "yes", is_flag=True, help="Do not ask for confirmation."
)
@click.option(
    "--allow-deletions",
    type=click.IntRange(0),
    metavar="NUMBER",
    help="Delete at most this many settings. Default: 10, or a quarter of the managed settings.",
)
@click.option(
    "--lock-timeout",
    type=click.FloatRange(0, 3600),
    default=90,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for another apply that is in progress.",
)
@direct_option
@principal_option
@store_options
@output_option
def apply(
    store: StoreLocation,
    files: tuple[str, ...],
    yes: bool,
    allow_deletions: int | None,
    lock_timeout: float,
    direct: bool,
    principal: str | None,
    output: str,
) -> None:
    """Store the limits that the manifest declares.

    The command shows the plan, and asks for confirmation unless the plan only creates settings. A
    plan that deletes more than 10 settings and more than a quarter of the managed ones needs their
    number, typed or by --allow-deletions; --yes is not enough. The next apply finishes an
    interrupted one. Clients apply the limits within their cache time, by default a minute.

    \b
    Examples:
      zae-limiter limits apply -f limits.yaml
      zae-limiter limits apply -n my-app -f limits.yaml --yes --principal ci

    JSON: created, updated, deleted, adopted, unchanged, changes (each: action, kind, entity_id,
    resource, before, after).
    """
    manifest = read_manifest(files, output)
    with open_route(store, manifest, direct=direct, create=True, principal=principal) as route:
        planned = route.plan(manifest)
        if output != "json":
            print_plan(planned)
        allowed = _ask(planned, yes=yes, allow_deletions=allow_deletions)
        with status("applying") as show:
            result = route.apply(
                manifest,
                planned["revision"],
                allowed,
                lock_timeout,
                lambda done, total: show(
                    f"applied {format_number(done)} of {count_of(total, 'change')}"
                ),
            )
    if output == "json":
        print_json(result)
    elif planned["changes"] or planned["adopt"]:
        print_applied(result)


def _ask(planned: Document, *, yes: bool, allow_deletions: int | None) -> int | None:
    """Ask for confirmation before stored settings are changed or deleted.

    Return the number of settings that may be deleted; None if any apply may delete so many.
    """
    from zae_limiter_ops.manifest.deletions import are_too_many

    updated, deleted = planned["update"], planned["delete"]
    if are_too_many(deleted, planned["existing"], allow_deletions):
        if yes or allow_deletions is not None or not sys.stdin.isatty():
            raise click.UsageError(
                f"This {_deletions(planned)}; if that is meant, add --allow-deletions {deleted}"
            )
        confirm_number(f"This {_deletions(planned)}", "deletions", deleted)
        return int(deleted)
    if updated or deleted:
        consequences = " and ".join(
            f"{verb} {count_of(number, 'stored setting')}"
            for verb, number in (("changes", updated), ("deletes", deleted))
            if number
        )
        confirm(f"This {consequences}", "Apply it?", yes=yes)
    return allow_deletions


def _deletions(planned: Document) -> str:
    deleted, existing = format_number(planned["delete"]), format_number(planned["existing"])
    return f"deletes {deleted} of {existing} managed settings"


@limits.command()
@manifest_option
@exitcode_option
@direct_option
@store_options
@output_option
def diff(
    store: StoreLocation,
    files: tuple[str, ...],
    detailed_exitcode: bool,
    direct: bool,
    output: str,
) -> int:
    """Show how stored limits differ from the manifest.

    A difference was made by hand if the stored setting has changed since the last apply. The
    principal and the time of the last change come from the audit log.

    \b
    Examples:
      zae-limiter limits diff -f limits.yaml
      zae-limiter limits diff -n my-app -f limits.yaml --detailed-exitcode

    JSON: drift (each: cause, kind, entity_id, resource, declared, live, principal, changed_at).
    """
    manifest = read_manifest(files, output)
    with open_route(store, manifest, direct=direct) as route:
        found = route.diff(manifest)
    if output == "json":
        print_json(found)
    else:
        print_drift(found["drift"])
    return CHANGES if detailed_exitcode and found["drift"] else DONE


@limits.command()
@result_file_option
@store_options
@click.option(
    "--output",
    type=click.Choice(("yaml", "json")),
    default="yaml",
    show_default=True,
    help="Format of the manifest.",
)
@source_options
def export(
    store: StoreLocation,
    file: Path | None,
    output: str,
    from_table: str | None,
    form: str | None,
    unit: str | None,
    read_units: int | None,
) -> None:
    """Write stored limits, parents and entities as a manifest.

    Applying the manifest changes no setting, but manifests manage its settings from then on. Names
    and metadata of entities are not part of manifests.

    With --from-table, the settings are those of a table that another implementation has written.
    The command reads that table once, by Scan, never writes to it, and reports on stderr what the
    manifest does not carry over. It exits with 1 if a setting is among that.

    \b
    Examples:
      zae-limiter limits export > limits.yaml
      zae-limiter limits export -n my-app --file limits.yaml
      zae-limiter limits export --from-table old-app --form composite --file limits.yaml

    JSON: namespace, system, resources, entities (without those that are empty).
    """
    import json

    source = Source(from_table, form, unit, read_units)
    check_source(source)
    found = None
    if from_table is None:
        with store.open() as repository:
            manifest = repository.provisioner().export()
    else:
        manifest, found = read_manifest_of(store, source)
    document = manifest.to_dict()
    text = as_yaml(document) if output == "yaml" else json.dumps(document, indent=2) + "\n"
    write_text(text, file, "manifest")
    if found is not None:
        refuse_incomplete(found)


@limits.command()
@result_file_option
def schema(file: Path | None) -> None:
    """Print the JSON Schema of manifests, for editors.

    \b
    Examples:
      zae-limiter limits schema --file limits.schema.json
      zae-limiter limits schema > limits.schema.json
    """
    from importlib.resources import files

    text = files("zae_limiter_ops.manifest").joinpath("schema.json").read_text(encoding="utf-8")
    write_text(text, file, "schema")


@limits.command("cfn-template")
@manifest_option
@click.option(
    "--template-file",
    "-o",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_result_file,
    help="File to write to; default: stdout.",
)
@store_options
def cfn_template(store: StoreLocation, files: tuple[str, ...], file: Path | None) -> None:
    """Print a CloudFormation template that applies the manifest.

    The resource of the template, Custom::ZaeLimiterLimits, calls the provisioner function of the
    limiter's stack, which it finds by the exports of that stack. Deleting the template's stack
    removes the applied limits.

    \b
    Example:
      zae-limiter limits cfn-template -n my-app -f limits.yaml > limits-stack.yaml
    """
    from dataclasses import replace

    from zae_limiter_ops.infra.provisioner import MAX_TEMPLATE_BYTES, limits_template
    from zae_limiter_ops.infra.template import as_yaml as as_template

    manifest = read_manifest(files)
    namespace = in_namespace(store, manifest).namespace
    text = as_template(limits_template(store.stack()[0], replace(manifest, namespace=namespace)))
    write_text(text, file, "template")
    if len(text.encode()) > MAX_TEMPLATE_BYTES:
        print_hint(
            "table",
            f"note: the template has more than {MAX_TEMPLATE_BYTES:,} bytes; CloudFormation takes "
            "it only from S3 (aws cloudformation deploy --s3-bucket)",
        )


@limits.command()
@manifest_option
@output_option
def validate(files: tuple[str, ...], output: str) -> None:
    """Check a manifest without a store, and report every mistake.

    \b
    Examples:
      zae-limiter limits validate -f limits.yaml
      zae-limiter limits validate -f limits/ --output json

    JSON: valid, problems (each: source, path, line, column, reason).
    """
    from zae_limiter_ops.manifest.targets import wanted_settings

    settings = wanted_settings(read_manifest(files, output))
    described = f"the manifest is valid: it declares {count_of(len(settings), 'setting')}"
    print_result(output, {"valid": True, "problems": []}, described)

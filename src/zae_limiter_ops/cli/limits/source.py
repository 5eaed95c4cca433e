"""Manifests of the ``limits`` commands: read from files, folders or stdin, and written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zae_limiter_ops.cli.shared.console import print_json
from zae_limiter_ops.cli.shared.errors import WRONG_USAGE, did_you_mean
from zae_limiter_ops.cli.shared.formatting import count_of, printable
from zae_limiter_ops.cli.shared.tables import print_hint, print_line

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.manifest.declarations import LimitsManifest
    from zae_limiter_ops.manifest.problems import ManifestError

STDIN = "-"
MAX_COMPARED = 2000  # names: each comparison takes microseconds, and all pairs are compared
SUFFIXES = (".json", ".yaml", ".yml")  # of the files that a folder is read for

manifest_option = click.option(
    "--file",
    "-f",
    "files",
    metavar="FILE",
    multiple=True,
    required=True,
    help="Manifest, as YAML or JSON: a file, a folder of them, or - for stdin. May be repeated.",
)


def check_result_file(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Refuse a folder where the name of a file is wanted."""
    if file is not None and file.is_dir():  # an empty name is the working directory
        raise click.BadParameter("must be the name of a file", ctx, param)
    return file


result_file_option = click.option(
    "--file",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_result_file,
    help="File to write to; otherwise it is printed.",
)


class WrongManifest(click.ClickException):
    """A manifest with mistakes, each of which was printed on a line of its own."""

    exit_code = WRONG_USAGE


def read_manifest(files: tuple[str, ...], output: str = "table") -> LimitsManifest:
    """Read all files as one manifest; print every mistake if there are any."""
    from zae_limiter_ops.manifest.problems import ManifestError
    from zae_limiter_ops.manifest.reading import read_files

    texts = [text for name in files for text in _texts(name)]
    try:
        manifest = read_files(texts)
    except ManifestError as error:
        raise _reported(error, output) from None
    _hint_at_parents(manifest, output)
    return manifest


def _reported(error: ManifestError, output: str) -> WrongManifest:
    if output == "json":
        problems = [{**problem._asdict(), "path": list(problem.path)} for problem in error.problems]
        print_json({"valid": False, "problems": problems})
    for problem in error.problems:
        click.echo(printable(problem), err=True)
    mistakes = count_of(len(error.problems), "mistake")
    return WrongManifest(f"the manifest has {mistakes}; nothing was changed")


def _texts(name: str) -> Iterator[tuple[str, str]]:
    """Return the texts behind one value of ``--file``, with their names."""
    from zae_limiter_ops.manifest.yaml_text import MAX_CHARACTERS

    if name == STDIN:
        yield "<stdin>", sys.stdin.read(MAX_CHARACTERS + 1)
        return
    path = Path(name)
    if not name or not path.exists():
        raise _bad_file(f"there is no file {name!r}{_similar(path)}")
    if not path.is_dir():
        yield name, _read(path)
        return
    paths = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and each.is_file())
    if not paths:
        raise _bad_file(f"folder {name!r} has no file that ends in {', '.join(SUFFIXES)}")
    for each in paths:
        yield str(each), _read(each)


def _read(path: Path) -> str:
    from zae_limiter_ops.manifest.yaml_text import MAX_CHARACTERS

    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_CHARACTERS + 1)  # of a longer text, the reader says so
    except UnicodeDecodeError:
        raise _bad_file(f"{str(path)!r} is not text in UTF-8") from None


def _similar(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    return did_you_mean(path.name, [each.name for each in path.parent.iterdir()])


def _bad_file(reason: str) -> click.BadParameter:
    return click.BadParameter(reason, click.get_current_context(), param_hint="'--file'")


def _hint_at_parents(manifest: LimitsManifest, output: str) -> None:
    """Warn of parents that look mistyped: the real one would not be charged."""
    parents = {entity.parent for entity in manifest.entities.values() if entity.parent is not None}
    names = parents | manifest.entities.keys()
    for parent in sorted(parents - manifest.entities.keys()):
        suggestion = did_you_mean(parent, names) if len(names) <= MAX_COMPARED else ""
        if suggestion:
            print_hint(output, f"note: the parent {parent!r} is not declared{suggestion}")


def in_namespace(store: StoreLocation, manifest: LimitsManifest) -> StoreLocation:
    """Return the store at the manifest's namespace, which wins over the environment."""
    if manifest.namespace is None or manifest.namespace == store.namespace:
        return store
    source = click.get_current_context().get_parameter_source("namespace")
    if store.namespace is not None and source is ParameterSource.COMMANDLINE:
        raise click.UsageError(
            f"--namespace is {store.namespace!r}, but the manifest is for {manifest.namespace!r}; "
            "leave one of them out"
        )
    return store._replace(namespace=manifest.namespace)


def write_text(text: str, file: Path | None, what: str) -> None:
    """Write to the file, or print."""
    if file is None:
        click.echo(text, nl=False)
        return
    file.write_text(text, encoding="utf-8")
    print_line(f"{what} written to {file}")


def as_yaml(document: dict[str, Any]) -> str:
    """Return a manifest as YAML, in the order of its keys."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast, if it was built
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text

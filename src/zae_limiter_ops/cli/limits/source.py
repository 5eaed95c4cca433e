"""Manifests of the ``limits`` commands, read from files, folders or stdin, and written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.console import print_json
from zae_limiter_ops.cli.shared.errors import WRONG_USAGE
from zae_limiter_ops.cli.shared.tables import print_hint
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.formatting import count_of, printable

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.manifest.declarations import LimitsManifest
    from zae_limiter_ops.manifest.problems import ManifestError

STDIN = "-"
MAX_COMPARED = 2000  # names: all pairs are compared, and each comparison takes microseconds
SUFFIXES = (".json", ".yaml", ".yml")  # of the files that are read from a folder

manifest_option = click.option(
    "--file",
    "-f",
    "files",
    metavar="FILE",
    multiple=True,
    required=True,
    help="Manifest, as YAML or JSON: a file, a folder of them, or - for stdin. May be repeated.",
)


class WrongManifest(click.ClickException):
    """A manifest with mistakes, each of which was printed on a line of its own."""

    exit_code = WRONG_USAGE


def read_manifest(files: tuple[str, ...], output: str = "table") -> LimitsManifest:
    """Read all files as one manifest; print all mistakes."""
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
    """Yield the texts of one value of ``--file``, with their names."""
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
            return file.read(MAX_CHARACTERS + 1)  # the reader refuses a longer text
    except UnicodeDecodeError:
        raise _bad_file(f"{str(path)!r} is not text in UTF-8") from None


def _similar(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    return did_you_mean(path.name, [each.name for each in path.parent.iterdir()])


def _bad_file(reason: str) -> click.BadParameter:
    return click.BadParameter(reason, click.get_current_context(), param_hint="'--file'")


def _hint_at_parents(manifest: LimitsManifest, output: str) -> None:
    """Warn of parents that look mistyped: the intended parent would not be charged."""
    parents = {entity.parent for entity in manifest.entities.values() if entity.parent is not None}
    names = parents | manifest.entities.keys()
    for parent in sorted(parents - manifest.entities.keys()):
        suggestion = did_you_mean(parent, names) if len(names) <= MAX_COMPARED else ""
        if suggestion:
            print_hint(output, f"note: the parent {quoted(parent)} is not declared{suggestion}")


def in_namespace(store: StoreLocation, manifest: LimitsManifest) -> StoreLocation:
    """Return the store with the manifest's namespace, which wins over the environment."""
    if manifest.namespace is None or manifest.namespace == store.namespace:
        return store
    source = click.get_current_context().get_parameter_source("namespace")
    if store.namespace is not None and source is ParameterSource.COMMANDLINE:
        raise click.UsageError(
            f"--namespace is {store.namespace!r}, but the manifest is for {manifest.namespace!r}; "
            "leave out one of the two"
        )
    return store._replace(namespace=manifest.namespace)


def as_yaml(document: dict[str, Any]) -> str:
    """Return a manifest as YAML, in the order of its keys."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the C version is ten times as fast
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text

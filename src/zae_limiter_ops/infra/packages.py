"""Function packages: zips of all modules that a handler imports, from the installed package.

The imports are read from the source text, including imports inside functions and excluding imports
for type checkers. The packages contain no third-party code. The same sources give the same bytes on
every Python, so the digest shows whether a deployed function is up to date.
"""

from __future__ import annotations

import ast
import base64
import functools
import hashlib
import io
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

OWN_PACKAGES = (
    "zae_limiter",
    "zae_limiter_ops",
    "zae_limiter_aggregator",
    "zae_limiter_provisioner",
)
AGGREGATOR = "zae_limiter_aggregator.handler"
PROVISIONER = "zae_limiter_provisioner.handler"
# The functions get manifests as JSON; this module would need PyYAML.
LEFT_OUT = frozenset({"zae_limiter_ops.manifest.yaml_text"})
# Bytes: the zip of the placeholder has some hundred, and a package some hundred thousand.
MAX_PLACEHOLDER = 4096
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # a constant date gives constant bytes; a zip knows none earlier
_READABLE = 0o644 << 16  # Lambda unpacks the zip as one user and runs the code as another
# The handler setting of the template names this module; the placeholder code has the same name.
_ENTRY = "index.py"
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # where a statement has others


class FunctionPackage(NamedTuple):
    """The zip of a function, and Lambda's digest of it."""

    content: bytes

    @property
    def sha256(self) -> str:
        """Return the digest as GetFunctionConfiguration shows it (CodeSha256)."""
        return base64.b64encode(hashlib.sha256(self.content).digest()).decode()


def is_placeholder(configuration: Mapping[str, Any]) -> bool:
    """Return whether a function still has the code of the template, by Lambda's configuration.

    The digest of that code is not known: CloudFormation makes the zip.
    """
    size = configuration.get("CodeSize")
    return isinstance(size, int) and size <= MAX_PLACEHOLDER


def aggregator_package() -> FunctionPackage:
    """Build the package of the aggregator."""
    return build(AGGREGATOR)


def provisioner_package() -> FunctionPackage:
    """Build the package of the provisioner."""
    return build(PROVISIONER)


@functools.cache
def build(entry: str) -> FunctionPackage:
    """Build a package whose ``index.handler`` is the ``handler`` of the entry module."""
    files = {_ENTRY: f'from {entry} import handler\n\n__all__ = ["handler"]\n'.encode()}
    for name, path in sorted(_modules(entry).items()):
        inside = name.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")
        files[inside] = path.read_bytes()
    return FunctionPackage(zipped(files))


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of the files in the given order; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for inside, content in files.items():
            info = zipfile.ZipInfo(inside, _ZIP_EPOCH)
            info.external_attr = _READABLE
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return buffer.getvalue()


def _modules(entry: str) -> dict[str, Path]:
    """Return the files of all own modules that ``entry`` imports, directly or indirectly."""
    found: dict[str, Path] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name in found or name in LEFT_OUT:
            continue
        path = _file_of(name)
        if path is None:  # a name inside a module, not a module
            continue
        found[name] = path
        parent = name.rpartition(".")[0]
        if parent:
            waiting.append(parent)
        is_package = path.name == "__init__.py"
        waiting += _imported(path, name if is_package else parent)
    return found


def _file_of(name: str) -> Path | None:
    try:
        spec = find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


@functools.cache  # the functions have many modules in common
def _imported(path: Path, package: str) -> tuple[str, ...]:
    """Return the own modules, and the names in own modules, that a module imports at runtime."""
    names: list[str] = []
    waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        waiting += _statements_in(node)
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(package.split(".")[: -node.level + 1 or None] + base.split("."))
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(name for name in names if name.partition(".")[0] in OWN_PACKAGES)


def _statements_in(node: ast.AST) -> list[ast.AST]:
    """Return the statements, handlers and cases in the blocks of a statement or module.

    Expressions are left out: nothing in them is imported, and they are most of a module.
    """
    blocks = (getattr(node, name, ()) for name in _BLOCKS)
    return [statement for block in blocks for statement in block]

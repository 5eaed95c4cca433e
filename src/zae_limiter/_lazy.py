"""Import of public names on first use, so that a program imports only the modules it uses."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any


def import_name(
    package: str,
    name: str,
    modules: Mapping[str, str],
    *,
    names: Collection[str] = (),
    searched: tuple[str, ...] = (),
) -> Any:
    """Import a name for the ``__getattr__`` of ``package``, and store it in the package.

    ``modules`` maps names to modules of the package; a module that begins with a dot is a sibling
    of the package. All other ``names`` are in one of the ``searched`` modules, which are imported
    in turn.
    """
    candidates: tuple[str, ...] = ()
    if name in modules:
        candidates = (modules[name],)
    elif name in names:
        candidates = searched
    for candidate in candidates:
        module = import_module(f".{candidate}", package)
        if hasattr(module, name):
            value = getattr(module, name)
            setattr(sys.modules[package], name, value)  # later accesses find the name there
            return value
    raise AttributeError(f"module {package!r} has no attribute {name!r}")

"""Importing public names on first use, so that a program pays only for what it uses."""

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
    """Return what the ``__getattr__`` of ``package`` is asked for, and keep it in the package.

    ``modules`` says in which module of the package a name is (one that begins with a dot is beside
    the package). Each of ``names`` that is not among them is in one of the ``searched`` modules,
    which are imported in turn.
    """
    candidates = (modules[name],) if name in modules else searched if name in names else ()
    for candidate in candidates:
        module = import_module(f".{candidate}", package)
        if hasattr(module, name):
            value = getattr(module, name)
            setattr(sys.modules[package], name, value)  # the next access does not come here
            return value
    raise AttributeError(f"module {package!r} has no attribute {name!r}")

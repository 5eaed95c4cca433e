"""Every module here whose name does not start with ``_`` brings its ``CONTESTANTS``."""

from __future__ import annotations

import importlib
import pkgutil

from benchmarks.cases import Contestant


def all_contestants() -> list[Contestant]:
    """Ours first, then the peers, by file name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found: list[Contestant] = []
    for name in names:
        if not name.startswith("_"):
            found.extend(importlib.import_module(f"{__name__}.{name}").CONTESTANTS)
    return found

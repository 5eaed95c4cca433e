"""What must be made anew in a forked child: a lock that another thread held stays locked there."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def after_fork(self) -> None:
        """Called in the child, before anything else runs there."""


_objects: WeakSet[Forkable] = WeakSet()


def renew_after_fork(what: Forkable) -> None:
    """Call ``what.after_fork()`` in every forked child, as long as it lives."""
    _objects.add(what)


def _in_child() -> None:
    for what in list(_objects):
        what.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

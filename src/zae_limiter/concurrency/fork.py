"""Objects that reset themselves in forked children.

A fork copies memory, but only the thread that forks: locks that other threads held stay locked in
the child, and what those threads were doing is never finished.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def after_fork(self) -> None:
        """Reset what must not be shared with the parent; called first of all in the child."""


_objects: WeakSet[Forkable] = WeakSet()


def renew_after_fork(forkable: Forkable) -> None:
    """Call ``forkable.after_fork()`` in every forked child; the reference is weak."""
    _objects.add(forkable)


def _in_child() -> None:
    for forkable in list(_objects):
        forkable.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

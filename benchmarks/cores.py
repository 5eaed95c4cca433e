"""A core for the servers and the others for their clients.

In use they are on different machines. Where they share a core, each finds its caches full of what
the other has left there, and which of them shares with whom is up to chance.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

ALL = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
SERVERS = {max(ALL)}


@contextmanager
def of_servers() -> Iterator[None]:
    """Processes that are started in the block stay on the servers' core."""
    with _on(SERVERS):
        yield


@contextmanager
def of_clients() -> Iterator[None]:
    """Keep this thread and its children off the servers' core while the block runs."""
    with _on(ALL - SERVERS):
        yield


@contextmanager
def _on(cores: set[int]) -> Iterator[None]:
    if len(ALL) == 1:  # nothing to share out, or no way to
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

"""Migrations of the table: each schema version after the first, as a rewrite of single items.

A rewrite reads one item and returns the updates that bring the item to the next version. The list
is empty if the item already has that form. Each update has a condition that only an item as it was
read fulfils, so any number of runners, clients and repetitions may meet at an item. The runner is
in ``_async/engines/dynamodb/migrating.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.update import ItemUpdate

Rewrite = Callable[[Item], list[ItemUpdate]]


class Migration(NamedTuple):
    """One step: ``rewrite`` brings items of the version before to ``version``."""

    version: int
    summary: str
    rewrite: Rewrite


# The first schema needs no migration. A later one adds its step here.
MIGRATIONS: tuple[Migration, ...] = ()


def pending(migrations: Sequence[Migration], version: int) -> list[Migration]:
    """Return the migrations that items of a version still need, in order."""
    return [migration for migration in migrations if migration.version > version]

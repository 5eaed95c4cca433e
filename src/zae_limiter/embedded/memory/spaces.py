"""Namespaces as dictionaries of rows, with a journal that can undo a failed transaction.

The garbage collector visits every object that may refer to another one, and stops the process
meanwhile: with a million buckets for most of a second. So rows are kept as bytes, which it does
not visit; only buckets that were used lately are kept as objects.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator
from typing import Any

from zae_limiter.embedded.memory.partitioned import Partitioned
from zae_limiter.models.config import LevelConfig

# What the journal can change: a dictionary, or many of them.
Table = dict[Any, Any] | Partitioned[Any]

_ABSENT = object()
PAGE = 1000  # ids that an index may have without being read


class Journal:
    """The previous value of every key that the transaction has changed, newest last."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[Table, Any, Any]] = []

    def put(self, table: Table, key: Any, value: Any) -> None:
        self.entries.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def delete(self, table: Table, key: Any) -> None:
        if key in table:
            self.entries.append((table, key, table[key]))
            del table[key]

    def undo(self) -> None:
        for table, key, before in reversed(self.entries):
            if before is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = before
        self.entries.clear()


class SortedIds:
    """Ids in order, for listings by page; ids that no longer exist are left out when read."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._new: list[str] = []

    def add(self, entity_id: str) -> None:
        self._new.append(entity_id)

    def after(
        self, entity_id: str, limit: int | None, existing: Container[str], size: int
    ) -> list[str]:
        """List at most ``limit`` ids after ``entity_id`` that are among the ``size`` existing."""
        if self._new:
            self._ids += self._new
            self._new = []
            if len(self._ids) > 2 * size + PAGE:
                self._ids = list({each for each in self._ids if each in existing})
            self._ids.sort()  # merges the sorted ids with the new ones
        page: list[str] = []
        at, last = bisect_right(self._ids, entity_id), entity_id
        while at < len(self._ids) and (limit is None or len(page) < limit):
            each = self._ids[at]
            if each != last and each in existing:  # an id may have been added twice
                page.append(each)
            at, last = at + 1, each
        return page

    @property
    def is_crowded(self) -> bool:
        """Return whether more ids were added since the last listing than it had."""
        return len(self._new) > len(self._ids) + PAGE


class Space:
    """The rows of one namespace, by the keys of their readers."""

    def __init__(self) -> None:
        # By resource and entity. Empty bytes stand for a bucket that is kept as an object.
        self.buckets: dict[str, Partitioned[bytes]] = {}
        self.resources_in_use: dict[str, bool] = {}  # resources that have, or had, buckets
        # By resource and entity. Defaults are objects: every resolution reads them.
        self.configs: dict[str, Partitioned[LevelConfig | bytes]] = {}
        self.configured: dict[str, SortedIds] = {}
        self.version: dict[str, int] = {}
        self.entities: Partitioned[bytes] = Partitioned()
        # Ids with an entity or a bucket: made by the first listing, dropped if none comes again.
        self.in_use: SortedIds | None = None
        self.child_ids: dict[str, SortedIds] = {}
        self.children: dict[str, Partitioned[None]] = {}
        self.audit: dict[str, dict[str, bytes]] = {}  # by subject and event id
        self.documents: dict[str, dict[str, Any]] = {}

    def __contains__(self, entity_id: object) -> bool:
        """Return whether there is an entity or a bucket of this id."""
        return entity_id in self.entities or any(
            entity_id in entities for entities in self.buckets.values()
        )

    def ids_in_use(self) -> SortedIds:
        """Return the index of entities and buckets, which the first listing makes."""
        if self.in_use is None:
            self.in_use = SortedIds()
            for table in (self.entities, *self.buckets.values()):
                for entity_id in table:
                    self.in_use.add(entity_id)
        return self.in_use

    def note_use(self, entity_id: str) -> None:
        """Add an id to the index, or drop an index that no listing reads: it would only grow."""
        if self.in_use is not None:
            self.in_use.add(entity_id)
            if self.in_use.is_crowded:
                self.in_use = None

    def tables(self) -> Iterator[Table]:
        """Iterate over the dictionaries that hold rows, buckets excepted."""
        yield from self.configs.values()
        yield from (self.version, self.entities, self.documents, self.resources_in_use)
        yield from self.audit.values()


class SpaceTables:
    """The namespaces of a store and the journal of its transaction: what all tables share."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._spaces: dict[str, Space] = {}

    def _space(self, namespace_id: str) -> Space:
        space = self._spaces.get(namespace_id)
        if space is None:
            space = self._spaces[namespace_id] = Space()
        return space

    def _delete_keys(self, table: Table, keys: list[Any]) -> int:
        for key in keys:
            self.journal.delete(table, key)
        return len(keys)

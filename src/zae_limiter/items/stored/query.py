"""Queries of a store of items: a range of one partition, of the items or of an index."""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.items.stored.attributes import Item

# Words of a range: the sort keys that begin with `first`, lie between `first` and `last` (both
# included), come after `first`, or before it.
PREFIX, BETWEEN, AFTER, BEFORE = "prefix", "between", "after", "before"


class Range(NamedTuple):
    """A range of sort keys."""

    word: str
    first: str
    last: str = ""


class ItemQuery(NamedTuple):
    """A query of one partition; the result is in the order of the sort keys."""

    partition: str
    sort: Range | None = None
    index_name: str = ""  # without it, the items themselves are queried
    only: tuple[str, ...] = ()  # of an index: only items with one of these sort keys
    only_between: tuple[str, str] = ("", "")  # of an index: only sort keys between, both excluded
    newest_first: bool = False
    page_size: int | None = None
    after: Item | None = None  # the key of the item to continue after, which may be gone

    @property
    def partition_key(self) -> str:
        return f"{self.index_name}PK"

    @property
    def sort_key(self) -> str:
        return f"{self.index_name}SK"

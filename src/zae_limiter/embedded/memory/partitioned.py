"""A table of any size without the pauses of one large dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

V = TypeVar("V")

ONE_PART = 8192  # rows: a dictionary of this size is copied in less than a millisecond
PARTS = 256  # a power of two; at a million rows each part holds four thousand
# A dictionary places its keys by the lowest bits of their hash. The part is chosen by higher bits,
# or else the keys of one part would all collide.
HASH_SHIFT = 20


class Partitioned(Generic[V]):
    """Rows by id, in one dictionary or, if there are many, in 256 by the hash of the id.

    A growing dictionary copies all of its entries. With a million entries that takes tens of
    milliseconds, in the middle of one call. Values must not refer to other objects (they are
    bytes, numbers or None), so that the garbage collector does not visit the dictionaries.
    """

    __slots__ = ("_mask", "_parts")

    def __init__(self) -> None:
        self._parts: list[dict[str, V]] = [{}]
        self._mask = 0

    def get(self, key: str, default: Any = None) -> V | Any:
        return self._parts[hash(key) >> HASH_SHIFT & self._mask].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) >> HASH_SHIFT & self._mask]

    def __getitem__(self, key: str) -> V:
        return self._parts[hash(key) >> HASH_SHIFT & self._mask][key]

    def __setitem__(self, key: str, value: V) -> None:
        part = self._parts[hash(key) >> HASH_SHIFT & self._mask]
        part[key] = value
        if not self._mask and len(part) > ONE_PART:
            self._split(part)

    def __delitem__(self, key: str) -> None:
        del self._parts[hash(key) >> HASH_SHIFT & self._mask][key]

    def pop(self, key: str, default: Any = None) -> V | Any:
        return self._parts[hash(key) >> HASH_SHIFT & self._mask].pop(key, default)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __bool__(self) -> bool:
        return any(self._parts)

    def __iter__(self) -> Iterator[str]:
        # An emptied dictionary is skipped: iterating over it visits every place that it has.
        return (key for part in self._parts if part for key in part)

    def parts(self) -> list[dict[str, V]]:
        """Return the dictionaries, to iterate over one at a time."""
        return self._parts

    def _split(self, whole: dict[str, V]) -> None:
        parts: list[dict[str, V]] = [{} for _ in range(PARTS)]
        for key, value in whole.items():
            parts[hash(key) >> HASH_SHIFT & PARTS - 1][key] = value
        # One statement, since an interrupt between two would leave many parts with a mask of 0.
        self._parts, self._mask = parts, PARTS - 1

"""Listings of any length, read a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

FIRST_PAGE, PAGE = 100, 1000


class Pages(Generic[T]):
    """Pages of at most ``limit`` items together; the first is small, so that it comes soon.

    After the last one ``next_cursor`` says where to go on; None at the end of the listing.
    """

    def __init__(
        self,
        fetch: Callable[[int, str | None], tuple[list[T], str | None]],
        limit: int | None,
        cursor: str | None,
    ) -> None:
        self._fetch = fetch
        self._limit = limit
        self.next_cursor = cursor
        self.found = 0

    @property
    def is_over(self) -> bool:
        """Whether the page that was read last is the last one."""
        return self.next_cursor is None or self.found == self._limit

    def __iter__(self) -> Iterator[list[T]]:
        is_over = False
        while not is_over:
            size = PAGE if self.found else FIRST_PAGE
            if self._limit is not None:
                size = min(size, self._limit - self.found)
            page, self.next_cursor = self._fetch(size, self.next_cursor)
            self.found += len(page)
            is_over = self.is_over
            if page:
                yield page

"""Listings over an index whose entries are spread over several partitions."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from zae_limiter._async.engines.items.port import ItemPages
from zae_limiter.items.stored.attributes import Item
from zae_limiter.runtime.parallel import Parallel, agather

# Queries at the same time. A listing over all partitions takes four round trips, and leaves
# connections and throughput to acquires. The number also bounds the pages in memory.
PARALLEL_QUERIES = 8


class InTurn:
    """Reads one partition after the other: an order that a cursor can continue.

    Nearly empty partitions are read ahead, more at a time with every step. So a small store is
    listed in a few round trips, and a page of a large store reads one partition.
    """

    def __init__(self, queries: Sequence[ItemPages], parallel: Parallel) -> None:
        self._unread = deque(queries)
        self._parallel = parallel
        self._current: ItemPages | None = None
        self._ahead: deque[tuple[ItemPages, list[Item]]] = deque()
        self._left: list[Item] = []  # the rest of a page
        self._width = 1
        self.count = 0  # entries taken so far

    @property
    def is_over(self) -> bool:
        is_read = self._is_current_read and not self._ahead and not self._unread
        return is_read and not self._left

    @property
    def _is_current_read(self) -> bool:
        return self._current is None or self._current.is_over

    async def take(self, count: int) -> list[Item]:
        """Return the next entries, fewer than ``count`` only at the end."""
        while len(self._left) < count and (page := await self.page()):
            self._left += page
        taken, self._left = self._left[:count], self._left[count:]
        self.count += len(taken)
        return taken

    async def page(self) -> list[Item]:
        """Read the next entries; the list is empty only at the end."""
        while self._unread or self._ahead or not self._is_current_read:
            if self._current is not None and not self._current.is_over:
                entries = await self._current.page()
            elif self._ahead:
                self._current, entries = self._ahead.popleft()
            else:
                await self._read_ahead()
                continue
            if entries:
                return entries
        return []

    async def _read_ahead(self) -> None:
        count = min(self._width, len(self._unread))
        queries = [self._unread.popleft() for _ in range(count)]
        pages = await agather(self._parallel, *(query.page for query in queries))
        self._ahead.extend(zip(queries, pages, strict=True))
        self._width = min(2 * self._width, PARALLEL_QUERIES)


class Merged:
    """Reads all entries in the order of ``position``, which is also that of each partition."""

    def __init__(
        self, queries: Sequence[ItemPages], parallel: Parallel, position: Callable[[Item], str]
    ) -> None:
        self._sources: list[tuple[ItemPages, deque[Item]]] = [(query, deque()) for query in queries]
        self._parallel = parallel
        self._position = position

    @property
    def held(self) -> int:
        """The number of entries that were read and not taken yet."""
        return sum(len(read) for _, read in self._sources)

    async def take(self, count: int) -> list[Item]:
        """Return the next entries, fewer than ``count`` only at the end."""
        taken: list[Item] = []
        while len(taken) < count:
            await self._fill()
            entries = self._take_read(count - len(taken))
            if not entries:
                break
            taken += entries
        return taken

    async def _fill(self) -> None:
        """Read a page of every partition that has no entry left but may have more."""
        dry = [(query, read) for query, read in self._sources if not read and not query.is_over]
        for start in range(0, len(dry), PARALLEL_QUERIES):
            some = dry[start : start + PARALLEL_QUERIES]
            pages = await agather(self._parallel, *(query.page for query, _ in some))
            for (_, read), page in zip(some, pages, strict=True):
                read.extend(page)

    def _take_read(self, count: int) -> list[Item]:
        """Take entries in order, until another page is needed to know the next entry."""
        heads = [
            (self._position(read[0]), number)
            for number, (_, read) in enumerate(self._sources)
            if read
        ]
        heapq.heapify(heads)
        taken: list[Item] = []
        while heads and len(taken) < count:
            number = heads[0][1]
            query, read = self._sources[number]
            taken.append(read.popleft())
            if read:
                heapq.heapreplace(heads, (self._position(read[0]), number))
            else:
                heapq.heappop(heads)
                if not query.is_over:
                    break
        return taken


class Unordered:
    """Reads all entries in no order, several partitions at a time."""

    def __init__(self, queries: Sequence[ItemPages], parallel: Parallel) -> None:
        self._queries = list(queries)
        self._parallel = parallel

    @property
    def is_over(self) -> bool:
        return not self._queries

    async def page(self) -> list[Item]:
        """Read a page of several partitions; the list is empty only at the end."""
        entries: list[Item] = []
        while not entries and self._queries:
            some = self._queries[:PARALLEL_QUERIES]
            for page in await agather(self._parallel, *(query.page for query in some)):
                entries += page
            self._queries = [query for query in self._queries if not query.is_over]
        return entries

    async def all(self) -> list[Item]:
        entries: list[Item] = []
        while not self.is_over:
            entries += await self.page()
        return entries

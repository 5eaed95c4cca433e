"""A queue in the order of arrival, which callers may leave at any moment from any place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar


class Numbered(Protocol):
    """A caller; ``number`` counts arrivals, and no two callers have the same number."""

    number: int


N = TypeVar("N", bound=Numbered)


class ArrivalQueue(Generic[N]):
    """Callers in the order of their numbers. Joining, leaving and finding the first take O(log n).

    16,000 callers may leave at one moment. So a caller that leaves is only removed from
    ``_members``; its number stays in the heap until it reaches the top.
    """

    def __init__(self) -> None:
        self._members: dict[int, N] = {}
        # Whether preferred callers come before this one, and its number.
        self._heap: list[tuple[bool, int]] = []

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, caller: N) -> bool:
        return self._members.get(caller.number) is caller

    def __iter__(self) -> Iterator[N]:
        return iter(self._members.values())

    def add(self, caller: N) -> None:
        """Add a caller at the place that its number gives."""
        self._members[caller.number] = caller
        heappush(self._heap, (True, caller.number))

    def discard(self, caller: N) -> None:
        """Remove a caller, if it is in the queue."""
        if caller in self:
            del self._members[caller.number]

    def first(self) -> N | None:
        """Return the caller whose turn it is; None if the queue is empty."""
        heap, members = self._heap, self._members
        while heap:
            caller = members.get(heap[0][1])
            if caller is not None:
                return caller
            heappop(heap)
        return None

    def prefer(self, is_preferred: Callable[[N], bool]) -> None:
        """Put preferred callers before all others. Callers that join later are not preferred."""
        self._heap = [(not is_preferred(each), number) for number, each in self._members.items()]
        heapify(self._heap)

"""A queue in the order of arrival that callers may leave at any moment, from any place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar


class Numbered(Protocol):
    """A caller; ``number`` is that of its arrival, and no other caller has the same."""

    number: int


N = TypeVar("N", bound=Numbered)


class ArrivalQueue(Generic[N]):
    """Callers by their number. To join, to leave and to find the first one takes O(log n).

    Of 16,000 callers all may leave in one moment. A caller that leaves stays in the heap until it
    is at the top: ``_members`` says who is in the queue.
    """

    def __init__(self) -> None:
        self._members: dict[int, N] = {}
        self._heap: list[tuple[bool, int]] = []  # whether others may pass the caller, its number

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, caller: N) -> bool:
        return self._members.get(caller.number) is caller

    def __iter__(self) -> Iterator[N]:
        return iter(self._members.values())

    def add(self, caller: N) -> None:
        """Let a caller join at the place of its arrival."""
        self._members[caller.number] = caller
        heappush(self._heap, (True, caller.number))

    def discard(self, caller: N) -> None:
        """Remove a caller, if it is in the queue."""
        if caller in self:
            del self._members[caller.number]

    def first(self) -> N | None:
        """Return the caller whose turn it is."""
        heap, members = self._heap, self._members
        while heap:
            caller = members.get(heap[0][1])
            if caller is not None:
                return caller
            heappop(heap)
        return None

    def prefer(self, is_preferred: Callable[[N], bool]) -> None:
        """Let callers pass all others; those that join later do not."""
        self._heap = [(not is_preferred(each), number) for number, each in self._members.items()]
        heapify(self._heap)

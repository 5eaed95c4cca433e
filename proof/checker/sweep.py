"""The fullest of all windows, in O(n log n).

A window begins at one of the given positions. An amount that belongs to the positions up to ``p``
lies in every window that begins at ``p`` or before. ``best`` is the largest sum, over all windows
that are open, of the amounts in the window and the base of its begin.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

_CLOSED = -(10**40)  # below any sum of amounts


class Windows:
    """Windows that begin at these positions, in ascending order, each with a base."""

    def __init__(self, positions: Sequence[int], bases: Sequence[int]) -> None:
        self._positions, self._bases = positions, bases
        self._size = 1
        while self._size < max(1, len(positions)):
            self._size *= 2
        self._sums = [0] * (2 * self._size)
        self._bests = [_CLOSED] * (2 * self._size)

    @property
    def best(self) -> int | None:
        """The fullest open window; None if none is open."""
        best = self._bests[1]
        return None if best <= _CLOSED // 2 else best

    def open(self, position: int) -> None:
        """Let windows begin at this position from now on."""
        index = bisect_right(self._positions, position) - 1
        leaf = self._size + index
        self._bests[leaf] = self._bases[index] + self._sums[leaf]
        self._rise(leaf)

    def add(self, until: int, amount: int) -> None:
        """Add an amount to all windows that begin at ``until`` or before."""
        index = bisect_right(self._positions, until) - 1
        if index < 0:
            return
        leaf = self._size + index
        self._sums[leaf] += amount
        self._bests[leaf] += amount
        self._rise(leaf)

    def _rise(self, node: int) -> None:
        """Sum up the way to the root; amounts of a right child lie in the windows of the left."""
        sums, bests = self._sums, self._bests
        while node > 1:
            node //= 2
            left, right = 2 * node, 2 * node + 1
            sums[node] = sums[left] + sums[right]
            from_left, from_right = bests[left] + sums[right], bests[right]
            bests[node] = max(from_left, from_right)

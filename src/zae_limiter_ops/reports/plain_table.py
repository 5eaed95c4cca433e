"""Aligned columns of plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unicodedata import combining, east_asian_width

GAP = "  "


class PlainTable:
    """Columns that are as wide as the first rows need; longer cells of later rows stick out.

    A title that ends in ``>`` aligns its column to the right.
    """

    def __init__(
        self, titles: Sequence[str], first_rows: Sequence[Sequence[str]], indent: int = 0
    ) -> None:
        self._heads = [title.rstrip(">=") for title in titles]
        self._aligned_right = [title.endswith(">") for title in titles]
        columns = zip(self._heads, *first_rows, strict=True)
        self._widths = [max(map(text_width, column)) for column in columns]
        self._indent = " " * indent

    @property
    def head(self) -> str:
        """The line of the titles."""
        return self.line(self._heads)

    def rule(self, character: str) -> str:
        """Return a line of ``character`` under the titles."""
        width = sum(self._widths) + len(GAP) * (len(self._widths) - 1)
        return self._indent + character * width

    def line(self, cells: Sequence[str]) -> str:
        """Return the line of a row."""
        return (self._indent + GAP.join(self._padded(cells))).rstrip()

    def _padded(self, cells: Sequence[str]) -> Iterator[str]:
        for cell, width, right in zip(cells, self._widths, self._aligned_right, strict=True):
            space = " " * (width - text_width(cell))
            yield space + cell if right else cell + space


def text_width(text: str) -> int:
    """Return the number of terminal columns that ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 1 + (east_asian_width(char) in "WF") for char in text)

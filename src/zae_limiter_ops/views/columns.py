"""Records in columns: one list of columns is a table for people, JSON and CSV for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TextIO, TypeVar
from unicodedata import combining, east_asian_width

from zae_limiter.models.money import billionths_of, in_currency

T = TypeVar("T")
U = TypeVar("U")
T_contra = TypeVar("T_contra", contravariant=True)  # a column for any usage fits windows, too


def as_text(value: Any) -> str:
    """Return a value for people: ``1,200``, ``yes``, and an empty text for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return f"{in_currency(billionths_of(value)):,f}"  # a sum may have zeros at its end
    return f"{value:,}" if isinstance(value, int) else str(value)


def plain_value(value: Any) -> Any:
    """Return a value for programs: money is a text, since a float would not be exact."""
    return f"{in_currency(billionths_of(value)):f}" if isinstance(value, Decimal) else value


def plain_values(amounts: Mapping[str, Any]) -> dict[str, Any]:
    """Return amounts by name for programs."""
    return {name: plain_value(amount) for name, amount in amounts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[T_contra]):
    """One value of a record, with its name in each form of output.

    A form leaves out the columns that have no name there. A ``title`` that ends in ``>`` aligns
    the cells to the right; a title that ends in ``>`` or ``=`` keeps each cell on one line.
    """

    value: Callable[[T_contra], Any]
    title: str | None = None  # the head of a table's column
    key: str | None = None  # the key of JSON
    csv: str | None = None  # the head of a column of CSV
    format: Callable[[Any], str] = as_text  # for tables


def titles_of(columns: Sequence[Column[T]]) -> list[str]:
    """Return the heads of a table."""
    return [column.title for column in columns if column.title is not None]


def cells_of(columns: Sequence[Column[T]], record: T) -> list[str]:
    """Return the cells of a table, in the order of its heads."""
    return [column.format(column.value(record)) for column in columns if column.title is not None]


def json_of(columns: Sequence[Column[T]], record: T) -> dict[str, Any]:
    """Return the JSON object of a record."""
    return {
        column.key: plain_value(column.value(record))
        for column in columns
        if column.key is not None
    }


def of_part(columns: Sequence[Column[T]], part: Callable[[U], T]) -> list[Column[U]]:
    """Return the columns for records that contain the record of ``columns`` as a part."""
    return [_of_part(column, part) for column in columns]


def _of_part(column: Column[T], part: Callable[[U], T]) -> Column[U]:
    return Column(
        value=lambda whole: column.value(part(whole)),
        title=column.title,
        key=column.key,
        csv=column.csv,
        format=column.format,
    )


# --- CSV -------------------------------------------------------------------------------------

FORMULA_STARTS = ("=", "+", "-", "@")  # of cells that spreadsheets compute


def write_csv(columns: Sequence[Column[T]], records: Iterable[T], file: TextIO) -> None:
    """Write the heads, and a line for each record."""
    import csv

    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([column.csv for column in columns if column.csv is not None])
    for record in records:
        row = [column.value(record) for column in columns if column.csv is not None]
        writer.writerow(map(_neutral, row))


def _neutral(value: object) -> object:
    """Return a text that no spreadsheet computes: a text that looks like a formula gets a quote.

    Callers choose the ids of entities, so an id may be a formula. Numbers stay numbers, and money
    has all its digits.
    """
    if isinstance(value, Decimal):
        return f"{value:f}"
    is_formula = isinstance(value, str) and value.startswith(FORMULA_STARTS)
    return f"'{value}" if is_formula else value


# --- plain text ------------------------------------------------------------------------------

GAP = "  "  # between two columns


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

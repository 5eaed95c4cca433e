"""``bucket list --watch``: the table of buckets, read and shown again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from zae_limiter_ops.cli.bucket.columns import STYLES, listed_columns
from zae_limiter_ops.cli.shared.console import is_live, make_console
from zae_limiter_ops.cli.shared.tables import print_line, print_table, rich_table
from zae_limiter_ops.views.columns import cells_of, titles_of
from zae_limiter_ops.views.formatting import count_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.table import Table

    from zae_limiter_ops.cli.bucket.pages import BucketFilter, BucketPages, ListedBucket

LINES_AROUND = 4  # head, rule, caption and prompt: the lines of the screen beside the rows

Rows = list[list[str]]


def watch_buckets(
    source: BucketPages,
    bucket_filter: BucketFilter,
    limit: int,
    cursor: str | None,
    *,
    pause_s: float,
) -> None:
    """Show the buckets again and again until Ctrl-C, which is no error here."""
    columns = listed_columns(source.namespaces, limited=bucket_filter.limited)
    titles = titles_of(columns)

    def read_rows() -> Rows:
        buckets = _read(source.anew(), bucket_filter, limit, cursor)
        return [cells_of(columns, row) for bucket in buckets for row in bucket.rows]

    console = make_console()
    try:
        if is_live(console):
            _replace_table(console, titles, read_rows, pause_s)
        else:
            _print_tables(titles, read_rows, pause_s)
    except KeyboardInterrupt:
        return


def _read(
    source: BucketPages, bucket_filter: BucketFilter, limit: int, cursor: str | None
) -> list[ListedBucket]:
    if bucket_filter.reads_all:
        return bucket_filter.first(source, limit, lambda _: None)[0]
    return source.fetch(limit, cursor)[0]


def _print_tables(titles: list[str], read_rows: Callable[[], Rows], pause_s: float) -> None:
    """Print one table below the other."""
    while True:
        print_line(_moment())
        print_table(titles, read_rows(), last_styles=STYLES)
        print_line("")
        time.sleep(pause_s)


def _replace_table(
    console: Console, titles: list[str], read_rows: Callable[[], Rows], pause_s: float
) -> None:
    """Replace the table on the terminal by the next one."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_fitting_table(console, titles, read_rows()), refresh=True)
            time.sleep(pause_s)


def _fitting_table(console: Console, titles: list[str], rows: Rows) -> Table:
    """Return a table of the rows that fit the terminal; the caption counts the others."""
    room = max(1, console.size.height - LINES_AROUND)
    caption = f"{_moment()}  Ctrl-C ends it"
    if len(rows) > room:
        caption += f"  {count_of(len(rows) - room, 'row')} more"
    return rich_table(titles, rows[:room], STYLES, width=console.width, caption=caption)


def _moment() -> str:
    return time.strftime("%H:%M:%SZ", time.gmtime())

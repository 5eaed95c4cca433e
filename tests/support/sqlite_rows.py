"""All rows of a SQLite store, behind the back of its clients."""

import sqlite3
from contextlib import closing


def rows_of(path):
    """Return the rows by table, without the one of the clock, which no request owns."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        tables = sorted(name for (name,) in found if name != "clock")
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}

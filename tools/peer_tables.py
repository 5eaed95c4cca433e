"""Take the figures beside other limiters in docs/performance/index.md from benchmarks/results.md.

``python -m tools.peer_tables`` updates the page; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS, PAGE = ROOT / "benchmarks/results.md", ROOT / "docs/performance/index.md"
NONE = "–"  # not measured

# Heading of the benchmark, and how the page calls it.
EMBEDDED_ROWS = {
    "memory, two limits, sync, 1 key": "memory, sync, 1 key",
    "memory, two limits, sync, 1000 keys": "memory, sync, 1,000 keys",
    "memory, two limits, sync, 4 threads, 1 key": "memory, sync, 4 threads",
    "memory, two limits, async, 1 task, 1 key": "memory, async, 1 task",
    "memory, rejected, sync, 1 key": "memory, sync, rejected",
    "file, two limits, sync, 1 key": "SQLite file, sync, 1 key",
    "file, two limits, async, 1 task, 1 key": "SQLite file, async, 1 task",
}
EMBEDDED_COLUMNS = {
    "zae-limiter": ("zae-limiter memory", "zae-limiter sqlite"),
    "limits, fixed window": ("limits fixed window",),
    "limits, moving window": ("limits moving window",),
    "throttled-py, token bucket": ("throttled-py token bucket",),
    "pyrate-limiter": ("pyrate-limiter memory", "pyrate-limiter sqlite"),
    "pyrate-limiter, our journal settings": ("pyrate-limiter sqlite, WAL",),
}
SERVER_ROWS = {
    "server, two limits, async, 1 task, 1 key": "1 task",
    "server, two limits, async, 50 tasks, 1 key": "50 tasks, 1 key",
    "server, two limits, async, 50 tasks, 1000 keys": "50 tasks, 1,000 keys",
}
SERVER_COLUMNS = {
    "zae-limiter, DynamoDB": ("zae-limiter dynamodb",),
    "limits, fixed window, Redis": ("limits fixed window, redis",),
    "throttled-py, token bucket, Redis": ("throttled-py token bucket, redis",),
    "plain aiobotocore, DynamoDB": ("plain aiobotocore",),
}

Figures = dict[str, dict[str, list[str]]]
Cell = Callable[[list[str]], tuple[float, str]]  # the value that is compared, and its text


def figures(text: str) -> Figures:
    """Read the lines of the benchmark: numbers by heading and contestant."""
    found: Figures = {}
    heading = ""
    for line in text.splitlines():
        if re.match(r"(memory|file|server), ", line):
            heading = line.strip()
            found.setdefault(heading, {})
        elif heading and (match := re.match(r"  (\S.*?)  +([\d.,]+ .*)$", line)):
            found[heading][match[1]] = match[2].split()
        else:
            heading = ""
    return found


def embedded_table(found: Figures) -> str:
    """Return microseconds per acquire; the smallest of a row is bold."""
    return _table(EMBEDDED_ROWS, EMBEDDED_COLUMNS, found, _microseconds, smallest=True)


def server_table(found: Figures) -> str:
    """Return acquires per second with the CPU of the client; the largest of a row is bold."""
    return _table(SERVER_ROWS, SERVER_COLUMNS, found, _per_second, smallest=False)


def _microseconds(numbers: list[str]) -> tuple[float, str]:
    return _number(numbers[0]), numbers[0]


def _per_second(numbers: list[str]) -> tuple[float, str]:
    rate, cpu, *_ = numbers
    return _number(rate), f"{rate} · {_number(cpu):,.0f} µs"


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _table(
    rows: Mapping[str, str],
    columns: Mapping[str, tuple[str, ...]],
    found: Figures,
    cell: Cell,
    *,
    smallest: bool,
) -> str:
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for heading, title in rows.items():
        measured = [_first(found[heading], names) for names in columns.values()]
        cells = [None if numbers is None else cell(numbers) for numbers in measured]
        best = (min if smallest else max)(known[0] for known in cells if known is not None)
        lines.append(f"| {title} | {' | '.join(_text(known, best) for known in cells)} |")
    return "\n".join(lines)


def _first(lines: Mapping[str, list[str]], names: tuple[str, ...]) -> list[str] | None:
    return next((lines[name] for name in names if name in lines), None)


def _text(cell: tuple[float, str] | None, best: float) -> str:
    if cell is None:
        return NONE
    value, text = cell
    return f"**{text}**" if value == best else text


def page() -> str:
    """Return the page with the figures of the benchmarks."""
    found = figures(BENCHMARKS.read_text("utf-8"))
    text = PAGE.read_text("utf-8")
    for name, table in (("embedded", embedded_table(found)), ("servers", server_table(found))):
        begin, end = f"<!-- {name}: python -m tools.peer_tables -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""The tables in benchmarks/results.md: those of embedded engines and those of servers.

Each stands between two marks and is renewed if any of it was measured.
"""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from benchmarks.report import environment, print_embedded, print_servers, verdict_table
from benchmarks.runner import Results
from benchmarks.verdict import Verdict

PAGE = Path(__file__).with_name("results.md")
BEGIN, END = "<!-- {}: written by python -m benchmarks --write-docs -->", "<!-- /{} -->"
WIDTH = 130
PARTS = {"embedded": print_embedded, "servers": print_servers}


def write_docs(results: Results, found: list[Verdict], page: Path = PAGE) -> None:
    """Replace the text between the marks."""
    text = page.read_text()
    for part in PARTS:
        own = [verdict for verdict in found if verdict.on_server is (part == "servers")]
        if any(verdict.holds is not None for verdict in own):
            text = _replaced(text, part, _body(part, results, own))
    page.write_text(text)


def _replaced(text: str, part: str, body: str) -> str:
    begin, end = BEGIN.format(part), END.format(part)
    before, begins, rest = text.partition(begin)
    _, ends, after = rest.partition(end)
    if not begins or not ends:
        raise SystemExit(f"{PAGE} lacks the line {begin!r} or {end!r}; put both back")
    return f"{before}{begin}\n\n{body}\n\n{end}{after}"


def _body(part: str, results: Results, found: list[Verdict]) -> str:
    where = environment()
    cases = [case for case in results.cases if case.contestant.remote is (part == "servers")]
    rounds = max((len(results.samples[case.id]) for case in cases), default=0)
    shown = io.StringIO()
    console = Console(file=shown, width=WIDTH)
    PARTS[part](console, results)
    console.print(verdict_table(found))
    lines = "\n".join(line.rstrip() for line in shown.getvalue().splitlines()).strip("\n")
    return (
        f"Run of {where['date']}, Python {where['python']}, {where['cpus']} CPUs, "
        f"{rounds} rounds, load average {results.load_before:.1f} before and {where['load']} after."
        f"\n\n```text\n{lines}\n```"
    )

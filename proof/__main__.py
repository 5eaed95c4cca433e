"""``python -m proof``: run subjects under faults, check their histories, and print the table.

``make proof`` runs everything, ``make proof-short`` a sample of three minutes.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from proof.checker.history import History, read_history
from proof.checker.verdict import Findings, check
from proof.harness.faults import FAULTS
from proof.harness.plan import (
    DYNAMODB,
    LIMITS_REDIS,
    MEMORY,
    OURS,
    PEERS,
    SQLITE,
    SUBJECTS,
    THROTTLED_REDIS,
    Plan,
)
from proof.harness.run import lines_of, run
from proof.table import Result, not_applicable, result_of, row, table

SHORT = (
    (MEMORY, "none"),
    (MEMORY, "clocks"),
    (SQLITE, "none"),
    (SQLITE, "kill -9 of clients"),
    (SQLITE, "full disk"),
    (DYNAMODB, "none"),
    (DYNAMODB, "lost answers"),
    (DYNAMODB, "requests twice"),
    (DYNAMODB, "kill -9 of the store"),
)
SHORT_SECONDS, LONG_SECONDS = 5.0, 10.0
SEEDS, SEEDS_OF_PEERS = 10, 3
OPERATIONS = 1_000_000  # of each engine of ours in the published run
LEAST_CLOCKS_S = 0.01  # clocks that do not follow their offsets differ by less
NEVER_FIRED = "the fault never fired"
SHOWN = 40  # lines of a history that a failure prints


@dataclass(frozen=True, slots=True)
class Case:
    """A subject under a fault."""

    subject: str
    fault: str

    @property
    def reason(self) -> str | None:
        """Why it is not run; None if it is."""
        fault = FAULTS[self.fault]
        if self.subject not in fault.subjects:
            return fault.elsewhere
        if self.subject in (LIMITS_REDIS, THROTTLED_REDIS) and not shutil.which("redis-server"):
            return "redis-server is not installed: apt-get install redis-server"
        return fault.needs()

    def fails(self, result: Result) -> bool:
        """Tell whether a result fails the run: a promise of ours is broken, or nothing fired."""
        is_promised = self.subject in OURS and FAULTS[self.fault].is_promised
        return bool(result.broken) and (is_promised or NEVER_FIRED in result.broken)


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; 0 if every promise of our own limiter was kept."""
    options = _parser().parse_args(arguments)
    out = Path(options.out)
    cases = [
        Case(subject, fault)
        for subject, fault in _chosen(options)
        if subject in options.subjects and fault in options.faults
    ]
    results: dict[Case, list[Result]] = {}
    for case in cases:
        if case.reason is None:
            seeds = options.seeds or (SEEDS if case.subject in OURS else SEEDS_OF_PEERS)
            first = options.seed
            results[case] = [
                _result(case, seed, options, out) for seed in range(first, first + seeds)
            ]
    if options.operations:
        _go_on(results, options, out)
    rows = [
        row(results[case])
        if case.reason is None
        else not_applicable(case.fault, case.subject, case.reason)
        for case in cases
    ]
    sys.stdout.write(table(rows) + "\n")
    return _report(results, out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a sample of cases, one seed each")
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=SUBJECTS)
    parser.add_argument("--faults", nargs="+", choices=tuple(FAULTS), default=tuple(FAULTS))
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, help="seeds of each case")
    parser.add_argument("--seconds", type=float, help="length of a run")
    parser.add_argument(
        "--operations", type=int, default=0, help="go on with more seeds until an engine has these"
    )
    parser.add_argument("--resume", action="store_true", help="keep the runs that were finished")
    parser.add_argument(
        "--recheck", action="store_true", help="as --resume, but check the kept histories again"
    )
    parser.add_argument("--out", default="build/proof", help="folder of histories and results")
    return parser


def _chosen(options: argparse.Namespace) -> Iterable[tuple[str, str]]:
    if options.short:
        options.seeds = options.seeds or 1
        options.seconds = options.seconds or SHORT_SECONDS
        return SHORT
    options.seconds = options.seconds or LONG_SECONDS
    return [(subject, fault) for fault in FAULTS for subject in (*OURS, *PEERS)]


def _go_on(results: dict[Case, list[Result]], options: argparse.Namespace, out: Path) -> None:
    """Add seeds, the same number for each fault, until every engine has enough operations."""
    for subject in OURS:
        cases = [case for case in results if case.subject == subject]
        seed = options.seed + max((len(results[case]) for case in cases), default=0)
        while cases and _operations(results, subject) < options.operations:
            for case in cases:
                results[case].append(_result(case, seed, options, out))
            seed += 1


def _operations(results: dict[Case, list[Result]], subject: str) -> int:
    return sum(
        each.operations
        for case, found in results.items()
        if case.subject == subject
        for each in found
    )


def _result(case: Case, seed: int, options: argparse.Namespace, out: Path) -> Result:
    """Run one case, or take the result of an earlier run of the same length."""
    slug = f"{case.subject}-{case.fault}-{seed}-{options.seconds:g}s".replace(" ", "_")
    kept, history = out / "results" / f"{slug}.json", out / "histories" / f"{slug}.jsonl.gz"
    is_kept = kept.exists() and (options.resume or options.recheck)
    if is_kept and not options.recheck:
        return Result.load(kept)
    began = time.monotonic()
    if not is_kept:
        run(Plan(case.subject, case.fault, seed, options.seconds), history)
    read = read_history(lines_of(history))
    found = check(read)
    result = result_of(found)
    if _is_missing(case, result):
        result = _never_fired(result)
    result.save(kept)
    _say(
        f"{case.subject}, {case.fault}, seed {seed}: {result.operations:,} operations in "
        f"{time.monotonic() - began:.0f} s" + (", BROKEN" if case.fails(result) else "")
    )
    if case.fails(result):
        _show(read, found, result, options)
    return result


def _is_missing(case: Case, result: Result) -> bool:
    """Tell whether the fault has not struck, or clocks did not follow their offsets."""
    if FAULTS[case.fault].has_offsets and result.host_clocks_s < LEAST_CLOCKS_S:
        return True
    return not result.firings and case.fault != "none"


def _never_fired(result: Result) -> Result:
    from dataclasses import replace

    return replace(result, broken=(*result.broken, NEVER_FIRED))


def _show(history: History, found: Findings, result: Result, options: argparse.Namespace) -> None:
    """Print what is broken, the shortest part of the history that shows it, and how to replay."""
    for line in result.broken:
        _say(f"  {line}")
    for line in shortest(history, found)[:SHOWN]:
        _say(f"    {line}")
    command = [
        *("python", "-m", "proof", "--subjects", result.subject, "--faults", result.fault),
        *("--seed", str(result.seed), "--seeds", "1", "--seconds", f"{options.seconds:g}"),
        *("--out", "build/proof/replay"),
    ]
    _say(f"  replay: {shlex.join(command)}")


def shortest(history: History, found: Findings) -> list[str]:
    """Return the operations of the worst window of the worst series, in the order of begins."""
    worst = found.excess
    if worst.billionths <= 0:
        return []
    lines = []
    for each in history.operations:
        amount = each.amounts.get(worst.series)
        end = history.finish_ns if each.after is None else each.after
        if amount and each.before <= worst.end and end >= worst.begin:
            times = f"{(each.before - worst.begin) / 1e6:+.0f}..{(end - worst.begin) / 1e6:+.0f} ms"
            lines.append(f"{times} {each.process} {each.name} {amount:+} {each.outcome}")
    return lines


def _report(results: Mapping[Case, list[Result]], out: Path) -> int:
    """Say which runs fail; 1 if any does."""
    _say(f"Histories and results are in {out}")
    failed = [each for case, found in results.items() for each in found if case.fails(each)]
    for each in failed:
        _say(f"BROKEN: {each.subject}, {each.fault}, seed {each.seed}: {'; '.join(each.broken)}")
    return 1 if failed else 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())

"""The command line: ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import aws, dynamodb_server, redis_server
from benchmarks.cases import cases_of
from benchmarks.contestants import all_contestants
from benchmarks.docs import write_docs
from benchmarks.functions import cold_imports, function_verdicts, print_functions, throughput
from benchmarks.growth import grown, growth_verdicts, print_growth
from benchmarks.report import print_report, write_json
from benchmarks.requirements import verdicts
from benchmarks.runner import Plan, Results, run

WIDTH = 130  # where there is no terminal to ask


def main() -> int:
    options = _parser().parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    if options.aws is not None:
        stack = aws.Stack.found(options.aws, options.region)
        return aws.main(stack, calls=options.calls, is_confirmed=options.yes, console=console)
    plan = _plan(options, served=_has_server(console))
    grows, functions = (_matches(options.only, name) for name in ("growth", "functions"))
    if not plan.steps and not grows and not functions:
        print(f"nothing matches {options.only!r}")
        return 2
    results = _run_shown(plan, console)
    found = verdicts(results)
    if grows:
        growth = grown(options.entities, console.print)
        print_growth(console, growth)
        found += growth_verdicts(growth)
    if functions:
        imports, records = cold_imports(console.print), throughput(console.print)
        print_functions(console, imports, records)
        found += function_verdicts(imports, records)
    print_report(console, results, found)
    write_json(options.json, results, found)
    console.print(f"\nall samples: {options.json}", style="dim")
    if options.write_docs:
        write_docs(results, found)
    failed = any(verdict.holds is False for verdict in found)
    return 1 if options.check and failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=7, help="how often everything is measured (7)")
    add("--seconds", type=float, default=0.25, help="length of one sample (0.25)")
    add(
        "--only",
        metavar="PATTERN",
        default="",
        help="regular expression on the lines and headings of the tables, "
        "'writers', 'arrivals', 'crowds', 'growth', 'functions' and 'import'",
    )
    add(
        "--entities",
        type=int,
        default=1_000_000,
        help="how many entities 'growth' goes up to (1,000,000)",
    )
    add("--json", metavar="PATH", type=Path, default=Path(".bench/latest.json"))
    add(
        "--write-docs",
        action="store_true",
        help="put the tables into benchmarks/results.md",
    )
    group = parser.add_argument_group("on AWS, instead of everything else")
    group.add_argument(
        "--aws", metavar="STACK", help="measure latency and capacity of a deployed stack"
    )
    group.add_argument("--region", help="of the stack; else as AWS libraries find it")
    group.add_argument(
        "--calls", type=_positive, default=200, help="how often each operation is called (200)"
    )
    group.add_argument("--yes", action="store_true", help="go on without asking about the cost")
    add("--check", action="store_true", help="exit 1 if something that must hold does not")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _has_server(console: Console) -> bool:
    """Return whether DynamoDB can be measured; print the missing parts, also of the peers."""
    if not redis_server.is_installed():
        console.print(redis_server.MISSING, style="yellow")
    if missing := dynamodb_server.what_is_missing():
        console.print(f"DynamoDB is left out: {missing}", style="yellow")
    return not missing


def _matches(pattern: str, name: str) -> bool:
    return re.search(pattern, name, re.IGNORECASE) is not None


def _plan(options: argparse.Namespace, *, served: bool) -> Plan:
    def wanted(name: str) -> bool:
        return _matches(options.only, name)

    contestants = [each for each in all_contestants() if served or not each.remote]
    return Plan(
        cases=[each for each in cases_of(contestants) if wanted(each.id) or wanted(each.group)],
        writers=[each for each in contestants if each.writers and wanted(f"{each.name}, writers")],
        imports=wanted("import"),
        arrivals=served and wanted("server, arrivals"),
        crowds=served and wanted("server, crowds"),
        rounds=options.rounds,
        seconds=options.seconds,
        writer_seconds=12 * options.seconds,
    )


def _run_shown(plan: Plan, console: Console) -> Results:
    """A bar on a terminal; elsewhere a line whenever a tenth is done."""
    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=plan.steps)
        done = 0

        def show(what: str) -> None:
            nonlocal done
            progress.update(task, description=what, completed=done)
            if not console.is_terminal and done * 10 % plan.steps < 10:
                console.print(f"{done * 100 // plan.steps:3} %  {what}")
            done += 1

        return run(plan, show)


if __name__ == "__main__":
    raise SystemExit(main())

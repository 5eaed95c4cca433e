"""Find coroutines that wait while they hold a plain lock.

    python tools/lint_locks.py [FOLDER ...]

A `threading.Lock` held across an await blocks the event loop as soon as another task wants it: the
holder can only go on when the loop does. So `with <lock>` in a coroutine may not contain `await`,
`async for`, `async with` or `yield` (at a yield the caller goes on, with the lock still held).
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = ROOT / "src/zae_limiter/_async"

# A clock and a block are not locks.
LOCK = re.compile(r"(?<![bc])lock", re.IGNORECASE)

WAITS: dict[type[ast.AST], str] = {
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.Await: "await",
    ast.Yield: "yield",
}
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Violation(NamedTuple):
    """A wait at `line` while `lock` is held."""

    line: int
    wait: str
    lock: str


def lock_name(expression: ast.expr) -> str | None:
    """A context manager named like a lock: `lock`, `self._locks[key]`, `lock_for(key)`."""
    named = expression
    while isinstance(named, ast.Call | ast.Subscript):
        named = named.func if isinstance(named, ast.Call) else named.value
    name = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
    return ast.unparse(expression) if LOCK.search(name) else None


def same_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes and all below them that run where they stand, not in a function defined there."""
    for node in nodes:
        yield node
        if not isinstance(node, SCOPES):
            yield from same_scope(ast.iter_child_nodes(node))


def held(coroutine: ast.AsyncFunctionDef) -> Iterator[tuple[str, list[ast.AST]]]:
    """Yield each lock with the code that runs while it is held: later items of `with`, its body."""
    for statement in same_scope(coroutine.body):
        if isinstance(statement, ast.With):
            for index, item in enumerate(statement.items):
                if name := lock_name(item.context_expr):
                    yield name, [*statement.items[index + 1 :], *statement.body]


def wait_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.comprehension) and node.is_async:
        return "async for"
    return WAITS.get(type(node))


def line_of(node: ast.AST) -> int:
    # A comprehension has no position of its own.
    return int(getattr(node.target if isinstance(node, ast.comprehension) else node, "lineno", 0))


def violations(tree: ast.AST) -> Iterator[Violation]:
    coroutines = (node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef))
    for name, nodes in (pair for coroutine in coroutines for pair in held(coroutine)):
        for node in same_scope(nodes):
            if wait := wait_of(node):
                yield Violation(line_of(node), wait, name)


def report(file: Path) -> list[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    return [
        f"{shown}:{line}: {wait} while holding {name}"
        for line, wait, name in sorted(violations(tree))
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Find waits under a plain lock in coroutines.")
    parser.add_argument("folders", nargs="*", type=Path, default=[DEFAULT])
    folders: list[Path] = parser.parse_args(arguments).folders
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    if not files:
        # A moved folder must not make the lint pass for ever.
        print("lint_locks: no Python files found", file=sys.stderr)
        return 1
    lines = [line for file in files for line in report(file)]
    for line in lines:
        print(line)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())

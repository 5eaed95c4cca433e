"""The source text that a function package carries: without what nothing reads at run time.

Docstrings, annotations of functions and variables, blocks for type checkers, and names that only
annotations use (``unused_names``) are taken out. A function compiles its modules at each cold
start, and these are a quarter of the work; without them nothing imports ``typing``. Every other
character stays on its line, so a traceback names the lines of the installed package.

The text is edited where the syntax tree says, not written from the tree: `ast.unparse` writes other
text in each version of Python, and a package must not depend on the one that builds it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from zae_limiter.infra.unused_names import unused_names

_TYPE_CHECKING = "TYPE_CHECKING"
Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class _Cut(NamedTuple):
    """A part of the text to be replaced; columns count bytes, as those of the tree do."""

    line: int
    column: int
    end_line: int
    end_column: int
    replacement: bytes = b""


def runtime_source(source: bytes) -> bytes:
    """Return the text without what only readers and type checkers need."""
    lines = source.splitlines(keepends=True)
    text = _without(lines, _cuts(ast.parse(source), lines))
    unused = (_span([each.statement], each.rest.encode()) for each in unused_names(ast.parse(text)))
    return _without(text.splitlines(keepends=True), unused)


def _without(lines: list[bytes], cuts: Iterable[_Cut]) -> bytes:
    for cut in sorted(cuts, reverse=True):
        first, last = lines[cut.line - 1], lines[cut.end_line - 1]
        rest = last[cut.end_column :]
        if cut.line == cut.end_line:
            lines[cut.line - 1] = first[: cut.column] + cut.replacement + rest
            continue
        lines[cut.line - 1] = first[: cut.column] + cut.replacement + b"\n"
        lines[cut.line : cut.end_line - 1] = [b"\n"] * (cut.end_line - cut.line - 1)
        lines[cut.end_line - 1] = rest
    return b"".join(lines)


def _cuts(node: ast.AST, lines: list[bytes], *, of_class: bool = False) -> Iterator[_Cut]:
    """Find what is to be cut out of a node; ``of_class`` says that it is in the body of a class."""
    if isinstance(node, ast.Name) and node.id == _TYPE_CHECKING:
        yield _span([node], b"False")
    if isinstance(node, ast.If) and _is_for_type_checkers(node.test):
        yield _span([node.test], b"False")
        yield _span(node.body, b"pass")
        for other in node.orelse:
            yield from _cuts(other, lines, of_class=of_class)
        return
    if isinstance(node, Scope):
        yield from _docstring(node)
    if isinstance(node, ast.ClassDef):
        yield from map(_base, _subscripted(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        yield _return_annotation(node.returns, lines)
    elif isinstance(node, ast.arg) and node.annotation is not None:
        yield _after(node.lineno, node.col_offset + len(node.arg.encode()), node.annotation)
    elif isinstance(node, ast.AnnAssign) and of_class:
        yield _span([node.annotation], b"0")  # it may be a field, of which the name counts
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target = _span([node.target])
        yield _after(target.end_line, target.end_column, node.annotation)
    elif isinstance(node, ast.ImportFrom) and node.module == "__future__":
        yield _span([node])  # of which annotations are the only part in use
    inside = isinstance(node, ast.ClassDef) or (of_class and not isinstance(node, Scope))
    for child in ast.iter_child_nodes(node):
        yield from _cuts(child, lines, of_class=inside)


def _docstring(scope: Scope) -> Iterator[_Cut]:
    if ast.get_docstring(scope, clean=False) is not None:
        is_alone = len(scope.body) == 1 and not isinstance(scope, ast.Module)
        yield _span(scope.body[:1], b"pass" if is_alone else b"")


def _subscripted(node: ast.ClassDef) -> Iterator[ast.Subscript]:
    return (base for base in node.bases if isinstance(base, ast.Subscript))


def _base(base: ast.Subscript) -> _Cut:
    """Cut what a base class is specialized by; ``Generic`` itself is for type checkers alone."""
    if isinstance(base.value, ast.Name) and base.value.id == "Generic":
        return _span([base], b"object")
    end = _span([base.value])
    return _after(end.end_line, end.end_column, base)


def _return_annotation(returns: ast.expr, lines: list[bytes]) -> _Cut:
    """Cut from the arrow to the colon: there may be parentheses around the annotation."""
    cut = _span([returns])
    line, column = cut.line, lines[cut.line - 1].rfind(b"->", 0, cut.column)
    while column < 0:
        line -= 1
        column = lines[line - 1].rfind(b"->")
    end_line, end_column = cut.end_line, lines[cut.end_line - 1].find(b":", cut.end_column)
    while end_column < 0:
        end_line += 1
        end_column = lines[end_line - 1].find(b":")
    if line == end_line:
        return _Cut(line, column, end_line, end_column)
    return _Cut(line, column, end_line, end_column + 1, b":")  # which must not be moved down


def _after(line: int, column: int, annotation: ast.expr) -> _Cut:
    """Cut from the end of a name to the end of its annotation."""
    end = _span([annotation])
    return _Cut(line, column, end.end_line, end.end_column)


def _span(nodes: Sequence[ast.stmt] | Sequence[ast.expr], replacement: bytes = b"") -> _Cut:
    """Cut from the first of some nodes to the last; a decorator is before its node."""
    first, last = nodes[0], nodes[-1]
    decorators: list[ast.expr] = getattr(first, "decorator_list", [])
    line = min([first.lineno, *(decorator.lineno for decorator in decorators)])
    end = last.end_lineno or line, last.end_col_offset or 0  # always known of parsed text
    return _Cut(line, first.col_offset, *end, replacement)


def _is_for_type_checkers(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == _TYPE_CHECKING

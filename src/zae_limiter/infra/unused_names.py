"""What a module of a function package binds for its annotations alone, which are taken out.

Such names are imported, made by ``TypeVar``, or stand for a type, like ``Item = dict[str, Value]``.
What ``__all__`` lists is imported elsewhere and stays; the list itself is not needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_PUBLIC = "__all__"


class Unused(NamedTuple):
    """A statement of a module, and what is left of it; empty if nothing is."""

    statement: ast.stmt
    rest: str


def unused_names(module: ast.Module) -> Iterator[Unused]:
    """Find the statements that bind names which nothing uses."""
    bound = {statement: names for statement in module.body if (names := _bound(statement))}
    candidates = {name for names in bound.values() for name in names} - _public(module)
    dropped: set[str] = set()
    while True:  # a type that is dropped may have been the only use of another
        kept = (each for each in module.body if not bound.get(each, {""}) <= dropped)
        unused = candidates - set(_used(kept))
        if unused == dropped:
            break
        dropped = unused
    for statement, names in bound.items():
        if names & dropped:
            yield Unused(statement, _without(statement, dropped))


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, if it does nothing else."""
    if isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
        # `X as X` says that others import it from here.
        exported = any(alias.asname == alias.name for alias in statement.names)
        return set() if exported else {each.asname or each.name for each in statement.names}
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name) and (target.id == _PUBLIC or _is_typing(statement.value)):
            return {target.id}
    return set()


def _is_typing(value: ast.expr) -> bool:
    """Whether it is a type variable, a subscript of a type, or types joined by ``|``."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "TypeVar"
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.BitOr) and all(map(_is_type, (value.left, value.right)))
    return isinstance(value, ast.Subscript) and _is_type(value)


def _is_type(value: ast.expr) -> bool:
    allowed = (
        *(ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Constant),
        *(ast.BinOp, ast.BitOr, ast.Load),
    )
    return all(isinstance(node, allowed) for node in ast.walk(value))


def _used(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Return all names that are read; annotations of fields are texts, and read nothing."""
    waiting: list[ast.AST] = [*statements]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        if isinstance(node, ast.AnnAssign):
            waiting += [node.target, *([node.value] if node.value else [])]
            continue
        waiting += ast.iter_child_nodes(node)


def _public(module: ast.Module) -> set[str]:
    """Return what ``__all__`` lists."""
    listed: set[str] = set()
    for statement in module.body:
        if isinstance(statement, ast.Assign) and _bound(statement) == {_PUBLIC}:
            listed.update(ast.literal_eval(statement.value))
    return listed


def _without(statement: ast.stmt, dropped: set[str]) -> str:
    if not isinstance(statement, ast.ImportFrom):
        return ""
    kept = [each for each in statement.names if (each.asname or each.name) not in dropped]
    if not kept:
        return ""
    names = ", ".join(
        f"{each.name} as {each.asname}" if each.asname else each.name for each in kept
    )
    return f"from {'.' * statement.level}{statement.module or ''} import {names}"

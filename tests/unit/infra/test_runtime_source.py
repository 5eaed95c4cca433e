"""The source of a function package: what is taken out, and that nothing else changes."""

import ast
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

import zae_limiter
from zae_limiter.infra.runtime_source import runtime_source

SOURCES = sorted(Path(zae_limiter.__file__).parents[1].rglob("*.py"))


class Stripped(ast.NodeTransformer):
    """Does to a syntax tree what ``runtime_source`` does to a text."""

    def __init__(self):
        self.in_class = False

    def visit_If(self, node):
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            orelse = [self.visit(each) for each in node.orelse]
            return ast.If(ast.Constant(False), [ast.Pass()], orelse)
        return self.generic_visit(node)

    def visit_ImportFrom(self, node):
        return None if node.module == "__future__" else node

    def visit_Name(self, node):
        return ast.Constant(False) if node.id == "TYPE_CHECKING" else node

    def visit_Module(self, node):
        return self.without_docstring(node, in_class=False)

    def visit_ClassDef(self, node):
        for number, base in enumerate(node.bases):
            if isinstance(base, ast.Subscript):
                is_generic = ast.unparse(base.value) == "Generic"
                node.bases[number] = ast.Name("object", ast.Load()) if is_generic else base.value
        return self.without_docstring(node, in_class=True)

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.without_docstring(node, in_class=False)

    def visit_AsyncFunctionDef(self, node):
        return self.visit_FunctionDef(node)

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_AnnAssign(self, node):
        if self.in_class:
            node.annotation = ast.Constant(0)
        if node.value is None or self.in_class:
            return self.generic_visit(node)
        return ast.copy_location(ast.Assign([node.target], self.visit(node.value)), node)

    def without_docstring(self, node, *, in_class):
        before, self.in_class = self.in_class, in_class
        if ast.get_docstring(node) is not None:
            rest = node.body[1:]
            node.body = rest or ([] if isinstance(node, ast.Module) else [ast.Pass()])
        node = self.generic_visit(node)
        self.in_class = before
        return node


# An import, the list of public names, or a value without a call.
ONLY_TYPES = r"from .*|__all__ = .*|\w+ = TypeVar\(.*|\w+ = [^(]*"


class Parts(NamedTuple):
    """The statements of a module: what names bind that may be dropped, and all others."""

    binding: dict[str, str]
    others: list[str]


def parts(module):
    binding, others = {}, []
    for each in module.body:
        if isinstance(each, ast.ImportFrom):
            for alias in each.names:
                text = ast.unparse(ast.ImportFrom(each.module, [alias], each.level))
                binding[alias.asname or alias.name] = text
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            binding[each.targets[0].id] = ast.unparse(each)
        else:
            others.append(ast.dump(each))
    return Parts(binding, others)


def names_read(module):
    """Return all names in a tree but those in annotations of fields, which are texts."""
    for node in ast.walk(module):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}


def names_public(module):
    text = parts(module).binding.get("__all__", "__all__ = []")
    return set(ast.literal_eval(text.partition(" = ")[2]))


@pytest.mark.parametrize(
    "folder",
    [
        # The generated tree has the statements of the other one.
        pytest.param(path, id=path.name, marks=pytest.mark.slow if "_sync" in path.parts else ())
        for path in sorted({path.parent for path in SOURCES})
    ],
)
def test_nothing_but_what_readers_and_type_checkers_need_is_taken_out(folder):
    for path in folder.glob("*.py"):
        source = path.read_bytes()
        stripped = runtime_source(source)
        wanted, found = Stripped().visit(ast.parse(source)), ast.parse(stripped)
        assert parts(found).others == parts(wanted).others, path
        assert parts(found).binding.items() <= parts(wanted).binding.items(), path
        dropped = parts(wanted).binding.keys() - parts(found).binding.keys()
        assert not dropped & names_read(found), path
        assert not dropped & names_public(wanted), path
        for name in dropped:
            assert re.fullmatch(ONLY_TYPES, parts(wanted).binding[name]), (path, name)
        assert stripped.count(b"\n") == source.count(b"\n"), path


def test_statements_stay_on_their_lines():
    source = textwrap.dedent(
        '''
        """A module."""

        from __future__ import annotations
        from typing import TYPE_CHECKING, NamedTuple, TypeVar, \\
            Any
        from collections.abc import Iterable, Mapping as Documents
        from rows import (  # why
            Sorted,
            Unsorted,
            sort,
        )
        from rows import Kept as Kept

        __all__ = ["Sorted"]

        T = TypeVar("T")
        Value = dict[str, Any]
        Item = Documents[str, Value] | None
        Index = dict[str, int]

        if TYPE_CHECKING:
            @decorated
            class Calls(Protocol):
                """Called."""

                def call(self) -> None: ...


        class Row(NamedTuple):
            """A row."""

            name: str
            size: int = 0


        def longest(
            rows: Iterable[
                Row
            ], *others: Row, **named: Row
        ) -> (
            Row | None
        ):
            """Return
            the longest."""
            found: Row | None = None; empty: int
            for each in rows:
                found = each if not TYPE_CHECKING else Index()
            return found


        class Ordered(dict[str, T], Generic[T]): kind = sort


        class Empty(Exception):
            """Nothing else."""
        '''
    )
    expected = textwrap.dedent(
        """



        from typing import NamedTuple


        from rows import Sorted, sort




        from rows import Kept as Kept






        Index = dict[str, int]

        if False:
            pass






        class Row(NamedTuple):


            name: 0
            size: 0 = 0


        def longest(
            rows

            , *others, **named
        ) :




            found = None; empty: int
            for each in rows:
                found = each if not False else Index()
            return found


        class Ordered(dict, object): kind = sort


        class Empty(Exception):
            pass
        """
    )
    lines = runtime_source(source.encode()).decode().split("\n")
    assert [line.split() for line in lines] == [line.split() for line in expected.split("\n")]

"""The source of a function package: what is taken out, and that nothing else changes."""

import ast
import textwrap
from pathlib import Path

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
            return ast.If(node.test, [ast.Pass()], orelse)
        return self.generic_visit(node)

    def visit_Module(self, node):
        return self.without_docstring(node, in_class=False)

    def visit_ClassDef(self, node):
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
        if node.value is None or self.in_class:
            return self.generic_visit(node)
        return ast.Assign([node.target], self.visit(node.value))

    def without_docstring(self, node, *, in_class):
        before, self.in_class = self.in_class, in_class
        if ast.get_docstring(node) is not None:
            rest = node.body[1:]
            node.body = rest or ([] if isinstance(node, ast.Module) else [ast.Pass()])
        node = self.generic_visit(node)
        self.in_class = before
        return node


@pytest.mark.parametrize(
    "folder",
    [
        # The generated tree has the statements of the other one.
        pytest.param(path, id=path.name, marks=pytest.mark.slow if "_sync" in path.parts else ())
        for path in sorted({path.parent for path in SOURCES})
    ],
)
def test_nothing_but_docstrings_annotations_and_type_checking_is_taken_out(folder):
    for path in folder.glob("*.py"):
        source = path.read_bytes()
        stripped = runtime_source(source)
        wanted = Stripped().visit(ast.parse(source))
        assert ast.dump(ast.parse(stripped)) == ast.dump(wanted), path
        assert stripped.count(b"\n") == source.count(b"\n"), path


def test_statements_stay_on_their_lines():
    source = textwrap.dedent(
        '''
        """A module."""

        from __future__ import annotations

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
                found = each
            return found


        class Empty(Exception):
            """Nothing else."""
        '''
    )
    expected = textwrap.dedent(
        """


        from __future__ import annotations

        if TYPE_CHECKING:
            pass






        class Row(NamedTuple):


            name: str
            size: int = 0


        def longest(
            rows

            , *others, **named
        )

        :


            found = None; empty: int
            for each in rows:
                found = each
            return found


        class Empty(Exception):
            pass
        """
    )
    lines = runtime_source(source.encode()).decode().split("\n")
    assert [line.split() for line in lines] == [line.split() for line in expected.split("\n")]

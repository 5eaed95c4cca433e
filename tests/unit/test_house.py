"""Rules of the hand-written source that can be counted."""

import ast
import io
import re
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "zae_limiter"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

MOST_POSITIONAL = 6
# Its signature is documented and kept, whatever the rule says.
LONG_SIGNATURES = {"get_usage_snapshots"}

# An item, a write or a timer is a thing; these words would make a person of it.
PEOPLE = re.compile(r"\b(who|whoever|whom|somebody|nobody)\b", re.IGNORECASE)
MOST_TEXTS_WITH_PEOPLE = 4  # some texts do speak of people: callers, operators


@cache
def modules():
    return {
        str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
        if "_sync" not in path.parts  # generated from _async
    }


@cache
def trees():
    return {name: ast.parse(text) for name, text in modules().items()}


def test_no_class_name_exists_twice():
    homes = {}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_no_function_has_more_positional_parameters_than_a_reader_can_keep_apart():
    long = [
        f"{module}:{node.lineno} {node.name}"
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
        and _positional(node) > MOST_POSITIONAL
        and node.name not in LONG_SIGNATURES
        and not _is_command(node)
    ]
    assert long == []


def test_texts_speak_of_things_not_of_people():
    texts = [
        f"{module}: {text}"
        for module, source in modules().items()
        if PEOPLE.search(source)  # few: to take all of them apart takes seconds
        for text in (*_docstrings(trees()[module]), *_comments(source))
        if PEOPLE.search(text)
    ]
    assert len(texts) <= MOST_TEXTS_WITH_PEOPLE, "\n".join(texts)


def test_fewer_than_45_modules_are_shorter_than_60_lines():
    lengths = Counter(len(text.splitlines()) < 60 for text in modules().values())
    assert lengths[True] < 45


def _positional(function):
    """How many arguments may be given by position; the object itself is none."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    return len([each for each in arguments if each.arg not in ("self", "cls")])


def _is_command(function):
    """Whether click calls it, which passes everything by keyword."""
    decorators = map(ast.unparse, function.decorator_list)
    return any("command" in each or "option" in each for each in decorators)


def _docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)):
            text = ast.get_docstring(node)
            if text:
                yield text


def _comments(source):
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string

"""Load YAML with the place of each key, through PyYAML's safe loader.

Keys stay text as written, so that an entity ``0123`` or ``2024-01-01`` keeps its name. Values stay
text as well, except plain whole numbers, booleans and null: YAML 1.1 would read ``10:20``, which is
a rate of 10 with a burst of 20, as a number to the base of 60.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from zae_limiter.bounded_json import MAX_DEPTH
from zae_limiter.bounded_yaml import TAG, TRUE, MalformedYaml, YamlNode, place_of, read_nodes
from zae_limiter_ops.manifest.problems import Path, Problem

MAX_CHARACTERS = 32_000_000  # of one text: 200,000 entities with limits of their own
# A value takes a character or more, but an alias repeats all values of its anchor. These numbers
# allow aliases of large mappings, and stop a document that explodes through aliases of aliases.
FREE_VALUES = 50_000
VALUES_PER_CHARACTER = 20
MAX_DIGITS = 30  # more than a limit may have, and few enough for int()
KINDS = frozenset({"bool", "float", "int", "map", "null", "seq", "str", "timestamp", "value"})
MERGE = f"{TAG}merge"  # the tag of an unquoted <<; a quoted '<<' is an ordinary name
# JSON may write a character as a pair of escapes, which YAML does not allow. The pattern also
# matches other escapes, so that an escaped backslash is never read as the start of a pair.
_ESCAPES = re.compile(
    r"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


class Places:
    """The line and column of each key of a document, by the key's path; both count from 1."""

    def __init__(self) -> None:
        self._places: dict[Path, tuple[int, int]] = {}

    def put(self, path: Path, node: YamlNode) -> None:
        self._places[path] = place_of(node)

    def of(self, path: Path) -> tuple[int, int]:
        """Return the line and column of a key, or of the nearest key around it."""
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path, (1, 1))


class LoadedYaml(NamedTuple):
    """The document of a text, the places of its keys, and the mistakes in its YAML."""

    document: Any
    places: Places
    problems: list[Problem]


def load(text: str, source: str) -> LoadedYaml:
    """Load a text; the document is None if the text is empty or malformed."""
    places = Places()
    if len(text) > MAX_CHARACTERS:
        reason = f"has more than {MAX_CHARACTERS:,} characters; divide it into several files"
        return LoadedYaml(None, places, [Problem(source, (), 0, 0, reason)])
    try:
        node = _nodes(text)
        if node is None:
            return LoadedYaml(None, places, [])
        max_values = FREE_VALUES + VALUES_PER_CHARACTER * len(text)
        builder = _Builder(source, places, max_values)
        return LoadedYaml(builder.value(node, ()), places, builder.problems)
    except MalformedYaml as error:
        reason = error.reason if error.is_too_deep else f"is not YAML: {error.reason}"
        return LoadedYaml(None, places, [Problem(source, (), error.line, error.column, reason)])


def _nodes(text: str) -> YamlNode | None:
    """Return the root node of a text; None if the text is empty."""
    try:
        return read_nodes(text)
    except MalformedYaml:
        joined = _ESCAPES.sub(_character, text)
        if joined == text:
            raise
        return read_nodes(joined)


def _character(escape: re.Match[str]) -> str:
    """Return the character of a pair of escapes; return any other escape unchanged."""
    return str(json.loads(f'"{escape[0]}"')) if escape["pair"] else escape[0]


class _Builder:
    """Turns nodes into plain values, records their places, and reports repeated keys."""

    def __init__(self, source: str, places: Places, max_values: int) -> None:
        self.problems: list[Problem] = []
        self._source = source
        self._places = places
        self._remaining_values = max_values
        self._depth = 0  # of the current value: an alias may contain itself

    def value(self, node: YamlNode, path: Path) -> Any:
        self._remaining_values -= 1
        if self._remaining_values < 0:
            raise MalformedYaml("its aliases repeat too many values; write them out")
        if node.tag.removeprefix(TAG) not in KINDS:
            self._report(path, node, f"has the tag {node.tag}; leave it out")
        if node.id == "scalar":
            return _scalar(node)
        if self._depth == MAX_DEPTH:
            raise MalformedYaml.too_deep(node.start_mark)
        self._depth += 1
        is_mapping = node.id == "mapping"
        value = self._mapping(node, path) if is_mapping else self._sequence(node, path)
        self._depth -= 1
        return value

    def _sequence(self, node: YamlNode, path: Path) -> list[Any]:
        return [self.value(inside, path) for inside in node.value]

    def _mapping(self, node: YamlNode, path: Path) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, inside in node.value:
            if key.id != "scalar":
                self._report(path, key, "must have plain text as keys")
                continue
            name, place = str(key.value), (*path, str(key.value))
            if key.tag == MERGE:
                merged = {**self._merged(inside, path), **merged}
            elif name in mapping:
                self._report(place, key, "comes twice; keep one")
            else:
                self._places.put(place, key)
                mapping[name] = self.value(inside, place)
        return {**merged, **mapping}

    def _merged(self, node: YamlNode, path: Path) -> dict[str, Any]:
        """Return the values of the mapping, or list of mappings, that follows ``<<``."""
        several = node.value if node.id == "sequence" else [node]
        merged: dict[str, Any] = {}
        for inside in reversed(several):
            if inside.id == "mapping":
                merged |= self.value(inside, path)
            else:
                self._report(path, inside, "has << without a mapping to merge")
        return merged

    def _report(self, path: Path, node: YamlNode, reason: str) -> None:
        self.problems.append(Problem(self._source, path, *place_of(node), reason))


def _scalar(node: YamlNode) -> Any:
    kind, text = node.tag.removeprefix(TAG), str(node.value)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in TRUE
    if kind == "int" and len(text) <= MAX_DIGITS and text == text.lstrip("0"):
        return int(text) if text.isdecimal() else text
    return text

"""The reader of YAML: nodes that know their lines, from text that nobody has checked.

PyYAML's loader in C calls itself for each level of nesting without a limit, so a deep text would
crash the process. Reading the events of a text needs no recursion, so its depth is checked first.
"""

from __future__ import annotations

from typing import Any, Protocol

import yaml

from zae_limiter.bounded_json import MAX_DEPTH, too_deep

TAG = "tag:yaml.org,2002:"
TRUE = frozenset({"true", "yes", "on"})  # a scalar with the tag "bool"
# The loader in C is ten times as fast. Wheels of PyYAML contain it; a build from source may not.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlNode(Protocol):
    """A node as PyYAML composes it. Its scalars still have their text."""

    id: str  # "mapping", "sequence" or "scalar"
    tag: str
    value: Any  # pairs of nodes, a list of nodes, or a text
    start_mark: Any


class MalformedYaml(ValueError):
    """A text is not YAML, or nested too deeply. Lines and columns count from 1; 0 is unknown."""

    def __init__(self, reason: str, mark: Any = None, *, is_too_deep: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line, self.column = (0, 0) if mark is None else _place(mark)
        self.is_too_deep = is_too_deep

    @classmethod
    def too_deep(cls, mark: Any) -> MalformedYaml:
        return cls(too_deep(), mark, is_too_deep=True)


def read_nodes(text: str, *, in_python: bool = False) -> YamlNode | None:
    """Return the root of a text, None if it is empty; raise MalformedYaml.

    With ``in_python`` the reasons of mistakes are more exact, at a tenth of the speed.
    """
    loader = yaml.SafeLoader if in_python else _Loader
    try:
        _check_depth(loader(text))
        return _root(loader(text))
    except MalformedYaml:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = getattr(error, "problem", None) or str(error) or type(error).__name__
        raise MalformedYaml(reason, getattr(error, "problem_mark", None)) from error


def place_of(node: YamlNode) -> tuple[int, int]:
    """Return the line and column of a node, which count from 1."""
    return _place(node.start_mark)


def is_tagged(node: YamlNode, kind: str) -> bool:
    """Return whether a node is a scalar of a kind of YAML, such as ``int`` or ``bool``."""
    return node.id == "scalar" and node.tag == f"{TAG}{kind}"


def _place(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _root(loader: Any) -> YamlNode | None:
    try:
        root: YamlNode | None = loader.get_single_node()
        return root
    finally:
        loader.dispose()


def _check_depth(loader: Any) -> None:
    depth = 0
    try:
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    raise MalformedYaml.too_deep(event.start_mark)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    finally:
        loader.dispose()

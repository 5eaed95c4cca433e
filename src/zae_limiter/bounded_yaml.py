"""A parser for untrusted YAML that checks its depth first.

The loader in C calls itself for each level of nesting without a limit, so a deep text would crash
the process. Reading the events of a text needs no recursion.
"""

from __future__ import annotations

from typing import Any

import yaml

from zae_limiter.bounded_json import MAX_DEPTH, too_deep

# The loader in C is ten times as fast. Wheels of PyYAML contain it; a build from source may not.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooDeep(yaml.MarkedYAMLError):
    """The text is YAML, but nested deeper than any document of this library."""


def compose_bounded(text: str) -> Any:
    """Return the root node of a text, None if it is empty; raise YAMLError if it is malformed."""
    _check_depth(text)
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    loader, depth = _Loader(text), 0
    try:
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    mark: Any = event.start_mark
                    raise TooDeep(problem=too_deep(), problem_mark=mark)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    finally:
        loader.dispose()

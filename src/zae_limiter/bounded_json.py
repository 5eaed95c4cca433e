"""JSON from outside, bounded in size and depth before it is parsed.

A parser calls itself for every level of nesting: a text of nothing but brackets would exhaust the
stack of the process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 32  # levels; nothing that this library reads has ten
# A string, closed or not, or a bracket: strings are matched so that brackets inside do not count.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def parse_bounded(text: str, *, longest: int, deepest: int = MAX_DEPTH) -> Any:
    """Parse JSON; ValueError says that it is too long, nested too deeply or malformed."""
    if len(text) > longest:
        raise ValueError(f"has more than {longest:,} characters")
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > deepest:
                raise ValueError(too_deep(deepest))
        elif token[0] in "]}":
            depth -= 1
    return json.loads(text)


def is_deeper(value: object, levels: int = MAX_DEPTH) -> bool:
    """Whether mappings and lists are nested in more than so many levels."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [inside for outer in layer for inside in _inside(outer)]
        if not layer:
            return False
    return True


def _inside(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def too_deep(levels: int = MAX_DEPTH) -> str:
    return f"is nested more than {levels} levels deep"

"""A parser for untrusted JSON that checks its size and depth first.

A parser calls itself for every level of nesting, so a text that consists of brackets alone would
exhaust the stack of the process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Parse = Callable[[str], Any]

MAX_DEPTH = 32  # levels; all documents of this library have fewer than ten
# A string (closed or not) or a bracket. Strings are matched so that brackets inside do not count.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def parse_bounded(
    text: str,
    *,
    longest: int,
    deepest: int = MAX_DEPTH,
    parse_float: Parse | None = None,
    is_strict: bool = False,
) -> Any:
    """Parse JSON; raise ValueError if it is too long, nested too deeply or malformed.

    ``parse_float`` gets the text of a number with a fraction or an exponent. With ``is_strict``,
    repeated names and the constants NaN and Infinity are malformed, too.
    """
    if len(text) > longest:
        raise ValueError(f"has more than {longest:,} characters")
    if text.count("[") + text.count("{") > deepest:  # else no depth is beyond the bound
        _check_depth(text, deepest)
    if not is_strict:
        return json.loads(text, parse_float=parse_float)
    decoder = _STRICT if parse_float is None else _strict_decoder(parse_float)
    return decoder.decode(text)


def _check_depth(text: str, deepest: int) -> None:
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > deepest:
                raise ValueError(too_deep(deepest))
        elif token[0] in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; raise if a name comes twice, since readers differ in their choice."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a name comes twice in an object")
    return mapping


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _strict_decoder(parse_float: Parse | None = None) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_float=parse_float, object_pairs_hook=_unique, parse_constant=_no_constant
    )


_STRICT = _strict_decoder()  # made once: requests are many and short


def is_deeper(value: object, levels: int = MAX_DEPTH) -> bool:
    """Tell whether mappings and lists are nested more than ``levels`` deep."""
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

"""The documented rules of DynamoDB that a request can be checked against without a table.

``violations`` names every rule that a request breaks. AWS answers such a request with a
ValidationException; servers for tests let many of them pass. An expression is analysed once, and a
request for one item is checked once for all values that can break no rule: most requests of a run
repeat earlier ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

Body = Mapping[str, Any]

MAX_EXPRESSION_BYTES = 4096
MAX_OPERATORS = 300
MAX_IN_OPERANDS = 100
MAX_PLACEHOLDER_BYTES = 255
MAX_SUBSTITUTIONS_BYTES = 2 * 1024 * 1024
MAX_PARTITION_KEY_BYTES = 2048
MAX_SORT_KEY_BYTES = 1024
MAX_ITEM_BYTES = 400 * 1024
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024
MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_BATCH_READS = 100
MAX_BATCH_WRITES = 25
MAX_ACTIONS = 100
MAX_TOKEN_LENGTH = 36
MAX_DIGITS = 38
MAX_NAME_BYTES = 65_535

# Words that an expression may name only by a placeholder, in any case.
RESERVED_WORDS = frozenset(
    Path(__file__).with_name("reserved_words.txt").read_text().upper().split()
)
PARTITION_KEYS = frozenset({"PK", "GSI1PK", "GSI2PK", "GSI3PK", "GSI4PK"})
SORT_KEYS = frozenset({"SK", "GSI1SK", "GSI2SK", "GSI3SK", "GSI4SK"})
KEY_NAMES = PARTITION_KEYS | SORT_KEYS
TABLE_KEY = ("PK", "SK")

EXPRESSIONS = (
    *("UpdateExpression", "ConditionExpression", "KeyConditionExpression"),
    *("FilterExpression", "ProjectionExpression"),
)
SINGLE_REQUESTS = frozenset({"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "Scan"})
RETURN_VALUES = {
    "PutItem": {"NONE", "ALL_OLD"},
    "DeleteItem": {"NONE", "ALL_OLD"},
    "UpdateItem": {"NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"},
}

_CLAUSES = frozenset({"SET", "ADD", "REMOVE", "DELETE"})
_WORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN"})
_FUNCTIONS = frozenset(
    {
        *("attribute_exists", "attribute_not_exists", "attribute_type", "begins_with"),
        *("contains", "size", "if_not_exists", "list_append"),
    }
)
_SIGNS = frozenset({"=", "<>", "<", "<=", ">", ">=", "+", "-"})
_TOKEN = re.compile(r"\s*([#:]?[A-Za-z0-9_]+|<>|<=|>=|[=<>(),+.\[\]-])")
_PLACEHOLDER = re.compile(r"[#:][A-Za-z0-9_]+")
# Values of an encoded request that break no rule, whatever they are, as long as the request itself
# is smaller than an item may be.
_PLAIN_TEXT = re.compile(rb'"S":"[^"\\]{1,200}"')
_PLAIN_NUMBER = re.compile(rb'"N":"-?\d{1,30}"')


class Analysis(NamedTuple):
    """The facts about one expression that do not depend on the names and values of a request."""

    bytes: int
    operators: int
    placeholders: frozenset[str]
    bare_names: tuple[str, ...]
    written: tuple[str, ...]  # the paths that an update changes, in order
    problems: tuple[str, ...]


@lru_cache(maxsize=20_000)
def analyse(expression: str, *, is_update: bool = False) -> Analysis:
    """Analyse an expression token by token.

    Operators are comparisons, functions, AND, OR, NOT, BETWEEN, IN, and in updates + and -; the =
    of a SET is none.
    """
    tokens = _tokens(expression)
    written = _written(tokens) if is_update else ()
    functions = [each for each in tokens if each in _FUNCTIONS]
    words = [each for each in tokens if each.upper() in _WORDS and each not in functions]
    between = sum(each.upper() == "BETWEEN" for each in words)
    signs = [each for each in tokens if each in _SIGNS]
    if is_update:
        signs = [each for each in signs if each in "+-"]
    known = _CLAUSES | _WORDS
    bare = [
        each
        for each in tokens
        if each[0].isalpha() and each not in _FUNCTIONS and each.upper() not in known
    ]
    return Analysis(
        bytes=len(expression.encode()),
        operators=len(functions) + len(words) - between + len(signs),  # a BETWEEN has an AND
        placeholders=frozenset(each for each in tokens if each[0] in "#:"),
        bare_names=tuple(dict.fromkeys(bare)),
        written=written,
        problems=tuple(_problems(expression, tokens, is_update=is_update)),
    )


def violations(operation: str, body: Body) -> list[str]:
    """Return the rules that a request breaks."""
    found: list[str] = []
    if operation in SINGLE_REQUESTS:
        found += _of_request(operation, body)
    elif operation in ("TransactWriteItems", "TransactGetItems"):
        found += _of_transaction(body)
    elif operation == "BatchGetItem":
        found += _of_batch_get(body)
    elif operation == "BatchWriteItem":
        found += _of_batch_write(body)
    return [f"{operation}: {each}" for each in found]


def violations_of_encoded(operation: str, body: bytes) -> list[str]:
    """Return the rules that an encoded request breaks; raise ValueError if it is no JSON."""
    if operation in SINGLE_REQUESTS and len(body) < MAX_ITEM_BYTES:
        body = _PLAIN_TEXT.sub(b'"S":"s"', body)
        return [*_violations_of_form(operation, _PLAIN_NUMBER.sub(b'"N":"1"', body))]
    return violations(operation, json.loads(body))  # of several items, which must not be the same


@lru_cache(maxsize=20_000)
def _violations_of_form(operation: str, body: bytes) -> tuple[str, ...]:
    return tuple(violations(operation, json.loads(body)))


# --- expressions


def _tokens(expression: str) -> list[str]:
    tokens, at, text = [], 0, expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return [*tokens, text[at]]
        tokens.append(match[1])
        at = match.end()
    return tokens


def _problems(expression: str, tokens: list[str], *, is_update: bool) -> Iterator[str]:
    if not tokens:
        yield "an expression is empty"
    for token in tokens:
        if _TOKEN.fullmatch(token) is None:
            yield f"{token!r} is no part of an expression: {expression}"
    if is_update:
        clauses = [each for each in tokens if each.upper() in _CLAUSES]
        if len(clauses) > len(set(clauses)):
            yield f"a clause occurs twice: {expression}"
    elif re.search(r"\(\s*\((?:[^()]|\([^()]*\))*\)\s*\)", expression):
        yield f"there are redundant parentheses: {expression}"
    for operands in re.findall(r"\bIN\s*\(([^)]*)\)", expression, re.IGNORECASE):
        if operands.count(",") >= MAX_IN_OPERANDS:
            yield f"IN has more than {MAX_IN_OPERANDS} operands"


def _written(tokens: list[str]) -> tuple[str, ...]:
    """Return the paths that an update writes: the first after each clause and outer comma."""
    paths: list[str] = []
    depth, at_start = 0, False
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if token.upper() in _CLAUSES or (token == "," and not depth):
            at_start = True
            paths.append("")
        elif at_start and (token[0] in "#.[]_" or token.isalnum()):
            paths[-1] += token
        else:
            at_start = False
    return tuple(paths)


def _of_expressions(body: Body) -> Iterator[str]:
    """Check the expressions of a request, and the names and values that it gives for them."""
    names = body.get("ExpressionAttributeNames")
    values = body.get("ExpressionAttributeValues")
    used: frozenset[str] = frozenset()
    for part in EXPRESSIONS:
        if part not in body:
            continue
        analysis = analyse(body[part], is_update=part == "UpdateExpression")
        yield from (f"{part}: {each}" for each in analysis.problems)
        used |= analysis.placeholders
        if analysis.bytes > MAX_EXPRESSION_BYTES:
            yield f"{part} has {analysis.bytes} bytes, more than {MAX_EXPRESSION_BYTES}"
        if analysis.operators > MAX_OPERATORS:
            yield f"{part} has {analysis.operators} operators, more than {MAX_OPERATORS}"
        for name in analysis.bare_names:
            if name.upper() in RESERVED_WORDS:
                yield f"{part} names {name} without a placeholder, a reserved word"
        yield from _of_paths(analysis.written, names or {})
    yield from _of_placeholders(names, values, used)


def _of_placeholders(
    names: Mapping[str, str] | None, values: Mapping[str, Any] | None, used: frozenset[str]
) -> Iterator[str]:
    given = [*(names or {}), *(values or {})]
    if names == {} or values == {}:
        yield "names or values are given, but there are none"
    if unused := set(given) - used:
        yield f"{sorted(unused)} are defined and not used"
    if missing := used - set(given):
        yield f"{sorted(missing)} are used and not defined"
    for placeholder in given:
        if len(placeholder) > MAX_PLACEHOLDER_BYTES or not _PLACEHOLDER.fullmatch(placeholder):
            yield f"{placeholder} is no placeholder"
    for name in (names or {}).values():
        if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
            yield f"a name of {len(name.encode())} bytes is too long or empty"
    size = sum(len(name.encode()) for name in (names or {}).values())
    size += sum(map(value_bytes, (values or {}).values()))
    if size > MAX_SUBSTITUTIONS_BYTES:
        yield f"names and values have {size} bytes, more than {MAX_SUBSTITUTIONS_BYTES}"
    for value in (values or {}).values():
        yield from _of_value(value)


def _of_paths(written: tuple[str, ...], names: Mapping[str, str]) -> Iterator[str]:
    """Check that no update writes one path twice, or a path inside another one, or a key."""
    paths = [
        tuple(names.get(part, part) for part in re.split(r"[.\[\]]+", path) if part)
        for path in written
    ]
    if len(set(paths)) < len(paths):
        twice = sorted({path for path in paths if paths.count(path) > 1})
        yield f"two document paths overlap: {twice}"
    shorter = {path[:length] for path in paths for length in range(1, len(path))}
    if inside := sorted(shorter & set(paths)):
        yield f"two document paths overlap: {inside}"
    for path in paths:
        if path and path[0] in TABLE_KEY:
            yield f"an update writes {path[0]}, a part of the key"


# --- requests


def _of_request(operation: str, body: Body) -> Iterator[str]:
    """Check one read or write of an item, a query or a scan."""
    if not 3 <= len(body.get("TableName", "xxx")) <= 1024:
        yield "the name of the table is too short or too long"
    returned = body.get("ReturnValues", "NONE")
    if operation in RETURN_VALUES and returned not in RETURN_VALUES[operation]:
        yield f"ReturnValues cannot be {returned}"
    if body.get("Limit", 1) < 1:
        yield "Limit is below 1"
    yield from _of_item_request(body)


def _of_item_request(body: Body) -> Iterator[str]:
    if "Key" in body:
        if not 1 <= len(body["Key"]) <= 2:
            yield f"the key has the attributes {sorted(body['Key'])}"
        yield from _of_keys(body["Key"])
    if "Item" in body:
        yield from _of_item(body["Item"])
    if body.get("ReturnValuesOnConditionCheckFailure", "NONE") not in ("NONE", "ALL_OLD"):
        yield "ReturnValuesOnConditionCheckFailure is neither NONE nor ALL_OLD"
    yield from _of_expressions(body)
    yield from _of_written_keys(body)
    written = sum(map(value_bytes, body.get("ExpressionAttributeValues", {}).values()))
    if "UpdateExpression" in body and written > MAX_ITEM_BYTES:
        yield f"the written values have {written} bytes, more than an item may have"


def _of_written_keys(body: Body) -> Iterator[str]:
    """Check the keys of indexes that an update sets."""
    names, values = body.get("ExpressionAttributeNames", {}), body.get("ExpressionAttributeValues")
    if "UpdateExpression" not in body or not values:
        return
    placeholders = {name: short for short, name in names.items() if name in KEY_NAMES}
    for name, short in placeholders.items():
        set_to = re.search(rf"{short}\s*=\s*(:\w+)", body["UpdateExpression"])
        if set_to is not None and set_to[1] in values:
            yield from _of_keys({name: values[set_to[1]]})


def _of_item(item: Mapping[str, Any]) -> Iterator[str]:
    if "PK" not in item:
        yield "the item has no key"
    yield from _of_keys({name: value for name, value in item.items() if name in KEY_NAMES})
    for value in item.values():
        yield from _of_value(value)
    if item_bytes(item) > MAX_ITEM_BYTES:
        yield f"the item has {item_bytes(item)} bytes, more than {MAX_ITEM_BYTES}"


def _of_keys(keys: Mapping[str, Any]) -> Iterator[str]:
    for name, value in keys.items():
        if set(value) != {"S"}:
            yield f"{name} is no string"
            continue
        size = len(value["S"].encode())
        most = MAX_SORT_KEY_BYTES if name in SORT_KEYS else MAX_PARTITION_KEY_BYTES
        if not 0 < size <= most:
            yield f"{name} has {size} bytes, outside of 1 to {most}"


def _of_value(value: Mapping[str, Any]) -> Iterator[str]:
    if len(value) != 1:
        yield f"a value has the types {sorted(value)}"
        return
    ((kind, content),) = value.items()
    if kind == "N":
        digits = content.lstrip("+-").replace(".", "").strip("0")
        if not re.fullmatch(r"[+-]?\d+(\.\d+)?", content) or len(digits) > MAX_DIGITS:
            yield f"{content!r} is no number of at most {MAX_DIGITS} digits"
    elif kind in ("SS", "NS", "BS") and not content:
        yield "a set is empty"
    elif kind in ("S", "B") and not isinstance(content, str):
        yield f"{content!r} is no string"


# --- several items at once


def _of_transaction(body: Body) -> Iterator[str]:
    actions = body.get("TransactItems", [])
    if not 1 <= len(actions) <= MAX_ACTIONS:
        yield f"the transaction has {len(actions)} actions, not 1 to {MAX_ACTIONS}"
    token = body.get("ClientRequestToken")
    if token is not None and not 1 <= len(token) <= MAX_TOKEN_LENGTH:
        yield f"the token has {len(token)} characters, not 1 to {MAX_TOKEN_LENGTH}"
    keys = []
    for action in actions:
        ((kind, request),) = action.items()
        yield from _of_item_request(request)
        if kind == "ConditionCheck" and "ConditionExpression" not in request:
            yield "a ConditionCheck has no condition"
        if kind == "Update" and "UpdateExpression" not in request:
            yield "an Update of a transaction has no expression"
        if "ReturnValues" in request:
            yield "an action of a transaction has ReturnValues"
        keys.append(_key_of(request.get("Item") or request["Key"]))
    yield from _of_duplicates(keys)
    size = sum(_request_bytes(request) for action in actions for request in action.values())
    if size > MAX_TRANSACTION_BYTES:
        yield f"the transaction has {size} bytes, more than {MAX_TRANSACTION_BYTES}"


def _of_batch_get(body: Body) -> Iterator[str]:
    keys = []
    for request in body.get("RequestItems", {}).values():
        keys += [_key_of(key) for key in request["Keys"]]
        for key in request["Keys"]:
            yield from _of_keys(key)
        yield from _of_expressions(request)
    if not 1 <= len(keys) <= MAX_BATCH_READS:
        yield f"the batch has {len(keys)} keys, not 1 to {MAX_BATCH_READS}"
    yield from _of_duplicates(keys)


def _of_batch_write(body: Body) -> Iterator[str]:
    keys, size = [], 0
    for requests in body.get("RequestItems", {}).values():
        for request in requests:
            ((kind, part),) = request.items()
            if kind == "PutRequest":
                yield from _of_item(part["Item"])
            else:
                yield from _of_keys(part["Key"])
            keys.append(_key_of(part.get("Item") or part["Key"]))
            size += _request_bytes(part)
    if not 1 <= len(keys) <= MAX_BATCH_WRITES:
        yield f"the batch has {len(keys)} writes, not 1 to {MAX_BATCH_WRITES}"
    yield from _of_duplicates(keys)
    if size > MAX_BATCH_BYTES:
        yield f"the batch has {size} bytes, more than {MAX_BATCH_BYTES}"


def _of_duplicates(keys: list[tuple[str, ...]]) -> Iterator[str]:
    if len(set(keys)) < len(keys):
        yield "two parts name the same item"


def _key_of(item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(item.get(name, {}).get("S")) for name in TABLE_KEY)


# --- sizes


def _request_bytes(request: Mapping[str, Any]) -> int:
    values = request.get("ExpressionAttributeValues", {}).values()
    return item_bytes(request.get("Item") or request["Key"]) + sum(map(value_bytes, values))


def item_bytes(item: Mapping[str, Any]) -> int:
    """Return the size of an item: the names and the values of its attributes."""
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Mapping[str, Any]) -> int:
    """Return the size of a value, about as DynamoDB counts it; 0 for a value of no known form."""
    kind, content = next(iter(value.items()), ("", ""))
    if kind in ("S", "B"):
        return len(str(content).encode())
    if kind == "N":
        return len(content) // 2 + 2
    if kind in ("BOOL", "NULL"):
        return 1
    if kind in ("SS", "NS", "BS"):
        return sum(len(each.encode()) for each in content)
    return 3 + _document_bytes(content) if kind in ("M", "L") else 0


def _document_bytes(content: Iterable[Any] | Mapping[str, Any]) -> int:
    if isinstance(content, Mapping):
        return 1 + item_bytes(content)
    return sum(1 + value_bytes(each) for each in content)

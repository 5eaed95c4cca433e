"""A NamedTuple that is made without its class has all of its fields."""

import ast
import importlib
from pathlib import Path

import zae_limiter
from zae_limiter.dynamodb.items.keys import BucketId

PACKAGE = Path(zae_limiter.__file__).parent


def calls():
    """Return every call of ``new_tuple``, with the module that it is in."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "new_tuple(" in text:
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            module = ".".join(part for part in parts if part != "__init__")
            found += [
                (module, node)
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "new_tuple"
            ]
    return found


def length_of(fields, module):
    """Return the length of a display of a tuple; a part with a star must be a `BucketId`."""
    length = 0
    for field in fields.elts:
        if isinstance(field, ast.Starred):
            assert getattr(field.value, "id", "") == "bucket_id", (module, field.lineno)
            length += len(BucketId._fields)
        else:
            length += 1
    return length


def test_each_call_names_all_fields_of_its_class():
    found = calls()
    assert len(found) > 20
    for module, node in found:
        cls, fields = node.args
        named = getattr(importlib.import_module(module), cls.id)
        where = f"{module}:{node.lineno}"
        assert isinstance(fields, ast.Tuple), f"{where}: the fields must be written there"
        assert length_of(fields, module) == len(named._fields), f"{where}: {cls.id}"

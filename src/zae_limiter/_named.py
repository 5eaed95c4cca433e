"""Named tuples without ``typing``: for modules that a Lambda function imports.

``typing.NamedTuple`` compiles the annotation of each field, which takes three times as long as to
make the class, and ``typing`` itself is a tenth of a cold start. Type checkers see the original.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _Making(type):
        """Makes a class of named tuples of a class whose annotations are its fields."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for attribute, value in body.items():
                setattr(made, attribute, value)
            return made

    NamedTuple = type.__new__(_Making, "NamedTuple", (), {})

__all__ = ["NamedTuple"]

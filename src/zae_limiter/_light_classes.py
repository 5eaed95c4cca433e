"""Frozen dataclasses and named tuples that are made quickly: a Lambda function imports many.

``dataclasses`` imports ``inspect``, and compiles each of six methods on its own: both were a sixth
of a function's cold start. In every other way these classes are frozen dataclasses with slots:
``dataclasses.fields``, ``replace`` and ``asdict`` take them, and type checkers know their fields.

``typing.NamedTuple`` compiles the annotation of each field, which takes three times as long as to
make the class, and ``typing`` itself is a tenth of a cold start. Type checkers see the original.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing import NamedTuple, dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        """Return a decorator that leaves everything to type checkers."""
        return lambda decorated: decorated

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


__all__ = ["NamedTuple", "field", "frozen", "new_tuple", "replace"]

T = TypeVar("T")

# Makes a NamedTuple of all its fields, with half the instructions of its class, which calls a
# function of Python for it: `new_tuple(Move, (key, low, …))`. For those that every acquire makes:
# ADR 038 has the figures, tests/unit/test_new_tuple.py counts the fields.
new_tuple: Callable[[type[T], tuple[Any, ...]], T] = tuple.__new__  # type: ignore[assignment]


class _Factory(NamedTuple):
    """Makes the default of a field anew for each value."""

    make: Callable[[], Any]

    def __repr__(self) -> str:  # shown in signatures
        return "<factory>"


def field(*, default_factory: Callable[[], Any]) -> Any:
    """Return the default of a field of which each value gets its own, such as a dict."""
    return _Factory(default_factory)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with slots of a class whose annotations are its fields."""
    body = dict(cls.__dict__)
    names = tuple(body["__annotations__"])
    defaults = {name: body.pop(name) for name in names if name in body}
    for added in ("__dict__", "__weakref__"):
        body.pop(added, None)
    body |= {
        "__slots__": names,
        "__match_args__": names,
        "__repr__": body.get("__repr__", _repr),
        "__eq__": _first_eq,
        "__hash__": _first_hash,
        "__setattr__": _refuse_change,
        "__delattr__": _refuse_change,
        "__reduce__": _reduce,
        "__replace__": replace,
        "__dataclass_fields__": _Fields(names, defaults),
    }
    made: type[T] = type(cls.__name__, cls.__bases__, body)
    _add(made, {"__init__": _initializer(made, names, defaults)})
    return made


def replace(value: T, /, **changes: Any) -> T:
    """Return a copy with some fields changed; as ``dataclasses.replace``, without its import."""
    for name in value.__match_args__:  # type: ignore[attr-defined]
        changes.setdefault(name, getattr(value, name))
    return type(value)(**changes)


def _initializer(
    cls: type, names: tuple[str, ...], defaults: dict[str, Any]
) -> Callable[..., None]:
    """Compile the method that names the fields.

    A value is initialized by its slots themselves: faster than by ``object.__setattr__``.
    """
    known: dict[str, Any] = {"defaults": defaults}
    parameters, steps = [], []
    for name in names:
        known[f"set_{name}"] = cls.__dict__[name].__set__
        parameters.append(f"{name}=defaults[{name!r}]" if name in defaults else name)
        value = name
        if isinstance(defaults.get(name), _Factory):
            known[f"factory_of_{name}"] = defaults[name]
            value = f"{name} if {name} is not factory_of_{name} else {name}.make()"
        steps.append(f"set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        steps.append("self.__post_init__()")
    exec(f"def __init__(self, {', '.join(parameters)}):\n {'; '.join(steps)}\n", known)
    return known["__init__"]  # type: ignore[no-any-return]


def _first_eq(self: object, other: object) -> bool:
    """Compare the first time: few of the classes that a function imports are ever compared."""
    _compile_comparison(type(self))
    return self.__eq__(other)


def _first_hash(self: object) -> int:
    _compile_comparison(type(self))
    return self.__hash__()


def _compile_comparison(cls: Any) -> None:
    made_by = next(base for base in cls.__mro__ if "__dataclass_fields__" in base.__dict__)
    names = made_by.__match_args__
    own, others = (f"({''.join(f'{of}.{name},' for name in names)})" for of in ("self", "other"))
    methods: dict[str, Any] = {}
    text = (
        "def __eq__(self, other):\n"
        f" return {own} == {others} if other.__class__ is self.__class__ else NotImplemented\n"
        f"def __hash__(self):\n return hash({own})\n"
    )
    exec(text, methods)
    _add(made_by, {name: methods[name] for name in ("__eq__", "__hash__")})


def _add(cls: type, methods: dict[str, Callable[..., Any]]) -> None:
    for name, method in methods.items():
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)


class _Fields:
    """``__dataclass_fields__``, made when it is asked for: only ``dataclasses`` reads it."""

    def __init__(self, names: tuple[str, ...], defaults: dict[str, Any]) -> None:
        self._names = names
        self._defaults = defaults

    def __get__(self, value: object, cls: type) -> dict[str, Any]:
        import dataclasses

        described: list[tuple[str, Any, Any]] = []
        for name in self._names:
            default = self._defaults.get(name, dataclasses.MISSING)
            chosen: dict[str, Any] = {"default": default}
            if isinstance(default, _Factory):
                chosen = {"default_factory": default.make}
            described.append((name, cls.__annotations__[name], dataclasses.field(**chosen)))
        twin: Any = dataclasses.make_dataclass(cls.__name__, described, frozen=True)
        for attribute in ("__dataclass_params__", "__dataclass_fields__"):
            setattr(cls, attribute, getattr(twin, attribute))
        return twin.__dataclass_fields__  # type: ignore[no-any-return]


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({shown})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple(getattr(self, name) for name in self.__match_args__)


def _refuse_change(self: Any, name: str, *_: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"{type(self).__name__} is frozen: {name!r} cannot be changed")

"""Named tuples that are made without ``typing``: the same classes in every way that is used."""

from __future__ import annotations

import pickle
import typing

import pytest

from zae_limiter._light_classes import NamedTuple


class Light(NamedTuple):
    """A place."""

    name: str
    size: int | None = None
    tags: tuple[str, ...] = ()

    @property
    def shown(self):
        return f"{self.name} of {self.size}"

    @classmethod
    def empty(cls):
        return cls("")


class Original(typing.NamedTuple):
    """A place."""

    name: str
    size: int | None = None
    tags: tuple[str, ...] = ()


def test_values_are_tuples_with_names():
    light = Light("a", size=3)
    assert light == ("a", 3, ()) == Original("a", 3)
    assert light._asdict() == Original("a", 3)._asdict()
    assert light._replace(name="b") == Light("b", 3)
    assert repr(light) == repr(Original("a", 3)).replace("Original", "Light")
    assert hash(light) == hash(Original("a", 3))
    assert pickle.loads(pickle.dumps(light)) == light
    assert type(pickle.loads(pickle.dumps(light))) is Light


def test_classes_have_what_those_of_typing_have():
    for name in ("_fields", "_field_defaults", "__match_args__", "__module__", "__doc__"):
        assert getattr(Light, name) == getattr(Original, name), name
    assert typing.get_type_hints(Light) == typing.get_type_hints(Original)
    assert Light.__qualname__ == "Light"
    assert Light.__bases__ == (tuple,)


def test_methods_of_the_class_body_are_there():
    assert Light("a", 3).shown == "a of 3"
    assert Light.empty() == Light("")
    with pytest.raises(TypeError, match="name"):
        Light()
    with pytest.raises(AttributeError):
        Light("a").name = "b"

"""Light frozen classes behave as frozen dataclasses with slots."""

import copy
import dataclasses
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import zae_limiter
from zae_limiter import Entity, Limit
from zae_limiter._light_classes import field, frozen, replace
from zae_limiter.models.limit import DEFAULT_LEASE_TTL


@frozen
class Light:
    """As a dataclass would have it."""

    name: str
    size: int = 1
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        if self.size < 0:
            raise ValueError(self.size)

    @property
    def twice(self):
        return 2 * self.size


@frozen
class Single:
    """Has one field."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Usual:
    """The same, made by dataclasses."""

    name: str
    size: int = 1
    tags: dict[str, str] = dataclasses.field(default_factory=dict)


def test_values_are_made_compared_and_shown_as_those_of_a_dataclass():
    for arguments in (("a",), ("a", 2), ("a", 2, {"x": "y"})):
        light, usual = Light(*arguments), Usual(*arguments)
        assert repr(light) == repr(usual).replace("Usual", "Light")
        assert dataclasses.asdict(light) == dataclasses.asdict(usual)
        assert light == Light(*arguments)
        assert light != Light("b")
        assert light != usual
    assert Light("a").tags is not Light("a").tags
    assert Light(size=3, name="b").twice == 6
    assert hash(Light("a", 1, ())) == hash(Light("a", 1, ()))
    assert len({Single("a"), Single("a"), Single("b")}) == 2
    match Light("a", 5):
        case Light(name, size):
            assert (name, size) == ("a", 5)


def test_arguments_are_checked():
    assert str(inspect.signature(Light)) == "(name, size=1, tags=<factory>)"
    for arguments in ({}, {"name": "a", "colour": "red"}):
        with pytest.raises(TypeError):
            Light(**arguments)
    with pytest.raises(ValueError, match="-1"):
        Light("a", -1)


def test_values_do_not_change():
    light = Light("a")
    for change in (
        lambda: setattr(light, "name", "b"),
        lambda: setattr(light, "colour", "red"),
        lambda: delattr(light, "name"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError, match="Light is frozen"):
            change()
    assert not hasattr(light, "__dict__")
    assert replace(light, size=2) == dataclasses.replace(light, size=2) == Light("a", 2)
    with pytest.raises(ValueError, match="-1"):
        replace(light, size=-1)


def test_dataclasses_take_them_for_their_own():
    assert dataclasses.is_dataclass(Light)
    described = [
        (each.name, each.default, each.default_factory) for each in dataclasses.fields(Light)
    ]
    wanted = [(each.name, each.default, each.default_factory) for each in dataclasses.fields(Usual)]
    assert described == wanted

    @dataclasses.dataclass(frozen=True)
    class Longer(Single):
        length: int = 0

    assert Longer("a", 3).name == "a"


@pytest.mark.parametrize(
    "value", [Light("a"), Single("a"), Entity("e"), Limit.per_minute("rpm", 5)]
)
def test_copies_are_equal(value):
    for made in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert made == value
        assert type(made) is type(value)


def test_limits_need_no_dataclasses():
    program = (
        "import sys; from zae_limiter import Limit, Entity\n"
        f"assert Limit.concurrent('c', 5).lease_ttl == {DEFAULT_LEASE_TTL}\n"
        "assert Entity('e') == Entity('e') and repr(Entity('e'))\n"
        "assert not {'dataclasses', 'inspect'} & set(sys.modules)\n"
    )
    sources = str(Path(zae_limiter.__file__).parents[1])  # -S leaves out an editable installation
    environment = {**os.environ, "PYTHONPATH": sources}
    subprocess.run([sys.executable, "-S", "-c", program], check=True, env=environment)

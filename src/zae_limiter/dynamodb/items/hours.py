"""The hours that a bucket item counts: the running one, and the one before until it is stored.

origin                          o        {shard}.{random}, new at every creation of the item
running hour                    h        hours since 1970
consumed when the hour began    b{i}     millitokens, of the limit in slot i; absent: 0
consumed through children       k{i}     in the running hour; absent on items that never had any
admitted, rejected              ac, rj   in the running hour
of these through children       rx       acquires of children that the bucket rejected; absent: 0
waited                          wt       absent: 0
largest rejected amounts        rq       slot=tokens,…; the name of a limit that only a parent has
finished hour                   ph       absent once it is stored and cleared
its net consumption             u{i}
its part through children       v{i}
its admitted, rejected          ua, ur
its rx, wt, rq                  ux, uw, uq

The slot is the fourth part of a limit's parameters, ``p_{limit} = capacity:refill:period:slot``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from zae_limiter.admission.in_force import plain_name
from zae_limiter.admission.tally import NO_ASKED, Tally
from zae_limiter.dynamodb.items.attributes import Item, integer, n, optional_integer, s, text
from zae_limiter.dynamodb.items.update_expression import UpdateExpression
from zae_limiter.dynamodb.items.usage import OriginHour, by_plain_name
from zae_limiter.exceptions import IncompatibleSchemaError

ORIGIN, HOUR, FINISHED = "o", "h", "ph"
BEGAN, CHILDREN, FINISHED_NET, FINISHED_CHILDREN = "b", "k", "u", "v"  # each followed by the slot
ADMITTED, REJECTED, FINISHED_ADMITTED, FINISHED_REJECTED = "ac", "rj", "ua", "ur"
OF_CHILDREN, WAITED, ASKED = "rx", "wt", "rq"
FINISHED_OF_CHILDREN, FINISHED_WAITED, FINISHED_ASKED = "ux", "uw", "uq"
CONCURRENT = "c:"  # begins the parameters of a limit on calls in flight: c:slots:lease_ttl:slot
TURN_MARK = "~"  # begins the write id of a write that creates a bucket item or turns its hour

_CONSUMED, _PARAMETERS = "c_", "p_"  # as items.bucket, which imports this module
_RATE_PARTS = 4
_ORIGIN_BYTES = 6  # 48 bits: an origin must differ from all others of the same item in one hour


class HourState(NamedTuple):
    """Which hours an item counts, and in which slots.

    ``slots`` are by stored limit name. ``has_children`` tells whether the item counts what came
    through children.
    """

    origin: str
    hour: int
    finished: int | None
    slots: Mapping[str, int]
    has_children: bool


def new_origin(shard: int) -> str:
    """Return an origin for an item that is created; from the system's chance, as write ids are."""
    from base64 import urlsafe_b64encode  # only clients create items

    return f"{shard}.{urlsafe_b64encode(os.urandom(_ORIGIN_BYTES)).decode()}"


def shard_of(origin: str) -> int:
    """Return the number of the shard that an origin belongs to."""
    return int(origin.partition(".")[0])


@lru_cache(maxsize=4096)
def slot_of(parameters: str) -> int | None:
    """Return the slot in a limit's stored parameters; None if they are of the schema without hours.

    Raises IncompatibleSchemaError for a kind of limit that this version does not know.
    """
    if parameters[:1].isalpha() and not is_concurrent(parameters):
        raise IncompatibleSchemaError(
            f"a limit of kind {parameters.partition(':')[0]!r}",
            "rates and calls in flight",
            "bring every client to the newest version",
        )
    parts = parameters.split(":")
    return int(parts[3]) if len(parts) >= _RATE_PARTS else None


def is_concurrent(parameters: str) -> bool:
    """Return whether stored parameters are those of a limit on calls in flight."""
    return parameters.startswith(CONCURRENT)


def slots_of(item: Item) -> dict[str, int]:
    """Return the slot of each limit of an item, by stored name."""
    return {
        name[2:]: slot
        for name in _parameter_names(tuple(item))
        if (slot := slot_of(item[name]["S"])) is not None
    }


@lru_cache(maxsize=256)  # few items differ in the names of their attributes
def _parameter_names(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name[:2] == _PARAMETERS]


def decode(item: Item) -> HourState | None:
    """Return the hours of a bucket item; None if it is of the schema without hours."""
    hour = item.get(HOUR)
    if hour is None:
        return None
    slots = slots_of(item)
    return HourState(
        text(item[ORIGIN]),
        integer(hour),
        optional_integer(item, FINISHED),
        slots,
        any(f"{CHILDREN}{slot}" in item for slot in slots.values()),
    )


def running_hour(item: Item) -> OriginHour | None:
    """Return what the item has counted in its running hour; None without hours."""
    state = decode(item)
    if state is None:
        return None
    used = {}
    for name, slot in state.slots.items():
        if is_concurrent(text(item[_PARAMETERS + name])):
            continue  # slots are no usage
        net = integer(item[_CONSUMED + name]) - _amount(item, f"{BEGAN}{slot}")
        used[name] = (net, _amount(item, f"{CHILDREN}{slot}"))
    return OriginHour(
        state.origin,
        state.hour,
        by_plain_name(used),
        _amount(item, ADMITTED),
        running_tally(item, state.slots),
    )


def running_tally(item: Item, slots: Mapping[str, int]) -> Tally:
    """Return which acquires of the running hour were rejected or have waited."""
    return Tally(
        _amount(item, REJECTED),
        _amount(item, OF_CHILDREN),
        _amount(item, WAITED),
        decode_asked(asked_text(item), slots),
    )


def finished_hour(item: Item, state: HourState | None = None) -> OriginHour | None:
    """Return the finished hour that the item still holds; None if it holds none.

    ``state`` saves decoding the item again.
    """
    finished = optional_integer(item, FINISHED)
    if finished is None:
        return None
    slots = slots_of(item) if state is None else state.slots
    used = {
        name: (_amount(item, f"{FINISHED_NET}{slot}"), _amount(item, f"{FINISHED_CHILDREN}{slot}"))
        for name, slot in slots.items()
        if f"{FINISHED_NET}{slot}" in item  # absent: the limit was added after the hour
        and not is_concurrent(text(item[_PARAMETERS + name]))
    }
    return OriginHour(
        text(item[ORIGIN]),
        finished,
        by_plain_name(used),
        _amount(item, FINISHED_ADMITTED),
        Tally(
            _amount(item, FINISHED_REJECTED),
            _amount(item, FINISHED_OF_CHILDREN),
            _amount(item, FINISHED_WAITED),
            decode_asked(asked_text(item, FINISHED_ASKED), slots),
        ),
    )


def asked_text(item: Item, name: str = ASKED) -> str:
    """Return the stored text of the largest rejected amounts; empty if there is none."""
    value = item.get(name)
    return "" if value is None else text(value)


def encode_asked(asked: Mapping[str, int], slots: Mapping[str, int]) -> str:
    """Return amounts by plain name as the item stores them; slots are shorter than names."""
    numbers: dict[str, int] = {}
    for name, slot in slots.items():
        numbers.setdefault(plain_name(name), slot)
    return ",".join(f"{numbers.get(name, name)}={amount}" for name, amount in asked.items())


def decode_asked(stored: str, slots: Mapping[str, int]) -> Mapping[str, int]:
    """Return amounts by plain name; a slot that has no limit any more is left out."""
    if not stored:
        return NO_ASKED
    names = {str(slot): plain_name(name) for name, slot in slots.items()}
    asked: dict[str, int] = {}
    for part in stored.split(","):
        key, _, amount = part.partition("=")
        if key in names or not key.isdecimal():
            asked[names.get(key, key)] = int(amount)
    return asked


def clear(key: Item, state: HourState) -> UpdateExpression:
    """Remove the finished hour of ``state``, after it was stored, unless it was turned over."""
    assert state.finished is not None
    update = UpdateExpression(key)
    update.require_equal(ORIGIN, s(state.origin))
    update.require_equal(FINISHED, n(state.finished))
    for name in finished_attributes(state):
        update.remove(name)
    return update


def clear_text(table: str, key: Item, state: HourState) -> str:
    """Return the request text of ``clear``: rendered once per kind of item, then filled in."""
    form = _clear_form(table, tuple(state.slots.values()), state.has_children)
    filled = (text(key["PK"]), text(key["SK"]), state.origin, str(state.finished))
    return form % tuple(map(encode_basestring_ascii, filled))


@lru_cache(maxsize=256)  # few buckets differ in their slots
def _clear_form(table: str, slots: tuple[int, ...], has_children: bool) -> str:
    by_name = {str(slot): slot for slot in slots}
    sample = HourState("", 0, 0, by_name, has_children)
    return clear({"PK": s(""), "SK": s("")}, sample).text_with_gaps(table)


def finished_attributes(state: HourState) -> list[str]:
    """Return the names of all attributes of a finished hour."""
    names = [FINISHED, FINISHED_ADMITTED, FINISHED_REJECTED]
    names += (FINISHED_OF_CHILDREN, FINISHED_WAITED, FINISHED_ASKED)
    for slot in state.slots.values():
        names.append(f"{FINISHED_NET}{slot}")
        if state.has_children:
            names.append(f"{FINISHED_CHILDREN}{slot}")
    return names


def _amount(item: Item, name: str) -> int:
    value = item.get(name)
    return 0 if value is None else int(value["N"])

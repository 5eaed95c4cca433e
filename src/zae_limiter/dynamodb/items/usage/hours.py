"""The hours that a bucket item counts: the running one, and the one before until it is stored.

origin                          o        random, new at every creation of the item
running hour                    h        hours since 1970
consumed when the hour began    b{i}     millitokens, of the limit with index i; absent: 0
consumed through children       k{i}     in the running hour; absent on items that never had any
admitted, rejected              ac, rj   in the running hour
of these through children       rx       acquires of children that the bucket rejected; absent: 0
waited                          wt       absent: 0
shadowed                        sh       let through by shadow mode; absent: 0
largest rejected amounts        rq       index=tokens,…; the name of a limit that only a parent has
finished hour                   ph       absent once it is stored and cleared
its net consumption             u{i}
its part through children       v{i}
its admitted, rejected          ua, ur
its rx, wt, sh, rq              ux, uw, us, uq

The index of a limit is the fourth part of its parameters,
``p_{limit} = capacity:refill:period:index``.
"""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from zae_limiter.admission.in_force import plain_name
from zae_limiter.admission.tally import NO_ASKED, NO_TALLY, Tally
from zae_limiter.dynamodb.items.attributes import Item, integer, n, optional_integer, s, text
from zae_limiter.dynamodb.items.update_expression import UpdateExpression
from zae_limiter.dynamodb.items.usage.day_row import OriginHour, day_of
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.naming import usage_name

ORIGIN, HOUR, FINISHED = "o", "h", "ph"
BEGAN, CHILDREN, FINISHED_NET, FINISHED_CHILDREN = "b", "k", "u", "v"  # each followed by the index
ADMITTED, REJECTED, FINISHED_ADMITTED, FINISHED_REJECTED = "ac", "rj", "ua", "ur"
OF_CHILDREN, WAITED, SHADOWED, ASKED = "rx", "wt", "sh", "rq"
FINISHED_OF_CHILDREN, FINISHED_WAITED, FINISHED_SHADOWED, FINISHED_ASKED = "ux", "uw", "us", "uq"
_RUNNING_TALLY = REJECTED, OF_CHILDREN, WAITED, SHADOWED
_FINISHED_TALLY = FINISHED_REJECTED, FINISHED_OF_CHILDREN, FINISHED_WAITED, FINISHED_SHADOWED
CONCURRENT = "c:"  # begins the parameters of a limit on calls in flight: c:slots:lease_ttl:index
QUOTA = "q:"  # begins the parameters of a quota or soft limit: q:index:notation without the name
_BUDGET = re.compile(r"q:[0-9]+:[0-9.]+([A-Z]{3})/")  # the amount of a budget has its currency
TURN_MARK = "~"  # the first character of a write id that creates an item or turns its hour

_CONSUMED, _PARAMETERS = "c_", "p_"  # as items.bucket, which imports this module
_ORIGIN_BYTES = 6  # 48 bits: an origin must differ from all others of the same item in one hour


class HourState(NamedTuple):
    """The hours that an item counts, and the indexes of its limits by stored name.

    ``has_children`` tells whether the item counts consumption through children, and
    ``used_by_children`` are the indexes of the limits that have counted some when the hours were
    decoded.
    """

    origin: str
    hour: int
    finished: int | None
    indexes: Mapping[str, int]
    has_children: bool
    used_by_children: frozenset[int] = frozenset()


def new_origin() -> str:
    """Return a random origin for a new item (os.urandom, so forks differ)."""
    return urlsafe_b64encode(os.urandom(_ORIGIN_BYTES)).decode()


@lru_cache(maxsize=4096)
def limit_index_of(parameters: str) -> int:
    """Return the index of a limit from its stored parameters.

    Raises IncompatibleSchemaError for a kind of limit that this version does not know.
    """
    if parameters.startswith(QUOTA):
        return int(parameters.split(":", 2)[1])
    if parameters[:1].isalpha() and not is_concurrent(parameters):
        raise IncompatibleSchemaError(
            f"a limit of kind {parameters.partition(':')[0]!r}",
            "rates, calls in flight and quotas",
            "bring every client to the newest version",
        )
    _, _, _, index, *_ = parameters.split(":")
    return int(index)


@lru_cache(maxsize=4096)
def _usage_name(name: str, parameters: str) -> str | None:
    """Return the name that a limit's usage is stored under; None for slots, which are no usage."""
    if is_concurrent(parameters):
        return None
    return usage_name(plain_name(name), currency_of(parameters))


def currency_of(parameters: str) -> str | None:
    """Return the currency in the stored parameters of a budget; None for other limits."""
    match = _BUDGET.match(parameters)
    return None if match is None else match[1]


def is_concurrent(parameters: str) -> bool:
    """Return whether stored parameters are those of a limit on calls in flight."""
    return parameters.startswith(CONCURRENT)


def limit_indexes_of(item: Item) -> dict[str, int]:
    """Return the index of each limit of an item, by stored name."""
    return {name[2:]: limit_index_of(item[name]["S"]) for name in _parameter_names(tuple(item))}


@lru_cache(maxsize=256)  # most items have the same attributes
def _parameter_names(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name[:2] == _PARAMETERS]


def decode(item: Item) -> HourState:
    """Return the hours of a bucket item."""
    indexes = limit_indexes_of(item)
    through = {
        index: item[name]["N"]
        for index in indexes.values()
        if (name := f"{CHILDREN}{index}") in item
    }
    return HourState(
        text(item[ORIGIN]),
        integer(item[HOUR]),
        optional_integer(item, FINISHED),
        indexes,
        bool(through),
        frozenset(index for index, amount in through.items() if amount != "0"),
    )


def decode_without_children(item: Item, before: HourState) -> HourState:
    """Return the hours of an item in which no child counts.

    ``before`` is an earlier state with the same origin and limits.
    """
    return HourState(
        before.origin,
        integer(item[HOUR]),
        optional_integer(item, FINISHED),
        before.indexes,
        has_children=False,
    )


def counted_hours(item: Item) -> list[OriginHour]:
    """Return the running hour of an item, and the finished one if the item still holds it.

    An item that another program has written counts no hours, and can still be removed.
    """
    if HOUR not in item:
        return []
    finished = finished_hour(item)
    running = running_hour(item)
    return [running] if finished is None else [running, finished]


def running_hour(item: Item) -> OriginHour:
    """Return the counts of the item's running hour."""
    state = decode(item)
    used: dict[str, tuple[int, int]] = {}
    for name, index in state.indexes.items():
        net = integer(item[_CONSUMED + name]) - consumed_before(item, index)
        _add_usage(used, item, name, net, _amount(item, f"{CHILDREN}{index}"))
    return OriginHour(
        state.origin,
        state.hour,
        used,
        _amount(item, ADMITTED),
        running_tally(item, state.indexes),
    )


def consumed_before(item: Item, index: int) -> int:
    """Return the consumption of a limit before the running hour."""
    return _amount(item, f"{BEGAN}{index}")


def _add_usage(
    used: dict[str, tuple[int, int]], item: Item, name: str, net: int, through_children: int
) -> None:
    """Add the usage of a limit to that of others with its plain name."""
    stored_under = _usage_name(name, item[_PARAMETERS + name]["S"])
    if stored_under is not None:
        net_before, through_before = used.get(stored_under, (0, 0))
        used[stored_under] = net_before + net, through_before + through_children


def running_tally(item: Item, indexes: Mapping[str, int]) -> Tally:
    """Return the counts of rejected, shadowed and waiting acquires of the running hour."""
    return _tally(item, _RUNNING_TALLY, decode_asked(asked_text(item), indexes))


def _tally(item: Item, names: tuple[str, str, str, str], asked: Mapping[str, int]) -> Tally:
    rejected, of_children, waited, shadowed = [_amount(item, name) for name in names]
    if not (rejected or of_children or waited or shadowed or asked):
        return NO_TALLY  # most are empty, and caches keep them
    return Tally(rejected, of_children, waited, asked, shadowed)


def finished_hour(item: Item, state: HourState | None = None) -> OriginHour | None:
    """Return the finished hour that the item still holds; None if there is none.

    The running hour follows it, so the finished hour is the last of its day if the running one is
    of another day. ``state`` is the decoded item, if the caller has it.
    """
    if FINISHED not in item:
        return None
    state = state or decode(item)
    finished = integer(item[FINISHED])
    used: dict[str, tuple[int, int]] = {}
    for name, index in state.indexes.items():
        net = item.get(f"{FINISHED_NET}{index}")
        if net is not None:  # absent if the limit was added after the hour
            _add_usage(used, item, name, integer(net), _amount(item, f"{FINISHED_CHILDREN}{index}"))
    asked = decode_asked(asked_text(item, FINISHED_ASKED), state.indexes)
    return OriginHour(
        state.origin,
        finished,
        used,
        _amount(item, FINISHED_ADMITTED),
        _tally(item, _FINISHED_TALLY, asked),
        day_of(finished) != day_of(state.hour),
    )


def still_holds_finished(item: Item | None, before: HourState) -> bool | None:
    """Return whether an item still holds the finished hour of ``before``, an earlier state of it.

    False if an aggregator has cleared it. None if that cannot be told: the item is gone or has
    turned since, or had no finished hour.
    """
    if item is None or before.finished is None:
        return None
    if (item[ORIGIN], item[HOUR]) != (s(before.origin), n(before.hour)):
        return None
    return FINISHED in item


def asked_text(item: Item, name: str = ASKED) -> str:
    """Return the stored text of the largest rejected amounts; empty if there is none."""
    value = item.get(name)
    return "" if value is None else text(value)


def encode_asked(asked: Mapping[str, int], indexes: Mapping[str, int]) -> str:
    """Return amounts by plain name as stored text, with indexes, which are shorter than names."""
    if not asked:
        return ""
    numbers: dict[str, int] = {}
    for name, index in indexes.items():
        numbers.setdefault(plain_name(name), index)
    return ",".join(f"{numbers.get(name, name)}={amount}" for name, amount in asked.items())


def decode_asked(stored: str, indexes: Mapping[str, int]) -> Mapping[str, int]:
    """Return amounts by plain name; an index without a limit is left out."""
    if not stored:
        return NO_ASKED
    names = {str(index): plain_name(name) for name, index in indexes.items()}
    asked: dict[str, int] = {}
    for part in stored.split(","):
        key, _, amount = part.partition("=")
        if key in names or not key.isdecimal():
            asked[names.get(key, key)] = int(amount)
    return asked


def clear(key: Item, state: HourState) -> UpdateExpression:
    """Remove the stored finished hour of ``state``, unless another hour has replaced it."""
    assert state.finished is not None
    update = UpdateExpression(key)
    update.require_equal(ORIGIN, s(state.origin))
    update.require_equal(FINISHED, n(state.finished))
    for name in finished_attributes(state):
        update.remove(name)
    return update


def clear_text(table: str, key: Item, state: HourState) -> str:
    """Return the request text of ``clear``, rendered once per kind of item and then filled in."""
    form = _clear_form(table, tuple(state.indexes.values()), state.has_children)
    filled = (text(key["PK"]), text(key["SK"]), state.origin, str(state.finished))
    return form % tuple(map(encode_basestring_ascii, filled))


@lru_cache(maxsize=256)  # most buckets have the same indexes
def _clear_form(table: str, indexes: tuple[int, ...], has_children: bool) -> str:
    by_name = {str(index): index for index in indexes}
    sample = HourState("", 0, 0, by_name, has_children)
    return clear({"PK": s(""), "SK": s("")}, sample).text_with_gaps(table)


def finished_attributes(state: HourState) -> list[str]:
    """Return the names of all attributes of a finished hour."""
    names = [FINISHED, FINISHED_ADMITTED, FINISHED_REJECTED]
    names += (FINISHED_OF_CHILDREN, FINISHED_WAITED, FINISHED_SHADOWED, FINISHED_ASKED)
    for index in state.indexes.values():
        names.append(f"{FINISHED_NET}{index}")
        if state.has_children:
            names.append(f"{FINISHED_CHILDREN}{index}")
    return names


def _amount(item: Item, name: str) -> int:
    value = item.get(name)
    return 0 if value is None else int(value["N"])

"""The hours that a bucket item counts: the running one, and the one before until it is stored.

origin                          o        random, new at every creation of the item
running hour                    h        hours since 1970
consumed when the hour began    b{i}     millitokens, of the limit with index i; absent: 0
consumed through children       k{i}     in the running hour; absent on items that never had any
admitted, rejected              ac, rj   in the running hour
of ac: calls of other buckets   ax       of children, or of another first resource; absent: 0
of rj: through children         rx       acquires of children that the bucket rejected; absent: 0
of rj: as a further resource    rf       acquires that named another resource first; absent: 0
waited                          wt       absent: 0
shadowed                        sh       let through by shadow mode; absent: 0
rejections in detail            rq       largest amounts and what refused:
                                         index=tokens,…;[second,votes,[limit,resource,entity],…]
                                         The name of a limit that only a parent has stands for its
                                         index; the part from ; on is as in ``day_row``
finished hour                   ph       absent once it is stored and cleared
its net consumption             u{i}
its part through children       v{i}
its admitted, rejected          ua, ur
its ax, rx, rf, wt, sh, rq      ue, ux, uf, uw, us, uq

The index of a limit is the fourth part of its parameters,
``p_{limit} = capacity:refill:period:index``. Behind that of slots or of a quota may be the number
of its life, ``index.number``.
"""

from __future__ import annotations

import json
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from zae_limiter.admission.in_force import plain_name
from zae_limiter.admission.tally import (
    NO_ASKED,
    NO_TALLY,
    Refusals,
    Tally,
    both_refusals,
    largest,
)
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.items.stored.attributes import Item, integer, n, optional_integer, s, text
from zae_limiter.items.stored.update_expression import UpdateExpression
from zae_limiter.items.stored.usage.day_row import OriginHour, day_of
from zae_limiter.naming import usage_name

ORIGIN, HOUR, FINISHED = "o", "h", "ph"
BEGAN, CHILDREN, FINISHED_NET, FINISHED_CHILDREN = "b", "k", "u", "v"  # each followed by the index
ADMITTED, REJECTED, FINISHED_ADMITTED, FINISHED_REJECTED = "ac", "rj", "ua", "ur"
OF_CHILDREN, WAITED, SHADOWED, AS_FURTHER, ELSEWHERE = "rx", "wt", "sh", "rf", "ax"
REJECTIONS, FINISHED_REJECTIONS = "rq", "uq"  # in detail
# The counts of a tally in the running and in the finished hour, in this order.
RUNNING_TALLY = REJECTED, OF_CHILDREN, WAITED, SHADOWED, AS_FURTHER, ELSEWHERE
FINISHED_TALLY = FINISHED_REJECTED, "ux", "uw", "us", "uf", "ue"
CONCURRENT = "c:"  # begins the parameters of a limit on calls in flight: c:slots:lease_ttl:index
QUOTA = "q:"  # begins the parameters of a quota or soft limit: q:index:notation without the name
LIFE = "."  # between the index of slots or of a quota and the number of its life
_BUDGET = re.compile(r"q:[0-9.]+:[0-9.]+([A-Z]{3})/")  # the amount of a budget has its currency
TURN_MARK = "~"  # the first character of a write id that creates an item or turns its hour

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
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


class Rejections(NamedTuple):
    """The details of a tally: the largest amounts by plain name, and what refused."""

    asked: Mapping[str, int]
    refusals: Refusals | None

    @classmethod
    def of(cls, tally: Tally) -> Rejections:
        return cls(tally.asked, tally.refusals)

    def plus(self, other: Rejections) -> Rejections:
        """Return the larger amount of each limit, and the refusals of both."""
        refusals = both_refusals(self.refusals, other.refusals)
        return Rejections(largest(self.asked, other.asked), refusals)


NO_REJECTIONS = Rejections(NO_ASKED, None)


def new_origin() -> str:
    """Return a random origin for a new item (os.urandom, so forks differ)."""
    return urlsafe_b64encode(os.urandom(_ORIGIN_BYTES)).decode()


@lru_cache(maxsize=4096)
def limit_index_of(parameters: str) -> int:
    """Return the index of a limit from its stored parameters.

    Raises IncompatibleSchemaError for a kind of limit that this version does not know.
    """
    return int(_place(parameters).partition(LIFE)[0])


@lru_cache(maxsize=4096)
def life_number_of(parameters: str) -> int:
    """Return the number of a limit's life from its stored parameters; 0 if none is stored."""
    return int(_place(parameters).partition(LIFE)[2] or 0)


def _place(parameters: str) -> str:
    """Return the index of a limit, and the number of its life behind it if there is one."""
    if parameters.startswith(QUOTA):
        return parameters.split(":", 2)[1]
    if parameters[:1].isalpha() and not is_concurrent(parameters):
        raise IncompatibleSchemaError(
            f"a limit of kind {parameters.partition(':')[0]!r}",
            "rates, calls in flight and quotas",
            "bring every client to the newest version",
        )
    _, _, _, place, *_ = parameters.split(":")
    return place


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


def without_held(
    counted: OriginHour, item: Item, held: Mapping[str, tuple[int, int]]
) -> OriginHour:
    """Return an hour without usage that calls hold, by limit: all, and that through children."""
    used = dict(counted.used_milli)
    for name, (units, through_children) in held.items():
        _add_usage(used, item, name, -units, -through_children)
    return counted._replace(used_milli=used)


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
    return _tally(item, RUNNING_TALLY, decode_rejections(rejections_text(item), indexes))


def _tally(item: Item, names: Sequence[str], details: Rejections) -> Tally:
    counts = [_amount(item, name) for name in names]
    if not any(counts) and not details.asked:
        return NO_TALLY  # most are empty, and caches keep them
    return tally_of(counts, details)


def counts_of(tally: Tally) -> tuple[int, int, int, int, int, int]:
    """Return the counts of a tally in the order of ``RUNNING_TALLY``."""
    rejected, of_children, waited, _, shadowed, as_further, elsewhere, _ = tally
    return rejected, of_children, waited, shadowed, as_further, elsewhere


def tally_of(counts: Sequence[int], details: Rejections) -> Tally:
    """Return the tally with these counts, which are in the order of ``RUNNING_TALLY``."""
    rejected, of_children, waited, shadowed, as_further, elsewhere = counts
    return Tally(
        rejected,
        of_children,
        waited,
        details.asked,
        shadowed,
        as_further,
        elsewhere,
        details.refusals,
    )


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
    details = decode_rejections(rejections_text(item, FINISHED_REJECTIONS), state.indexes)
    return OriginHour(
        state.origin,
        finished,
        used,
        _amount(item, FINISHED_ADMITTED),
        _tally(item, FINISHED_TALLY, details),
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


def rejections_text(item: Item, name: str = REJECTIONS) -> str:
    """Return the stored text about rejections; empty if there is none."""
    value = item.get(name)
    return "" if value is None else text(value)


def encode_rejections(details: Rejections, indexes: Mapping[str, int]) -> str:
    """Return stored text. Limits that were asked for have indexes, which are shorter than names."""
    asked, refusals = details
    numbers: dict[str, int] = {}
    for name, index in indexes.items() if asked else ():
        numbers.setdefault(plain_name(name), index)
    amounts = ",".join(f"{numbers.get(name, name)}={amount}" for name, amount in asked.items())
    return amounts if refusals is None else f"{amounts};{_encode(refusals.stored())}"


def decode_rejections(stored: str, indexes: Mapping[str, int]) -> Rejections:
    """Return amounts by plain name; an index without a limit is left out."""
    if not stored:
        return NO_REJECTIONS
    amounts, _, refusals = stored.partition(";")
    names = {str(index): plain_name(name) for name, index in indexes.items()}
    asked: dict[str, int] = {}
    for part in amounts.split(",") if amounts else ():
        key, _, amount = part.partition("=")
        if key in names or not key.isdecimal():
            asked[names.get(key, key)] = int(amount)
    return Rejections(asked, Refusals.from_stored(*json.loads(refusals)) if refusals else None)


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
    names = [FINISHED, FINISHED_ADMITTED, *FINISHED_TALLY, FINISHED_REJECTIONS]
    for index in state.indexes.values():
        names.append(f"{FINISHED_NET}{index}")
        if state.has_children:
            names.append(f"{FINISHED_CHILDREN}{index}")
    return names


def _amount(item: Item, name: str) -> int:
    value = item.get(name)
    return 0 if value is None else int(value["N"])

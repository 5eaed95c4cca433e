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
from typing import NamedTuple

from zae_limiter.admission.in_force import plain_name
from zae_limiter.admission.tally import NO_TALLY, Refusals, Tally
from zae_limiter.admission.usage import HourUsage
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.items.stored.attributes import Item, integer, n, s, text
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update import ItemUpdate
from zae_limiter.items.stored.usage.day_row import day_of
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


class ItemHours(NamedTuple):
    """The hours that an item counts, and the indexes of its limits by stored name."""

    origin: str
    hour: int  # that runs
    finished: HourUsage | None  # that has ended, and may not be stored yet
    indexes: Mapping[str, int]
    has_children: bool  # whether the item counts consumption through children
    used_by_children: frozenset[int] = frozenset()  # indexes of those limits, when it was decoded

    @property
    def closes_day(self) -> bool:
        """Whether the finished hour is the last of its day: the running hour follows it."""
        return self.finished is not None and day_of(self.finished.hour) != day_of(self.hour)


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


def decode(item: Item) -> ItemHours:
    """Return the hours of a bucket item."""
    indexes = limit_indexes_of(item)
    through = through_children(item, indexes)
    return ItemHours(
        text(item[ORIGIN]),
        integer(item[HOUR]),
        finished_hour(item, indexes),
        indexes,
        bool(through),
        frozenset(indexes[name] for name, amount in through.items() if amount),
    )


def decode_without_children(item: Item, before: ItemHours) -> ItemHours:
    """Return the hours of an item in which no child counts.

    ``before`` is an earlier state with the same origin and limits.
    """
    return ItemHours(
        before.origin,
        integer(item[HOUR]),
        finished_hour(item, before.indexes),
        before.indexes,
        has_children=False,
    )


def through_children(item: Item, indexes: Mapping[str, int]) -> dict[str, int]:
    """Return what children have counted in the running hour, by stored name of the limit."""
    return {
        name: integer(item[attribute])
        for name, index in indexes.items()
        if (attribute := f"{CHILDREN}{index}") in item
    }


def consumed_before(item: Item, index: int) -> int:
    """Return the consumption of a limit before the running hour."""
    return amount_of(item, f"{BEGAN}{index}")


def running_tally(item: Item, indexes: Mapping[str, int]) -> Tally:
    """Return the counts of rejected, shadowed and waiting acquires of the running hour."""
    return _tally(item, RUNNING_TALLY, decode_rejections(rejections_text(item), indexes))


def _tally(item: Item, names: Sequence[str], details: Tally) -> Tally:
    counts = [amount_of(item, name) for name in names]
    if not any(counts) and not details.asked:
        return NO_TALLY  # most are empty, and caches keep them
    return tally_of(counts, details)


def counts_of(tally: Tally) -> tuple[int, int, int, int, int, int]:
    """Return the counts of a tally in the order of ``RUNNING_TALLY``."""
    rejected, of_children, waited, _, shadowed, as_further, elsewhere, _ = tally
    return rejected, of_children, waited, shadowed, as_further, elsewhere


def tally_of(counts: Sequence[int], details: Tally) -> Tally:
    """Return a tally with these counts, which are in the order of ``RUNNING_TALLY``."""
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


def finished_hour(item: Item, indexes: Mapping[str, int]) -> HourUsage | None:
    """Return the finished hour that the item still holds; None if there is none."""
    if FINISHED not in item:
        return None
    used: dict[str, int] = {}
    through: dict[str, int] = {}
    for name, index in indexes.items():
        net = item.get(f"{FINISHED_NET}{index}")
        counted_as = _usage_name(name, item[_PARAMETERS + name]["S"])
        if net is None or counted_as is None:  # the limit was added after the hour, or has slots
            continue
        used[counted_as] = used.get(counted_as, 0) + integer(net)
        if of_children := amount_of(item, f"{FINISHED_CHILDREN}{index}"):
            through[counted_as] = through.get(counted_as, 0) + of_children
    details = decode_rejections(rejections_text(item, FINISHED_REJECTIONS), indexes)
    return HourUsage(
        integer(item[FINISHED]),
        used,
        amount_of(item, FINISHED_ADMITTED),
        through,
        _tally(item, FINISHED_TALLY, details),
    )


def still_holds_finished(item: Item | None, before: ItemHours) -> bool | None:
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


def encode_rejections(tally: Tally, indexes: Mapping[str, int]) -> str:
    """Return the stored text of a tally's details: the largest amounts, and what refused.

    Limits that were asked for have indexes, which are shorter than names.
    """
    asked, refusals = tally.asked, tally.refusals
    numbers: dict[str, int] = {}
    for name, index in indexes.items() if asked else ():
        numbers.setdefault(plain_name(name), index)
    amounts = ",".join(f"{numbers.get(name, name)}={amount}" for name, amount in asked.items())
    return amounts if refusals is None else f"{amounts};{_encode(refusals.stored())}"


def decode_rejections(stored: str, indexes: Mapping[str, int]) -> Tally:
    """Return a tally with nothing but details; an index without a limit is left out."""
    if not stored:
        return NO_TALLY
    amounts, _, refusals = stored.partition(";")
    names = {str(index): plain_name(name) for name, index in indexes.items()}
    asked: dict[str, int] = {}
    for part in amounts.split(",") if amounts else ():
        key, _, amount = part.partition("=")
        if key in names or not key.isdecimal():
            asked[names.get(key, key)] = int(amount)
    refused = Refusals.from_stored(*json.loads(refusals)) if refusals else None
    return Tally(asked=asked, refusals=refused)


def clear(key: Key, state: ItemHours) -> ItemUpdate:
    """Remove the stored finished hour of ``state``, unless another hour has replaced it."""
    assert state.finished is not None
    update = ItemUpdate(key, is_usual=True)
    update.equal(ORIGIN, state.origin)
    update.equal(FINISHED, state.finished.hour)
    for name in finished_attributes(state):
        update.remove(name)
    return update


def finished_attributes(state: ItemHours) -> list[str]:
    """Return the names of all attributes of a finished hour."""
    names = [FINISHED, FINISHED_ADMITTED, *FINISHED_TALLY, FINISHED_REJECTIONS]
    for index in state.indexes.values():
        names.append(f"{FINISHED_NET}{index}")
        if state.has_children:
            names.append(f"{FINISHED_CHILDREN}{index}")
    return names


def amount_of(item: Item, name: str) -> int:
    value = item.get(name)
    return 0 if value is None else int(value["N"])

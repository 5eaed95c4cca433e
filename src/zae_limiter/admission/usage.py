"""Usage by the hour: one record, whatever it was counted in, and its way out of a bucket.

A bucket counts its open hour in numbers of its own: what was consumed less what was counted before,
and likewise the admitted acquires. They are written together with the balance, so every token is
counted exactly once. A write to an embedded bucket first closes an hour that is over (``roll``); an
item is turned by the store (``items.buckets.turning``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from zae_limiter.admission.image import HOUR_MS, BucketImage, Rate, is_slots
from zae_limiter.admission.in_force import InForce, plain_name
from zae_limiter.admission.quotas import held_usage
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.models.timestamps import MILLI
from zae_limiter.naming import CURRENCY, usage_name

NO_AMOUNTS: Mapping[str, int] = MappingProxyType({})


class HourUsage(NamedTuple):
    """The usage of one hour, net of refunds: of a bucket, of one of its items, or of a sum of them.

    Amounts are millitokens, and those of budgets billionths of a currency unit, by the names that
    ``usage_name`` makes.
    """

    hour: int  # since 1970
    used: Mapping[str, int] = NO_AMOUNTS
    admitted: int = 0  # acquires
    through_children: Mapping[str, int] = NO_AMOUNTS  # the part of ``used`` that children count too
    tally: Tally = NO_TALLY  # acquires that were not just admitted

    @property
    def is_empty(self) -> bool:
        """Tell whether no token was used or given back, and no acquire was counted."""
        return (
            not self.admitted
            and self.tally.is_empty
            and not any(self.used.values())
            and not any(self.through_children.values())
        )

    def plus(self, other: HourUsage) -> HourUsage:
        """Return the sum of two usages, with the hour of the first one."""
        return HourUsage(
            self.hour,
            _sum(self.used, other.used),
            self.admitted + other.admitted,
            _sum(self.through_children, other.through_children),
            self.tally.plus(other.tally),
        )

    def rounded_down(self) -> HourUsage:
        """Return the usage without fractions of tokens, which only shards have."""
        return self._replace(
            used=milli_of(whole_amounts(self.used)),
            through_children=milli_of(whole_amounts(self.through_children)),
        )


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    sums = dict(first)
    for name, amount in second.items():
        sums[name] = sums.get(name, 0) + amount
    return sums


def total_of(usages: Iterable[HourUsage]) -> HourUsage:
    """Return the sum of at least one usage."""
    first, *others = usages
    for other in others:
        first = first.plus(other)
    return first


class BucketHour(NamedTuple):
    """One hour of one bucket, rounded down. Usage reports are sums of these."""

    entity_id: str
    resource: str
    usage: HourUsage


def with_through_children(
    before: Mapping[str, int] | None, amounts: Mapping[str, int]
) -> Mapping[str, int] | None:
    """Return the usage through children, by plain name, with amounts by stored name added."""
    if not any(amounts.values()):
        return before
    sums = {} if before is None else dict(before)
    for key, amount in amounts.items():
        if amount:
            name = plain_name(key)
            sums[name] = sums.get(name, 0) + amount
    return sums


def without_holds(image: BucketImage, now_ms: int | None = None) -> BucketImage:
    """Return the bucket without the usage of what calls hold of quotas.

    Given a moment, it is only without that of dead calls, which has expired by then.
    """
    limits, of_children = dict(image.limits), dict[str, int]()
    for key, state in image.limits.items():
        units, units_of_children = held_usage(state, now_ms)
        if units:
            limits[key] = replace(state, consumed_milli=state.consumed_milli - units)
            of_children[key] = -units_of_children
    if not of_children:
        return image
    through = with_through_children(image.through_children, of_children)
    return image._replace(limits=limits, through_children=through)


def late_usage(late: Mapping[str, tuple[int, int]], now_ms: int, in_force: InForce) -> HourUsage:
    """Return usage that no bucket counts, since it is settled after the bucket or limit has gone.

    ``late`` has all of it by stored name, and the part that came through children.
    """
    names = {key: in_force.usage_name(key) for key in late}
    used = {key: units for key, (units, _) in late.items()}
    through = {key: of_child for key, (_, of_child) in late.items() if of_child}
    return HourUsage(now_ms // HOUR_MS, _named(used, names), 0, _named(through, names))


def open_hour(image: BucketImage) -> HourUsage:
    """Return the usage of the hour that is still open."""
    used = {
        key: state.consumed_milli - state.counted_milli
        for key, state in image.limits.items()
        if not is_slots(state.rate)  # slots are not counted as usage
    }
    names = {
        key: usage_name(plain_name(key), currency_of(state.rate))
        for key, state in image.limits.items()
    }
    through = image.through_children or NO_AMOUNTS
    if through:
        names = {plain_name(key): name for key, name in names.items()} | names
    return HourUsage(
        image.hour,
        _named(used, names),
        image.admitted - image.admitted_counted,
        _named(through, names),
        image.tally,
    )


def roll(image: BucketImage, now_ms: int) -> tuple[BucketImage, HourUsage | None]:
    """Return the bucket with the hour of ``now_ms`` open, and the usage of the closed hour if any.

    If the stamp is earlier than the hour, because a clock went back, the hour stays open.
    """
    hour = now_ms // HOUR_MS
    if hour <= image.hour:
        return image, None
    limits = {
        key: replace(state, counted_milli=state.consumed_milli)
        for key, state in image.limits.items()
    }
    rolled = image._replace(
        limits=limits,
        hour=hour,
        admitted_counted=image.admitted,
        through_children=None,
        tally=NO_TALLY,
    )
    closed = open_hour(image)
    return rolled, None if closed.is_empty else closed


def _named(amounts_milli: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    """Add up amounts by stored name under the names of their usage."""
    sums: dict[str, int] = {}
    for key, amount_milli in amounts_milli.items():
        name = names.get(key, key)
        sums[name] = sums.get(name, 0) + amount_milli
    return sums


def currency_of(rate: Rate) -> str | None:
    """Return the currency of a budget; None for other limits."""
    return None if rate.terms is None else rate.terms.currency


def whole_amounts(amounts_milli: Mapping[str, int]) -> dict[str, int]:
    """Return whole tokens; the billionths of budgets stay, since no money may be lost."""
    return {
        name: amount if CURRENCY in name else amount // MILLI
        for name, amount in amounts_milli.items()
    }


def milli_of(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the millitokens of whole tokens; the billionths of budgets stay."""
    return {
        name: amount if CURRENCY in name else amount * MILLI for name, amount in amounts.items()
    }

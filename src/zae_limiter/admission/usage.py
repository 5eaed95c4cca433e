"""Usage by the hour, from the counters of the buckets themselves.

Every write first closes the window of an earlier hour, so that all consumption since
``counted_milli`` belongs to ``window_hour``. The counters are written together with the balance, so
every token is counted exactly once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from zae_limiter.admission.image import HOUR_MS, BucketImage, Rate, is_slots
from zae_limiter.admission.in_force import InForce, plain_name
from zae_limiter.admission.quotas import dead_holds, through_children
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.models.timestamps import MILLI
from zae_limiter.naming import CURRENCY, usage_name

NO_TOKENS: Mapping[str, int] = MappingProxyType({})


class WindowUsage(NamedTuple):
    """The usage of one bucket in one hour, net of refunds, by the names that ``usage_name`` makes.

    Amounts are whole tokens, and those of budgets billionths of a currency unit.
    ``through_children`` is the part of ``counters`` that cascaded from children, which the children
    count as well. ``events`` counts admitted acquires; ``tally`` counts rejected,
    shadowed and waiting ones and is approximate.
    """

    hour: int
    counters: Mapping[str, int]
    events: int
    through_children: Mapping[str, int] = NO_TOKENS
    tally: Tally = NO_TALLY

    @property
    def is_empty(self) -> bool:
        """Tell whether no token was used or given back, and no acquire was counted."""
        return (
            not self.events
            and self.tally.is_empty
            and not any(self.counters.values())
            and not any(self.through_children.values())
        )

    def plus(self, other: WindowUsage) -> WindowUsage:
        """Return the sum of the two usages."""
        return WindowUsage(
            self.hour,
            added(self.counters, other.counters),
            self.events + other.events,
            added(self.through_children, other.through_children),
            self.tally.plus(other.tally),
        )


def added(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of the amounts of each name."""
    sums = dict(first)
    for name, amount in second.items():
        sums[name] = sums.get(name, 0) + amount
    return sums


class BucketHour(NamedTuple):
    """One hour of one bucket. Usage reports are sums of these."""

    entity_id: str
    resource: str
    usage: WindowUsage


def with_through_child(
    before_milli: Mapping[str, int] | None, amounts_milli: Mapping[str, int], names: Collection[str]
) -> Mapping[str, int] | None:
    """Return the usage through children with more amounts (by stored name) added; None if empty.

    ``names`` are the limits that the child counts as well.
    """
    sums = {} if before_milli is None else dict(before_milli)
    for key, amount_milli in amounts_milli.items():
        name = key if key in names else plain_name(key)
        if amount_milli and name in names:
            sums[name] = sums.get(name, 0) + amount_milli
    return sums or None


class HeldUsage(NamedTuple):
    """Usage that calls hold of a quota, and the part of it that children hold as well."""

    units: int
    through_children: int


def held_usage(image: BucketImage, now_ms: int | None = None) -> dict[str, HeldUsage]:
    """Return the usage that calls hold of quotas, by stored name.

    Given a moment, it is only that of dead calls, which has expired by then.
    """
    found = {}
    for key, state in image.limits.items():
        if state.quota is not None and state.quota.holds:
            held = state.quota.holds if now_ms is None else dead_holds(state, now_ms)
            if held:
                found[key] = HeldUsage(sum(held.values()), through_children(held))
    return found


def without_holds(image: BucketImage, now_ms: int | None = None) -> BucketImage:
    """Return the bucket without the usage that calls hold of quotas, see ``held_usage``."""
    held = held_usage(image, now_ms)
    if not held:
        return image
    limits = dict(image.limits)
    for key, each in held.items():
        state = limits[key]
        limits[key] = replace(state, consumed_milli=state.consumed_milli - each.units)
    of_children = {key: -each.through_children for key, each in held.items()}
    through = with_units_through_children(image.through_children, of_children)
    return image._replace(limits=limits, through_children=through)


def with_units_through_children(
    before_milli: Mapping[str, int] | None, units: Mapping[str, int]
) -> Mapping[str, int] | None:
    """Return the usage through children with units of quotas (by stored name) added."""
    if not any(units.values()):
        return before_milli
    return with_through_child(before_milli, units, {plain_name(key) for key in units})


def late_credit(
    amounts_milli: Mapping[str, int],
    now_ms: int,
    in_force: InForce,
    through_child: Collection[str] = (),
) -> WindowUsage:
    """Return the negative usage that a credit to a deleted bucket adds to the counted usage."""
    names = {key: in_force.usage_name(key) for key in amounts_milli}
    of_child = {
        key: amount for key, amount in amounts_milli.items() if plain_name(key) in through_child
    }
    return WindowUsage(
        now_ms // HOUR_MS,
        whole_amounts(_summed(amounts_milli, names)),
        0,
        whole_amounts(_summed(of_child, names)),
    )


def open_window(image: BucketImage) -> WindowUsage | None:
    """Return the usage of the window that is still open; None if it is empty."""
    used_milli = {
        key: state.consumed_milli - state.counted_milli
        for key, state in image.limits.items()
        if not is_slots(state.rate)  # slots are not counted as usage
    }
    names = {
        key: usage_name(plain_name(key), currency_of(state.rate))
        for key, state in image.limits.items()
    }
    window = WindowUsage(
        image.window_hour,
        whole_amounts(_summed(used_milli, names)),
        image.admitted - image.admitted_counted,
        whole_amounts(_through_children(image, names)),
        image.tally,
    )
    return None if window.is_empty else window


def _through_children(image: BucketImage, names: Mapping[str, str]) -> Mapping[str, int]:
    """Return the amounts through children, which an image has by plain name."""
    if not image.through_children:
        return NO_TOKENS
    by_plain_name = {plain_name(key): name for key, name in names.items()}
    return {
        by_plain_name.get(name, name): amount for name, amount in image.through_children.items()
    }


def roll(image: BucketImage, now_ms: int) -> tuple[BucketImage, WindowUsage | None]:
    """Return the bucket with its window moved to ``now_ms``, and the usage of the closed window.

    If the stamp is earlier than the window, because a clock went back, the window stays open.
    """
    hour = now_ms // HOUR_MS
    if hour <= image.window_hour:
        return image, None
    limits = {
        key: replace(state, counted_milli=state.consumed_milli)
        for key, state in image.limits.items()
    }
    rolled = image._replace(
        limits=limits,
        window_hour=hour,
        admitted_counted=image.admitted,
        through_children=None,
        tally=NO_TALLY,
    )
    return rolled, open_window(image)


def _summed(amounts_milli: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    """Sum amounts by stored name under the names of their usage."""
    sums: dict[str, int] = {}
    for key, amount_milli in amounts_milli.items():
        name = names[key]
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

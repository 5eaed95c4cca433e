"""Usage by the hour, from the counters of the buckets themselves.

Every write first closes the window of an earlier hour, so that all that a bucket has consumed since
``counted_milli`` belongs to ``window_hour``. Nothing is counted twice and nothing is missed: the
counters are written together with the balance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from zae_limiter.admission.image import HOUR_MS, BucketImage, is_slots
from zae_limiter.admission.in_force import plain_name
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.models.timestamps import MILLI

NO_TOKENS: Mapping[str, int] = MappingProxyType({})


class WindowUsage(NamedTuple):
    """What one bucket used in one hour, in whole tokens, net of refunds.

    ``through_children`` is the part of ``counters`` that cascaded from children, which count it,
    too. ``events`` counts admitted acquires, ``tally`` those that were rejected or have waited
    (approximate).
    """

    hour: int
    counters: Mapping[str, int]
    events: int
    through_children: Mapping[str, int] = NO_TOKENS
    tally: Tally = NO_TALLY

    @property
    def is_empty(self) -> bool:
        """Whether nothing was used or given back, and no acquire was rejected or has waited."""
        return not (
            self.events
            or not self.tally.is_empty
            or any(self.counters.values())
            or any(self.through_children.values())
        )

    def plus(self, other: WindowUsage) -> WindowUsage:
        """Return the sum of both."""
        return WindowUsage(
            self.hour,
            added(self.counters, other.counters),
            self.events + other.events,
            added(self.through_children, other.through_children),
            self.tally.plus(other.tally),
        )


def added(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """Return the sums by name."""
    sums = dict(first)
    for name, amount in second.items():
        sums[name] = sums.get(name, 0) + amount
    return sums


class BucketHour(NamedTuple):
    """One hour of one bucket, as usage reports add them up."""

    entity_id: str
    resource: str
    usage: WindowUsage


def with_through_child(
    before_milli: Mapping[str, int] | None, amounts_milli: Mapping[str, int], names: Collection[str]
) -> Mapping[str, int] | None:
    """Return what came through children, with amounts by stored name; None for nothing.

    ``names`` are the limits that the child counts, too.
    """
    sums = {} if before_milli is None else dict(before_milli)
    for key, amount_milli in amounts_milli.items():
        name = key if key in names else plain_name(key)
        if amount_milli and name in names:
            sums[name] = sums.get(name, 0) + amount_milli
    return sums or None


def late_credit(
    amounts_milli: Mapping[str, int], now_ms: int, through_child: Collection[str] = ()
) -> WindowUsage:
    """Return what a credit to a deleted bucket takes back from the usage already counted."""
    return WindowUsage(
        now_ms // HOUR_MS,
        _whole_tokens(_named_alike(amounts_milli, None)),
        0,
        _whole_tokens(_named_alike(amounts_milli, through_child)),
    )


def open_window(image: BucketImage) -> WindowUsage | None:
    """Return the usage of the window that is still open; None if there is none."""
    used_milli = {
        key: state.consumed_milli - state.counted_milli
        for key, state in image.limits.items()
        if not is_slots(state.rate)  # slots are no usage
    }
    window = WindowUsage(
        image.window_hour,
        _whole_tokens(_named_alike(used_milli, None)),
        image.admitted - image.admitted_counted,
        _whole_tokens(image.through_children or NO_TOKENS),
        image.tally,
    )
    return None if window.is_empty else window


def roll(image: BucketImage, now_ms: int) -> tuple[BucketImage, WindowUsage | None]:
    """Return the bucket with its window moved to ``now_ms``, and the window that this closed.

    A stamp earlier than the window (a clock that went back) counts for the open window.
    """
    hour = now_ms // HOUR_MS
    if hour <= image.window_hour:
        return image, None
    limits = {
        key: state._replace(counted_milli=state.consumed_milli)
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


def _named_alike(amounts_milli: Mapping[str, int], names: Collection[str] | None) -> dict[str, int]:
    """Sum amounts by stored name under their plain names; only those of ``names``, if given."""
    sums: dict[str, int] = {}
    for key, amount_milli in amounts_milli.items():
        name = plain_name(key)
        if names is None or name in names:
            sums[name] = sums.get(name, 0) + amount_milli
    return sums


def _whole_tokens(amounts_milli: Mapping[str, int]) -> dict[str, int]:
    return {name: amount // MILLI for name, amount in amounts_milli.items()}

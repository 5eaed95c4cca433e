"""Usage by the hour, from the counters of the buckets themselves.

Every write first closes the window of an earlier hour, so that all that a bucket has consumed since
``counted_milli`` belongs to ``window_hour``. Nothing is counted twice and nothing is missed: the
counters are written together with the balance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.admission.image import HOUR_MS, BucketImage
from zae_limiter.admission.in_force import plain_name
from zae_limiter.models.limit import MILLI


class WindowUsage(NamedTuple):
    """What one bucket used in one hour, in whole tokens."""

    hour: int
    counters: dict[str, int]
    events: int

    def plus(self, other: WindowUsage) -> WindowUsage:
        """Return the sum of both."""
        counters = dict(self.counters)
        for name, amount in other.counters.items():
            counters[name] = counters.get(name, 0) + amount
        return WindowUsage(self.hour, counters, self.events + other.events)


class BucketHour(NamedTuple):
    """One hour of one bucket, as usage reports add them up."""

    entity_id: str
    resource: str
    usage: WindowUsage


def late_credit(amounts_milli: Mapping[str, int], now_ms: int) -> WindowUsage:
    """Return what a credit to a deleted bucket takes back from the usage already counted."""
    counters: dict[str, int] = {}
    for key, amount_milli in amounts_milli.items():
        name = plain_name(key)
        counters[name] = counters.get(name, 0) + amount_milli // MILLI
    return WindowUsage(now_ms // HOUR_MS, counters, 0)


def open_window(image: BucketImage) -> WindowUsage | None:
    """Return the usage of the window that is still open; None if there is none."""
    counters: dict[str, int] = {}
    for key, state in image.limits.items():
        used_milli = state.consumed_milli - state.counted_milli
        name = plain_name(key)
        counters[name] = counters.get(name, 0) + used_milli // MILLI
    events = image.admitted - image.admitted_counted
    if not events and not any(counters.values()):
        return None
    return WindowUsage(image.window_hour, counters, events)


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
    rolled = image._replace(limits=limits, window_hour=hour, admitted_counted=image.admitted)
    return rolled, open_window(image)

"""Usage: what was consumed in a window of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class WindowType(StrEnum):
    """Lengths of usage windows; they start on the hour, at midnight UTC, and on the first."""

    HOURLY = "hourly"
    DAILY = "daily"
    MONTHLY = "monthly"

    @property
    def unit(self) -> str:
        """``hour``, ``day`` or ``month``."""
        return {"hourly": "hour", "daily": "day", "monthly": "month"}[self]


WindowName = WindowType | Literal["hourly", "daily", "monthly"]  # a typo is a type error


@dataclass(frozen=True, slots=True)
class UsageSnapshot:
    """Net consumption per limit (whole tokens) and admitted acquires of one window.

    ``counters`` may be negative: a refund counts in the hour in which it is written.
    ``through_children`` is the part of ``counters`` that cascaded from children, whose own
    snapshots count it, too. ``rejected`` counts acquires that ended in a rejection;
    ``rejected_through_children`` of them were acquires of children, whose own snapshots count
    them, too. ``waited`` counts acquires that waited, however they ended. ``rejected_amounts`` is
    the largest rejected amount of each limit. These four are approximate.
    """

    entity_id: str
    resource: str
    window_start: str
    window_end: str
    window_type: str
    counters: dict[str, int]
    total_events: int
    through_children: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    waited: int = 0
    rejected_through_children: int = 0
    rejected_amounts: dict[str, int] = field(default_factory=dict)

    @property
    def own(self) -> dict[str, int]:
        """``counters`` without what came through children: over entities, each token once."""
        through = self.through_children
        return {name: amount - through.get(name, 0) for name, amount in self.counters.items()}


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Totals over a set of snapshots, and averages per hour, day or month in which there was use.

    ``total`` of one entity is all that it has used. Over several entities it counts each token
    once: what parents used through their children is in ``through_children`` alone.
    ``snapshot_count`` counts snapshots, ``window_count`` the hours (days, months) with use, by
    which ``average`` divides. ``rejected`` counts acquires that ended in a rejection, over several
    entities each of them once; ``waited`` those that waited. Both are approximate.
    """

    snapshot_count: int
    total: dict[str, int]
    average: dict[str, float]
    min_window_start: str | None
    max_window_start: str | None
    through_children: dict[str, int] = field(default_factory=dict)
    window_count: int = 0
    rejected: int = 0
    waited: int = 0


@dataclass(frozen=True, slots=True)
class EntityUsage:
    """What one entity used in a span of time, on one resource or on all.

    ``counters`` are net tokens by limit, of which ``through_children`` cascaded from children.
    ``rejected`` and ``waited`` count acquires, of a parent also those of its children that it
    rejected; they are approximate.
    """

    entity_id: str
    counters: dict[str, int]
    through_children: dict[str, int]
    total_events: int
    rejected: int
    waited: int = 0


@dataclass(frozen=True, slots=True)
class UsageRanking:
    """The largest consumers of the hours from ``start_time`` to ``end_time``.

    ``by`` is the limit whose tokens are compared; None compares admitted acquires. ``consumers``
    are ranked by what they used themselves. ``parents``, which use tokens through their children,
    are ranked apart, by everything that counts for them: otherwise they would always come first.
    """

    by: str | None
    start_time: str
    end_time: str
    consumers: list[EntityUsage]
    parents: list[EntityUsage]

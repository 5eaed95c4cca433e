"""Usage: the consumption in a window of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from zae_limiter.refusal import LimitedBy


class WindowType(StrEnum):
    """The lengths of usage windows. Days begin at midnight UTC, months on their first day."""

    HOURLY = "hourly"
    DAILY = "daily"
    MONTHLY = "monthly"

    @property
    def unit(self) -> str:
        """``hour``, ``day`` or ``month``."""
        return {"hourly": "hour", "daily": "day", "monthly": "month"}[self]


WindowName = WindowType | Literal["hourly", "daily", "monthly"]  # a typo is a type error


def money_label(name: str, currency: str | None) -> str:
    """Return the name of a limit with the unit of its amounts: ``rpm``, or ``usd (USD)``."""
    return f"{name} ({currency})" if currency else name


@dataclass(frozen=True, slots=True)
class UsageSnapshot:
    """Net consumption per limit (whole tokens) and admitted acquires of one window.

    Amounts of budgets are Decimal, in the currency units that ``currencies`` names.

    ``counters`` may be negative, since a refund counts in the hour in which it is written.
    ``through_children`` is the part of ``counters`` that cascaded from children; the children's own
    snapshots count it as well.

    ``total_events`` counts every acquire that the bucket admitted. ``events_elsewhere`` of them are
    calls of another bucket: of a child, or of an acquire that named another resource first.
    ``calls`` leaves them out, so that a sum over buckets counts each call once.

    ``rejected`` counts acquires that ended in a rejection. ``rejected_through_children`` of them
    were acquires of children, and ``rejected_as_further`` of them named another resource first; the
    snapshots of the children and of the first resource count them as well, and ``rejected_calls``
    leaves them out. ``waited`` counts acquires that waited, whether they
    were granted or rejected. ``rejected_amounts`` is the largest rejected amount of each limit.
    ``shadowed`` counts acquires that would have been rejected and that shadow mode let through, at
    the entity that asked. ``limited_by`` is what rejected most of them, and ``last_limited_by``
    what rejected the last one, at ``last_rejected_at``; None without a rejection. All these are
    approximate.
    """

    entity_id: str
    resource: str
    window_start: str
    window_end: str
    window_type: str
    counters: dict[str, Any]
    total_events: int
    through_children: dict[str, Any] = field(default_factory=dict)
    rejected: int = 0
    waited: int = 0
    rejected_through_children: int = 0
    rejected_amounts: dict[str, Any] = field(default_factory=dict)
    currencies: dict[str, str] = field(default_factory=dict)
    shadowed: int = 0
    events_elsewhere: int = 0
    rejected_as_further: int = 0
    limited_by: LimitedBy | None = None
    last_limited_by: LimitedBy | None = None
    last_rejected_at: str | None = None

    @property
    def calls(self) -> int:
        """The admitted acquires of this entity that named this resource first."""
        return self.total_events - self.events_elsewhere

    @property
    def rejected_calls(self) -> int:
        """The rejected acquires of this entity that named this resource first."""
        return self.rejected - self.rejected_through_children - self.rejected_as_further

    @property
    def own(self) -> dict[str, Any]:
        """``counters`` without ``through_children``; a sum over entities counts a token once."""
        through = self.through_children
        return {name: amount - through.get(name, 0) for name, amount in self.counters.items()}


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Totals over a set of snapshots, and averages per hour, day or month with usage.

    For one entity, ``total`` is its whole usage. Over several entities, ``total`` counts each token
    once: usage of parents through their children is in ``through_children`` alone.
    ``snapshot_count`` is the number of snapshots. ``window_count`` is the number of hours, days or
    months with usage; ``average`` is ``total`` divided by it. ``calls`` counts admitted acquires,
    each at the entity and at the resource that it named first. ``rejected`` counts acquires that
    ended in a rejection, each of them once, and ``rejected_calls`` those of them that are calls as
    ``calls`` counts them; over a whole namespace both are the same. ``waited`` counts acquires that
    waited, and ``shadowed`` those that shadow mode let through instead of rejecting them.
    ``limited_by`` is what rejected most of them; None without a rejection. The counts of other
    acquires than admitted ones are approximate. Amounts of budgets are Decimal, in
    the currency units that ``currencies`` names.
    """

    snapshot_count: int
    total: dict[str, Any]
    average: dict[str, Any]
    min_window_start: str | None
    max_window_start: str | None
    through_children: dict[str, Any] = field(default_factory=dict)
    window_count: int = 0
    rejected: int = 0
    waited: int = 0
    currencies: dict[str, str] = field(default_factory=dict)
    shadowed: int = 0
    calls: int = 0
    rejected_calls: int = 0
    limited_by: LimitedBy | None = None


@dataclass(frozen=True, slots=True)
class EntityUsage:
    """The usage of one entity in a span of time, on one resource or on all resources.

    ``counters`` are net tokens by limit, of which ``through_children`` cascaded from children.
    ``calls`` are the admitted acquires of the entity itself, each counted once at the resource that
    it named first, and ``rejected_calls`` the rejected ones. ``total_events`` and ``rejected`` are
    sums over buckets: an acquire counts in each bucket that was charged or has rejected it, those
    of the parent included; ``events_elsewhere`` and ``rejected_elsewhere`` are the differences.
    ``waited`` and ``shadowed`` (let through by shadow mode instead of rejected) count acquires.
    Counts of other acquires than admitted ones are approximate. Amounts of budgets are Decimal, in
    the currency units that ``currencies`` names.
    """

    entity_id: str
    counters: dict[str, Any]
    through_children: dict[str, Any]
    total_events: int
    rejected: int
    waited: int = 0
    currencies: dict[str, str] = field(default_factory=dict)
    shadowed: int = 0
    events_elsewhere: int = 0
    rejected_elsewhere: int = 0

    @property
    def calls(self) -> int:
        """The admitted acquires of the entity itself."""
        return self.total_events - self.events_elsewhere

    @property
    def rejected_calls(self) -> int:
        """The rejected acquires of the entity itself."""
        return self.rejected - self.rejected_elsewhere


@dataclass(frozen=True, slots=True)
class UsageRanking:
    """The largest consumers of the hours from ``start_time`` to ``end_time``.

    ``by`` is the limit whose tokens are compared; with None, calls are compared, and of parents
    ``total_events``.
    ``consumers`` are ranked by their own usage. ``parents`` use tokens through their children and
    are ranked apart, by their whole usage, since they would always come first otherwise.
    ``limit_names`` are the limits that have usage in these hours.
    """

    by: str | None
    start_time: str
    end_time: str
    consumers: list[EntityUsage]
    parents: list[EntityUsage]
    limit_names: tuple[str, ...] = ()

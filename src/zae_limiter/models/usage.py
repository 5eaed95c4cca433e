"""Usage: what was consumed in a window of time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class WindowType(StrEnum):
    """Lengths of usage windows; they start on the hour and at midnight UTC."""

    HOURLY = "hourly"
    DAILY = "daily"


WindowName = WindowType | Literal["hourly", "daily"]  # a typo is a type error


@dataclass(frozen=True, slots=True)
class UsageSnapshot:
    """Net consumption per limit (whole tokens) and admitted acquires of one window."""

    entity_id: str
    resource: str
    window_start: str
    window_end: str
    window_type: str
    counters: dict[str, int]
    total_events: int


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Totals and averages per window over a set of snapshots."""

    snapshot_count: int
    total: dict[str, int]
    average: dict[str, float]
    min_window_start: str | None
    max_window_start: str | None

"""Counters of one worker, and their sum over all workers as Prometheus text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
PREFIX = "zae_limiter_service"

Labels = tuple[tuple[str, str], ...]
Snapshot = list[list[Any]]  # name, labels, value
_BUCKETS: list[Labels] = [(("le", bound),) for bound in (*map(str, BOUNDS_S), "+Inf")]

HELP = {
    "requests_total": ("counter", "Requests by route and status"),
    "request_seconds": ("histogram", "Time from a request to its answer"),
    "decisions_total": ("counter", "Decisions by transport and result"),
    "leases_ended_total": ("counter", "Leases by their end"),
    "refused_total": ("counter", "Requests that were refused before they reached a route"),
    "leases_open": ("gauge", "Leases that are open"),
    "requests_in_progress": ("gauge", "Requests that run or wait"),
    "settlements_lost_total": ("counter", "Settlements that the store did not take"),
    "uncharged_total": ("counter", "Calls that were let through in an outage"),
    "file_reloads_total": ("counter", "Changed files that were taken up"),
    "file_reload_errors_total": ("counter", "Changed files that had a mistake"),
    "workers": ("gauge", "Workers that have answered"),
}


class ServiceCounters:
    """Counts, by name and labels."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Labels], float] = {}

    def add(self, name: str, labels: Labels = (), amount: float = 1) -> None:
        key = (name, labels)
        self._values[key] = self._values.get(key, 0) + amount

    def observe(self, name: str, seconds: float) -> None:
        """Count a duration in its bucket of a histogram."""
        self.add(f"{name}_bucket", _BUCKETS[bisect_left(BOUNDS_S, seconds)])
        self.add(f"{name}_sum", (), seconds)

    def value(self, name: str, **labels: str) -> float:
        return self._values.get((name, tuple(labels.items())), 0)

    def snapshot(self) -> Snapshot:
        """Return all counts as JSON values."""
        return [
            [name, list(map(list, labels)), value] for (name, labels), value in self._values.items()
        ]


def render(snapshots: Iterable[Snapshot]) -> str:
    """Return the sum of the counts of all workers in Prometheus' text format."""
    sums: dict[str, dict[Labels, float]] = {}
    for snapshot in snapshots:
        for name, pairs, value in snapshot:
            of_name = sums.setdefault(name, {})
            labels = tuple((key, text) for key, text in pairs)
            of_name[labels] = of_name.get(labels, 0) + value
    lines: list[str] = []
    for name, (kind, text) in HELP.items():
        lines += [f"# HELP {PREFIX}_{name} {text}", f"# TYPE {PREFIX}_{name} {kind}"]
        if kind == "histogram":
            lines += _histogram(name, sums)
        else:
            found = sums.get(name, {})
            lines += [_line(name, labels, value) for labels, value in sorted(found.items())]
    return "\n".join(lines) + "\n"


def _histogram(name: str, sums: dict[str, dict[Labels, float]]) -> list[str]:
    counts = {labels[0][1]: value for labels, value in sums.get(f"{name}_bucket", {}).items()}
    lines, total = [], 0.0
    for bound in [*map(str, BOUNDS_S), "+Inf"]:
        total += counts.get(bound, 0)
        lines.append(_line(f"{name}_bucket", (("le", bound),), total))
    lines.append(_line(f"{name}_sum", (), sums.get(f"{name}_sum", {}).get((), 0)))
    lines.append(_line(f"{name}_count", (), total))
    return lines


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    number = f"{int(value)}" if value == int(value) else f"{value:.6f}"
    return f"{PREFIX}_{name}{{{shown}}} {number}" if shown else f"{PREFIX}_{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

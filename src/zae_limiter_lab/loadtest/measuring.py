"""Figures of a running load test, read from Locust's statistics and from the processes."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from locust.stats import RequestStats, StatsEntry

from zae_limiter_lab.loadtest.report import (
    ACQUIRE,
    RATE_LIMITED,
    LoadReport,
    RequestFigures,
    WorkerFigures,
)
from zae_limiter_lab.loadtest.tuning import TuneStep
from zae_limiter_lab.locust import open_limiters

if TYPE_CHECKING:
    from locust.env import Environment

FIGURES = "zae_limiter"  # our part of a worker's report to its master
MAX_ERRORS = 20  # kinds of failures that a report names


def own_figures() -> dict[str, float]:
    """Return CPU and calls of this process so far."""
    repositories = [limiter.repository for limiter in open_limiters() if limiter.repository]
    stats = [repository.get_stats() for repository in repositories]
    return {
        "cpu_s": time.process_time(),
        "cpu_wait_s": _cpu_wait_s(),
        "wall_s": time.monotonic(),
        "writes": sum(each.writes for each in stats),
        "calls": sum(each.calls for each in stats),
        "lost_settlements": sum(each.lost_settlements for each in repositories),
    }


def _cpu_wait_s() -> float:
    """Return the seconds in which the main thread could run but had no core; 0 if unknown."""
    try:
        fields = Path("/proc/self/schedstat").read_text(encoding="ascii").split()
    except OSError:  # only Linux counts them
        return 0.0
    return int(fields[1]) / 10**9


def attach_figures(environment: Environment) -> None:
    """Send our figures with every report of a worker to its master."""

    def add(client_id: str, data: dict[str, Any]) -> None:
        data[FIGURES] = own_figures()

    environment.events.report_to_master.add_listener(add)


class Measurement:
    """The figures between ``begin`` and ``end``, of all workers or of this process alone."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._first: dict[str, dict[str, float]] = {}
        self._last: dict[str, dict[str, float]] = {}
        self._began = self._ended = time.monotonic()
        self._machine_share = 0.0
        environment.events.worker_report.add_listener(self._note)

    def begin(self) -> None:
        """Start the measurement anew."""
        stats: RequestStats = self._environment.stats
        stats.reset_all()
        self._first = dict(self._last)
        if self._is_alone:
            self._first = {"": own_figures()}
        psutil.cpu_percent(None)  # the next call measures from here
        self._began = self._ended = time.monotonic()

    def end(self) -> None:
        self._ended = time.monotonic()
        self._machine_share = psutil.cpu_percent(None) / 100
        if self._is_alone:
            self._last = {"": own_figures()}

    def progress(self) -> dict[str, Any]:
        """Return the figures so far, for a live table."""
        seconds = time.monotonic() - self._began
        return {
            "seconds": round(seconds, 1),
            "users": self._environment.runner.user_count if self._environment.runner else 0,
            "requests": [asdict(row) for row in self._rows(seconds)],
        }

    def report(self, users: int) -> LoadReport:
        """Return the figures of the whole run; late reports of workers are part of them."""
        seconds = self._ended - self._began
        return LoadReport(
            seconds=seconds,
            users=users,
            rows=tuple(self._rows(seconds)),
            workers=tuple(self._worker(client_id) for client_id in sorted(self._last)),
            errors=tuple(self._errors()),
            machine_share=self._machine_share,
        )

    def step(self, users: int) -> TuneStep:
        """Return the figures of all acquires together."""
        total = StatsEntry(self._environment.stats, "", ACQUIRE)
        for entry in self._environment.stats.entries.values():
            if entry.method in (ACQUIRE, RATE_LIMITED):
                total.extend(entry)
        seconds = self._ended - self._began
        return TuneStep(
            users,
            round(total.num_requests / seconds, 1) if seconds else 0.0,
            total.get_response_time_percentile(0.5),
            total.get_response_time_percentile(0.95),
            total.num_failures,
        )

    @property
    def _is_alone(self) -> bool:
        return not hasattr(self._environment.runner, "clients")

    def _note(self, client_id: str, data: dict[str, Any]) -> None:
        figures = data.get(FIGURES)
        if figures is not None:
            self._last[client_id] = figures

    def _worker(self, client_id: str) -> WorkerFigures:
        last = self._last[client_id]
        first = self._first.get(client_id, {})

        def share(name: str) -> float:
            """Return seconds of the test as a share of its duration."""
            wall_s = last["wall_s"] - first.get("wall_s", last["wall_s"])
            seconds = last[name] - first.get(name, last[name])
            return round(seconds / wall_s, 3) if wall_s else 0.0

        return WorkerFigures(
            cpu_share=share("cpu_s"),
            cpu_wait_share=share("cpu_wait_s"),
            writes=int(last["writes"] - first.get("writes", 0)),
            calls=int(last["calls"] - first.get("calls", 0)),
            lost_settlements=int(last["lost_settlements"]),
        )

    def _rows(self, seconds: float) -> list[RequestFigures]:
        entries = self._environment.stats.entries.values()
        rows = [_figures(entry, seconds) for entry in entries if entry.num_requests]
        return sorted(rows, key=lambda row: (row.kind, row.name))

    def _errors(self) -> list[str]:
        environment = self._environment
        failures = [
            f"{error.occurrences} × {error.method} {error.name}: {error.error}"
            for error in environment.stats.errors.values()
        ]
        exceptions = environment.runner.exceptions.values() if environment.runner else ()
        failures += [f"{each['count']} × in a task: {each['msg']}" for each in exceptions]
        return failures[:MAX_ERRORS]


def _figures(entry: StatsEntry, seconds: float) -> RequestFigures:
    return RequestFigures(
        kind=entry.method,
        name=entry.name,
        requests=entry.num_requests,
        failures=entry.num_failures,
        per_second=round(entry.num_requests / seconds, 1) if seconds else 0.0,
        p50_ms=entry.get_response_time_percentile(0.5),
        p95_ms=entry.get_response_time_percentile(0.95),
        p99_ms=entry.get_response_time_percentile(0.99),
        max_ms=round(entry.max_response_time, 3),
        total_ms=round(entry.total_response_time, 3),
    )

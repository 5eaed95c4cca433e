"""The figures of a load test, and the cause that bounds its throughput. Pure: no I/O."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

ACQUIRE, COMMIT, RATE_LIMITED = "ACQUIRE", "COMMIT", "RATE_LIMITED"
# Shares from which on a cause is named; below, the next one is looked at.
MANY_REJECTED = 0.5
BUSY_WORKER = 0.85  # of a core: a worker is one thread
BUSY_MACHINE = 0.9  # of all cores of the machine that workers run on
IDLE_USERS = 0.5  # of the users' time
ELSEWHERE = "move the store or the workers elsewhere"


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """One kind of request under one name. Times are milliseconds."""

    kind: str
    name: str
    requests: int
    failures: int
    per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """CPU and calls of one worker process since the test began."""

    cpu_share: float  # of one core
    cpu_wait_share: float = 0.0  # of the time: the worker could run, but had no core
    writes: int = 0
    calls: int = 0
    lost_settlements: int = 0


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The figures of a run; ``seconds`` is the time in which users ran."""

    seconds: float
    users: int
    rows: tuple[RequestFigures, ...]
    workers: tuple[WorkerFigures, ...]
    errors: tuple[str, ...] = ()
    machine_share: float = 0.0  # CPU of the machine, all cores

    def count(self, kind: str) -> int:
        return sum(row.requests - row.failures for row in self.rows if row.kind == kind)

    @property
    def failures(self) -> int:
        return sum(row.failures for row in self.rows)

    @property
    def admitted(self) -> int:
        return self.count(ACQUIRE)

    @property
    def limited(self) -> int:
        return self.count(RATE_LIMITED)

    @property
    def writes(self) -> int:
        return sum(worker.writes for worker in self.workers)

    @property
    def lost_settlements(self) -> int:
        return sum(worker.lost_settlements for worker in self.workers)

    def per_second(self, count: int) -> float:
        return count / self.seconds if self.seconds else 0.0

    @property
    def bound(self) -> tuple[str, str]:
        """Return the cause that bounds the throughput, and a sentence with its figure."""
        asked = self.admitted + self.limited
        if not asked:
            return "nothing", "no acquire was made"
        rejected = self.limited / asked
        if rejected >= MANY_REJECTED:
            return "limits", f"{rejected:.0%} of the acquires were rejected; raise the limits"
        cpu = max((worker.cpu_share for worker in self.workers), default=0.0)
        if cpu >= BUSY_WORKER:
            return "client CPU", f"a worker used {cpu:.0%} of a core; add --workers"
        # A worker without a core keeps its users from calling, which looks like a pause of theirs.
        for worker in self.workers:
            if worker.cpu_share + worker.cpu_wait_share >= BUSY_WORKER:
                had = f"a worker had {worker.cpu_share:.0%} of a core and waited for one for"
                return "machine CPU", f"{had} {worker.cpu_wait_share:.0%} of the time; {ELSEWHERE}"
        pausing = self._idle_share()
        if pausing >= IDLE_USERS:
            return "users", f"users spent {pausing:.0%} of their time between calls; add --users"
        if self.machine_share >= BUSY_MACHINE:
            busy = f"{self.machine_share:.0%} of this machine's CPU was in use"
            return "machine CPU", f"calls waited for the store while {busy}; {ELSEWHERE}"
        return "server", f"calls waited for the store; workers used at most {cpu:.0%} of a core"

    def _idle_share(self) -> float:
        """Return the share of the users' time in which they did not wait for a call."""
        available_ms = self.users * self.seconds * 1000
        in_calls_ms = sum(row.total_ms for row in self.rows)
        return max(0.0, 1 - in_calls_ms / available_ms) if available_ms else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return strict JSON; fields may be added, none changes its meaning."""
        bound, reason = self.bound
        return {
            "seconds": round(self.seconds, 3),
            "users": self.users,
            "admitted": self.admitted,
            "limited": self.limited,
            "failures": self.failures,
            "acquires_per_second": round(self.per_second(self.admitted + self.limited), 1),
            "writes_per_second": round(self.per_second(self.writes), 1),
            "lost_settlements": self.lost_settlements,
            "requests": [_row_dict(row) for row in self.rows],
            "workers": [asdict(worker) for worker in self.workers],
            "errors": list(self.errors),
            "bound": bound,
            "bound_reason": reason,
            "machine_cpu": round(self.machine_share, 3),
        }


def _row_dict(row: RequestFigures) -> dict[str, Any]:
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in asdict(row).items()
    }

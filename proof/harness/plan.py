"""What one run does, as data that its processes share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

MEMORY, SQLITE, DYNAMODB = "ours memory", "ours sqlite", "ours dynamodb"
OURS = (MEMORY, SQLITE, DYNAMODB)
LIMITS_REDIS, THROTTLED_REDIS, PYRATE_SQLITE = (
    "limits redis",
    "throttled-py redis",
    "pyrate-limiter sqlite",
)
PEERS = (LIMITS_REDIS, THROTTLED_REDIS, PYRATE_SQLITE)
SUBJECTS = (*OURS, *PEERS)
HOLD_TTL_S = 2
CONFIG_CACHE_S = 0.5
REMOVAL = "removal by TTL"
TTL_MULTIPLIER = 2  # times the time to fill: a bucket that is not used expires after seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: a subject under a fault, with a seed."""

    subject: str
    fault: str
    seed: int
    seconds: float
    callers: int = 18  # of all processes together
    url: str = ""
    other_url: str = ""  # the way of process 0 to the store, if it has its own

    @property
    def processes(self) -> int:
        """The number of processes; a store in memory belongs to one."""
        return 1 if self.subject == MEMORY else 3

    @property
    def tasks(self) -> int:
        """The number of callers in each process."""
        return self.callers // self.processes

    @property
    def has_expiring_buckets(self) -> bool:
        """Whether usage is off, so that the store may remove buckets within the run."""
        return self.fault == REMOVAL

    def with_urls(self, url: str, other_url: str = "") -> Plan:
        return replace(self, url=url, other_url=other_url or url)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Plan:
        return cls(**json.loads(path.read_text()))

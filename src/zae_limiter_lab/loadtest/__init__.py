"""Load tests: plans, local runs, tuning, reports, and the stack that runs them on AWS.

Modules that import Locust patch their process for gevent, so they are run in processes of their
own: ``nodes`` on this machine, ``orchestrator`` and ``worker`` on AWS. The rest imports none.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from zae_limiter.exceptions import ZAELimiterError

LEDGER_VARIABLE = "ZAEL_LOADTEST_LEDGER"  # folder of the users' ledgers
MAX_SPAWN_RATE = 100.0  # users per second and worker; Locust warns above
Mode = Literal["run", "tune"]


class LoadTestError(ZAELimiterError):
    """A load test that cannot be run; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The plan of a load test. ``file`` is relative to ``folder``; empty ``classes`` mean all.

    ``seconds`` is the duration of a run, or of each step of a search. ``host`` is a stack's name or
    the URL of a store; None leaves the store to the locustfile and the environment.
    """

    file: str
    classes: tuple[str, ...] = ()
    folder: str = "."
    users: int = 10
    seconds: float = 60.0
    workers: int = 1
    host: str | None = None
    namespace: str | None = None
    mode: Mode = "run"
    max_latency_ms: float | None = None
    html: str | None = None

    @property
    def spawn_rate(self) -> float:
        """Users that start per second: all of them in the first second, if Locust can."""
        return max(1.0, min(float(self.users), MAX_SPAWN_RATE * self.workers))

    def with_users(self, users: int) -> LoadPlan:
        return replace(self, users=users)

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> LoadPlan:
        return cls.of_dict(json.loads(text))

    @classmethod
    def of_dict(cls, values: dict[str, Any]) -> LoadPlan:
        """Return the plan with these fields; others, of a newer version, are ignored."""
        known = {name: values[name] for name in cls.__slots__ if name in values}
        return cls(**{**known, "classes": tuple(known.get("classes", ()))})

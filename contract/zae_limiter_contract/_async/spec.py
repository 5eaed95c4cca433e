"""The description of an engine for the suite."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction

from zae_limiter._async.repository import Repository
from zae_limiter.clock import Clock
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.models.config import OutagePolicy


@dataclass(frozen=True)
class EngineSpec:
    """The opening of an engine, and its promises beyond the common contract.

    ``url`` must name an empty store in each test. ``shared`` says that opening the URL again opens
    the same data. If ``capabilities`` say that processes share the store, the spec is pickled and
    opened in child processes, so keep it plain, and put its class at the top of a module.
    ``precision_milli`` is the number of millitokens by which a level may differ from exact
    arithmetic, and ``may_lag`` is the part of the capacity by which it may be lower. Tests of a
    long history set ``usage_retention_days``; None is the engine's default. ``snapshot_windows``
    are the windows that usage queries offer. ``moment_s`` is the request timeout of callers that
    do not wait for an outage to end; a store far away needs more for its answers.
    """

    url: str
    capabilities: BackendCapabilities
    shared: bool = True
    precision_milli: int = 1
    may_lag: Fraction = Fraction(0)
    usage_retention_days: int | None = None
    snapshot_windows: str = "hourly,daily,monthly"
    moment_s: float = 0.3

    async def open(
        self,
        namespace: str = "default",
        *,
        clock: Clock,
        config_cache_ttl: float = 60,
        request_timeout: float = 10,
        on_unavailable: OutagePolicy | None = None,
    ) -> Repository:
        """Open a repository; override this for an engine that has no URL."""
        builder = Repository.builder().url(self.url).namespace(namespace).clock(clock)
        builder.config_cache_ttl(config_cache_ttl).request_timeout(request_timeout)
        builder.on_unavailable(on_unavailable)
        if self.usage_retention_days is not None:
            builder.usage_retention_days(self.usage_retention_days)
        builder.snapshot_windows(self.snapshot_windows)
        return await builder.register_missing_namespace().build()

    def level_off_milli(self, capacity: int) -> int:
        """Return the millitokens by which two buckets with the same history may differ.

        If a level may lag, the lag depends on the shards that took the calls, which is chance.
        Other levels are equal.
        """
        return int(1000 * capacity * self.may_lag) + self.precision_milli if self.may_lag else 0

    def outage(self) -> AbstractContextManager[None] | None:
        """Return a block in which no charge is answered; None if the engine cannot fail so."""
        return None

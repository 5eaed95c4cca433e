"""What the suite must know about an engine."""

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
    """How to open an engine, and what it promises beyond the common contract.

    ``url`` must lead to an empty store in each test. ``shared`` says that opening it again
    leads to the same data. Where ``capabilities`` say that processes share the store, the spec
    is pickled and opened in children: keep it plain, and its class at the top of a module.
    ``precision_milli`` is how many millitokens a level may be off exact arithmetic, and
    ``may_lag`` by which part of the capacity it may be below that. ``usage_retention_days`` is
    set by tests of a long history; None is the engine's default. ``snapshot_windows`` are the
    windows that usage queries offer.
    """

    url: str
    capabilities: BackendCapabilities
    shared: bool = True
    precision_milli: int = 1
    may_lag: Fraction = Fraction(0)
    usage_retention_days: int | None = None
    snapshot_windows: str = "hourly,daily,monthly"

    async def open(
        self,
        namespace: str = "default",
        *,
        clock: Clock,
        config_cache_ttl: float = 60,
        request_timeout: float = 10,
        on_unavailable: OutagePolicy | None = None,
    ) -> Repository:
        """A repository; override this for an engine that no URL leads to."""
        builder = Repository.builder().url(self.url).namespace(namespace).clock(clock)
        builder.config_cache_ttl(config_cache_ttl).request_timeout(request_timeout)
        builder.on_unavailable(on_unavailable)
        if self.usage_retention_days is not None:
            builder.usage_retention_days(self.usage_retention_days)
        builder.snapshot_windows(self.snapshot_windows)
        return await builder.register_missing_namespace().build()

    def level_off_milli(self, capacity: int) -> int:
        """How many millitokens two buckets of one history may differ by.

        A level that may lag does so by chance: by which shard took a call. Others are equal.
        """
        return int(1000 * capacity * self.may_lag) + self.precision_milli if self.may_lag else 0

    def outage(self) -> AbstractContextManager[None] | None:
        """Inside it no charge is answered; None for an engine that cannot fail that way."""
        return None

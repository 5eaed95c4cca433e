"""The state of a repository, which scoped repositories share, and the base of its methods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from zae_limiter._async.circuit import Breaker
from zae_limiter._async.config_cache import ConfigCache
from zae_limiter._async.pending_ends import PendingEnds
from zae_limiter._async.ports import Engine
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.resolution import Resolved
from zae_limiter.clock import Clock
from zae_limiter.models.config import OnUnavailable, SharedConfig
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.runtime.locks import Counter
from zae_limiter.runtime.parallel import Parallel
from zae_limiter.runtime.single_flight import SingleFlight

if TYPE_CHECKING:
    from zae_limiter._async.removed_limits import RemovedLimits
    from zae_limiter._async.repository.charging import ChargeService

MAX_OVERRIDES = 1000  # different `limits=` of calls whose prepared form is kept


@dataclass(frozen=True, eq=False, repr=False)
class Context:
    """An open engine, one namespace of it, and the settings of this repository.

    ``config_reads`` and ``shared_level_reads`` are the reads in flight; each result comes with the
    moment at which its read began.
    """

    engine: Engine
    breaker: Breaker
    cache: ConfigCache
    clock: Clock
    parallel: Parallel
    namespace_id: str
    namespace_name: str
    stack_name: str
    on_unavailable: OnUnavailable | None
    bucket_ttl_multiplier: int
    snapshot_windows: tuple[str, ...]
    config_reads: SingleFlight[tuple[Resolved, int]] = field(default_factory=SingleFlight)
    shared_level_reads: SingleFlight[tuple[SharedConfig, int]] = field(default_factory=SingleFlight)
    overrides: BoundedDict[Any, InForce] = field(default_factory=lambda: BoundedDict(MAX_OVERRIDES))
    removed_limits: list[RemovedLimits] = field(default_factory=list)  # one, from the first use on
    lost_settlements: Counter = field(default_factory=Counter)
    pending_ends: PendingEnds = field(default_factory=PendingEnds)
    uncharged: Counter = field(default_factory=Counter)
    owns_engine: bool = True

    def scoped(
        self,
        namespace_id: str,
        namespace_name: str,
        on_unavailable: OnUnavailable | None,
        bucket_ttl_multiplier: int | None,
    ) -> Context:
        """Return the same engine and caches for another namespace; None keeps a setting."""
        return replace(
            self,
            namespace_id=namespace_id,
            namespace_name=namespace_name,
            owns_engine=False,
            on_unavailable=on_unavailable or self.on_unavailable,
            bucket_ttl_multiplier=(
                self.bucket_ttl_multiplier
                if bucket_ttl_multiplier is None
                else bucket_ttl_multiplier
            ),
        )


class RepositoryMixin:
    """Base of the mixins, one for each topic, that together are the repository."""

    _context: Context
    charging: ChargeService

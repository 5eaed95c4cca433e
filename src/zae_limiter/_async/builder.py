"""Open a repository step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zae_limiter._async.open import (
    check_settings,
    migrate_store,
    open_repository,
    repository_over,
)
from zae_limiter._async.ports import Engine
from zae_limiter._async.repository import Repository
from zae_limiter.clock import Clock, check_clock
from zae_limiter.models.config import OnUnavailable, OutagePolicy
from zae_limiter.models.limit import check_positive
from zae_limiter.settings import (
    Provision,
    Settings,
    check_max_shards,
    check_provision,
    check_retention_days,
    check_seconds,
    check_timeout,
    check_ttl_multiplier,
    check_windows,
)
from zae_limiter.stack_option_methods import StackOptionMethods

# sync: from zae_limiter.settings import ParallelMode

if TYPE_CHECKING:
    from zae_limiter.models.backend import MigrationProgress, MigrationReport


class RepositoryBuilder(StackOptionMethods):
    """Collects settings. Every method returns the builder; ``await build()`` opens the store."""

    def __init__(self) -> None:
        super().__init__()
        self._settings = Settings()

    def namespace(self, name: str | None) -> RepositoryBuilder:
        """Set the namespace. Default: ``ZAEL_NAMESPACE`` or ``"default"``."""
        return self._set(namespace=name)

    def stack(self, name: str | None) -> RepositoryBuilder:
        """Set the stack. Default: ``ZAEL_STACK`` or ``"zae-limiter"``."""
        return self._set(stack=name)

    def region(self, name: str | None) -> RepositoryBuilder:
        """Set the AWS region. Default: what the AWS configuration says."""
        return self._set(region=name)

    def endpoint_url(self, url: str | None) -> RepositoryBuilder:
        """Set where DynamoDB answers, for a local server. Default: the region's endpoint."""
        return self._set(endpoint_url=url)

    def url(self, url: str | None) -> RepositoryBuilder:
        """Set which engine, and where its data is. Default: ``ZAEL_URL``, else DynamoDB."""
        return self._set(url=url)

    def config_cache_ttl(self, seconds: float) -> RepositoryBuilder:
        """Set how long resolved limits are cached; 0 reads them each time."""
        return self._set(config_cache_ttl=check_seconds(seconds, "config_cache_ttl"))

    def auto_update(self, enabled: bool) -> RepositoryBuilder:
        """Update functions of an older version when opening; embedded files always are."""
        return self._set(auto_update=enabled)

    def bucket_ttl_multiplier(self, multiplier: int) -> RepositoryBuilder:
        """Expire a bucket on default limits after this many times its time to fill; 0 never."""
        return self._set(bucket_ttl_multiplier=check_ttl_multiplier(multiplier))

    def on_unavailable(self, policy: OutagePolicy | None) -> RepositoryBuilder:
        """Set what acquires do in an outage, unless the call says otherwise."""
        parsed = None if policy is None else OnUnavailable.parse(policy)
        return self._set(on_unavailable=parsed)

    def usage_retention_days(self, days: int) -> RepositoryBuilder:
        """Set how long usage is kept; 0 keeps none. Default: 90 days, in memory 7.

        An existing DynamoDB table keeps usage as long as its stack says.
        """
        self._set(usage_retention_days=check_retention_days(days))
        return self._option(usage_retention_days=days)

    def snapshot_windows(self, windows: str | Iterable[str]) -> RepositoryBuilder:
        """Set which windows usage queries offer: "hourly,daily,monthly", or some of them.

        Usage is always stored by the hour; other windows are sums.
        """
        checked = check_windows(windows)
        self._set(snapshot_windows=checked)
        return self._option(snapshot_windows=",".join(checked))

    def audit_retention_days(self, days: int) -> RepositoryBuilder:
        """Set how long audit events are kept; by an existing stack, as long as it says."""
        self._set(audit_retention_days=check_positive(days, "audit_retention_days"))
        return self._option(audit_retention_days=days)

    def provision(self, what: Provision) -> RepositoryBuilder:
        """Set what to create if a DynamoDB table is missing: "stack", "table" or "never".

        "stack", the default, deploys the CloudFormation stack; where an endpoint has none, as a
        local server, and with "table", the table alone is created.
        """
        return self._set(provision=check_provision(what))

    def request_timeout(self, seconds: float) -> RepositoryBuilder:
        """Set how long a call waits for a store that does not answer."""
        return self._set(request_timeout=check_timeout(seconds, "request_timeout"))

    def rejection_cache_ttl(self, seconds: float) -> RepositoryBuilder:
        """Set how long an empty bucket is refused without asking DynamoDB; 0 always asks."""
        return self._set(rejection_cache_ttl=check_seconds(seconds, "rejection_cache_ttl"))

    def max_shards(self, count: int) -> RepositoryBuilder:
        """Set into how many items DynamoDB may split a bucket that is written to all the time."""
        return self._set(max_shards=check_max_shards(count))

    def clock(self, clock: Clock | None) -> RepositoryBuilder:
        """Take epoch milliseconds from this clock, which is never corrected."""
        return self._set(clock=None if clock is None else check_clock(clock))

    # sync: def parallel_mode(self, mode: ParallelMode) -> RepositoryBuilder:
    # sync:     """Set how independent calls run: "auto", "gevent", "threadpool" or "serial"."""
    # sync:     return self._set(parallel_mode=mode)

    def register_missing_namespace(self) -> RepositoryBuilder:
        """Create the namespace if it does not exist; without this it must exist."""
        return self._set(register=True)

    def check(self) -> RepositoryBuilder:
        """Raise ValidationError for a URL or a namespace that cannot be opened; open nothing."""
        check_settings(self._settings)
        return self

    async def build(self) -> Repository:
        """Open the store; raises NamespaceNotFoundError for an unknown namespace."""
        options = self.collected_options()
        return await open_repository(self._settings._replace(stack_options=options))

    async def migrate(
        self,
        *,
        dry_run: bool = False,
        on_progress: Callable[[MigrationProgress], None] | None = None,
    ) -> MigrationReport:
        """Bring a DynamoDB table of an older version to the schema of this one.

        Stop all clients of the older version first; from its beginning on they cannot open the
        table. It may be ended at any time and is resumed by the next call; several may run at
        once. ``on_progress`` is called after each page of items, and may raise to end it. With
        ``dry_run`` nothing is written, and the report counts what would change.
        """
        return await migrate_store(self._settings, dry_run=dry_run, on_progress=on_progress)

    async def over(self, engine: Engine) -> Repository:
        """Open a repository over an engine that is open already."""
        return await repository_over(engine, type(engine).__name__, self._settings)

    def __repr__(self) -> str:
        defaults = Settings()._asdict()
        given = {
            name: value
            for name, value in self._settings._asdict().items()
            if value != defaults[name]
        }
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in given.items())})"

    def _set(self, **fields: Any) -> RepositoryBuilder:
        self._settings = self._settings._replace(**fields)
        return self

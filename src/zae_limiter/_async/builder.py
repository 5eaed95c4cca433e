"""The builder, which opens a repository with all settings."""

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
from zae_limiter.clock import Clock
from zae_limiter.models.config import OutagePolicy
from zae_limiter.settings import Provision, Settings
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
        """Set the AWS region. Default: the region of the AWS configuration."""
        return self._set(region=name)

    def endpoint_url(self, url: str | None) -> RepositoryBuilder:
        """Set the endpoint of DynamoDB, for a local server. Default: the region's endpoint."""
        return self._set(endpoint_url=url)

    def url(self, url: str | None) -> RepositoryBuilder:
        """Set the engine and the place of its data. Default: ``ZAEL_URL``, else DynamoDB."""
        return self._set(url=url)

    def config_cache_ttl(self, seconds: float) -> RepositoryBuilder:
        """Set the time for which resolved limits are cached; 0 reads them for each call."""
        return self._set(config_cache_ttl=seconds)

    def auto_update(self, enabled: bool) -> RepositoryBuilder:
        """Update functions of an older version when the store is opened.

        Embedded files of an older version are always updated.
        """
        return self._set(auto_update=enabled)

    def bucket_ttl_multiplier(self, multiplier: int) -> RepositoryBuilder:
        """Set the TTL of buckets on default limits, in multiples of their time to fill.

        With 0, buckets never expire.
        """
        return self._set(bucket_ttl_multiplier=multiplier)

    def on_unavailable(self, policy: OutagePolicy | None) -> RepositoryBuilder:
        """Set the outage policy of acquires that do not name one."""
        return self._set(on_unavailable=policy)

    def usage_retention_days(self, days: int) -> RepositoryBuilder:
        """Set how long usage is kept; 0 keeps none. Default: 90 days, in memory 7.

        For an existing DynamoDB table, the retention of its stack counts.
        """
        self._set(usage_retention_days=days)
        return self._option(usage_retention_days=days)

    def snapshot_windows(self, windows: str | Iterable[str]) -> RepositoryBuilder:
        """Set the windows that usage queries offer: "hourly,daily,monthly", or some of them.

        Usage is always stored by the hour; days and months are sums.
        """
        self._set(snapshot_windows=windows)
        return self._option(snapshot_windows=",".join(self._settings.snapshot_windows))

    def audit_retention_days(self, days: int) -> RepositoryBuilder:
        """Set how long audit events are kept. For an existing stack, its own retention counts."""
        self._set(audit_retention_days=days)
        return self._option(audit_retention_days=days)

    def provision(self, what: Provision) -> RepositoryBuilder:
        """Set what to create if a DynamoDB table is missing: "stack", "table" or "never".

        "stack", the default, deploys the CloudFormation stack. With "table", or if the endpoint has
        no stacks (a local server), only the table is created.
        """
        return self._set(provision=what)

    def request_timeout(self, seconds: float) -> RepositoryBuilder:
        """Set how long a call waits for a store that does not answer."""
        return self._set(request_timeout=seconds)

    def rejection_cache_ttl(self, seconds: float) -> RepositoryBuilder:
        """Set how long an empty bucket rejects calls without asking DynamoDB; 0 always asks."""
        return self._set(rejection_cache_ttl=seconds)

    def max_shards(self, count: int) -> RepositoryBuilder:
        """Set the number of DynamoDB items into which a busy bucket may be split."""
        return self._set(max_shards=count)

    def clock(self, clock: Clock | None) -> RepositoryBuilder:
        """Take epoch milliseconds from this clock, which is never corrected."""
        return self._set(clock=clock)

    # sync: def parallel_mode(self, mode: ParallelMode) -> RepositoryBuilder:
    # sync:     """Set how independent calls run: "auto", "gevent", "threadpool" or "serial"."""
    # sync:     return self._set(parallel_mode=mode)

    def register_missing_namespace(self) -> RepositoryBuilder:
        """Create the namespace if it does not exist; by default it must exist."""
        return self._set(register=True)

    def check(self) -> RepositoryBuilder:
        """Raise ValidationError for a wrong URL or namespace, without opening the store."""
        check_settings(self._settings)
        return self

    async def build(self) -> Repository:
        """Open the store; raise NamespaceNotFoundError for an unknown namespace.

        On DynamoDB a missing stack is deployed, also if no infrastructure option was given. With
        ``provision("never")`` nothing is deployed, and InfrastructureNotFoundError is raised.
        """
        options = self.collected_options()
        return await open_repository(self._settings._replace(stack_options=options))

    async def migrate(
        self,
        *,
        dry_run: bool = False,
        on_progress: Callable[[MigrationProgress], None] | None = None,
    ) -> MigrationReport:
        """Bring a DynamoDB table of an older schema version to the present one.

        Stop all clients of the older version first: they cannot open the table once the migration
        has begun. The migration may be stopped at any time, and the next call resumes it; several
        may run at once. ``on_progress`` is called after each page of items, and may raise to stop
        the migration. With ``dry_run`` nothing is written, and the report counts the needed
        changes.
        """
        return await migrate_store(self._settings, dry_run=dry_run, on_progress=on_progress)

    async def over(self, engine: Engine) -> Repository:
        """Return a repository over an engine that is already open."""
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
        self._settings = self._settings.given(**fields)
        return self

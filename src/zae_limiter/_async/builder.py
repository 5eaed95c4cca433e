"""Opening a repository step by step."""

from __future__ import annotations

from typing import Any

from zae_limiter._async.open import Settings, open_repository, repository_over
from zae_limiter._async.ports import Engine
from zae_limiter._async.repository import Repository
from zae_limiter._async.repository.context import check_multiplier
from zae_limiter.clock import Clock, check_clock
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import check_positive
from zae_limiter.store_url import check_transport

MAX_SECONDS = 10**9
MOST_SHARDS = 64  # all of them fit into one transaction
PROVISION = ("stack", "table", "never")


class RepositoryBuilder:
    """Every method returns the builder; ``await build()`` ends it."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}

    def namespace(self, name: str | None) -> RepositoryBuilder:
        """Default: ``ZAEL_NAMESPACE`` or ``"default"``."""
        return self._set(namespace=name)

    def stack(self, name: str | None) -> RepositoryBuilder:
        """Default: ``ZAEL_STACK`` or ``"zae-limiter"``."""
        return self._set(stack=name)

    def region(self, name: str | None) -> RepositoryBuilder:
        return self._set(region=name)

    def endpoint_url(self, url: str | None) -> RepositoryBuilder:
        return self._set(endpoint_url=url)

    def url(self, url: str | None) -> RepositoryBuilder:
        """Which engine, and where. Default: ``ZAEL_URL``, else DynamoDB."""
        return self._set(url=url)

    def config_cache_ttl(self, seconds: float) -> RepositoryBuilder:
        """How long resolved limits are remembered; 0 reads them each time."""
        return self._set(config_cache_ttl=_at_least_zero(seconds, "config_cache_ttl"))

    def auto_update(self, enabled: bool) -> RepositoryBuilder:
        """Bring the infrastructure to this version's; embedded files always are."""
        return self._set(auto_update=enabled)

    def bucket_ttl_multiplier(self, multiplier: int) -> RepositoryBuilder:
        """Forget a bucket on default limits after this many times its time to fill; 0 never."""
        return self._set(bucket_ttl_multiplier=check_multiplier(multiplier))

    def on_unavailable(self, policy: OnUnavailable | str | None) -> RepositoryBuilder:
        """What acquires do in an outage, unless the call says otherwise."""
        parsed = None if policy is None else OnUnavailable.parse(policy)
        return self._set(on_unavailable=parsed)

    def usage_retention_days(self, days: int) -> RepositoryBuilder:
        return self._set(usage_retention_days=check_positive(days, "usage_retention_days"))

    def audit_retention_days(self, days: int) -> RepositoryBuilder:
        return self._set(audit_retention_days=check_positive(days, "audit_retention_days"))

    def provision(self, what: str) -> RepositoryBuilder:
        """What to do when a DynamoDB table is missing: "table" makes it, "never" does not.

        "stack", the default, is to deploy everything; until that exists it makes nothing.
        """
        if what not in PROVISION:
            raise ValidationError("provision", what, f"must be one of {', '.join(PROVISION)}")
        return self._set(provision=what)

    def request_timeout(self, seconds: float) -> RepositoryBuilder:
        """How long a call waits for a store that does not answer."""
        if not _at_least_zero(seconds, "request_timeout"):
            raise ValidationError("request_timeout", seconds, "must be greater than zero")
        return self._set(request_timeout=seconds)

    def rejection_cache_ttl(self, seconds: float) -> RepositoryBuilder:
        """How long a bucket that was seen empty is refused without asking DynamoDB; 0 asks."""
        return self._set(rejection_cache_ttl=_at_least_zero(seconds, "rejection_cache_ttl"))

    def transport(self, name: str) -> RepositoryBuilder:
        """How DynamoDB is reached: "auto", "lean" (our own wire) or "sdk" (botocore's)."""
        return self._set(transport=check_transport(name))

    def max_shards(self, count: int) -> RepositoryBuilder:
        """Into how many items DynamoDB may spread a bucket that is written to all the time."""
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_SHARDS:
            raise ValidationError("max_shards", count, f"must be from 1 to {MOST_SHARDS}")
        return self._set(max_shards=count)

    def clock(self, clock: Clock | None) -> RepositoryBuilder:
        """Epoch milliseconds from elsewhere; never corrected."""
        return self._set(clock=None if clock is None else check_clock(clock))

    # sync: def parallel_mode(self, mode: str) -> RepositoryBuilder:
    # sync:     """How independent calls run: "auto", "gevent", "threadpool" or "serial"."""
    # sync:     return self._set(parallel_mode=mode)

    def register_missing_namespace(self) -> RepositoryBuilder:
        """Make the namespace if it does not exist; without this it must exist."""
        return self._set(register=True)

    async def build(self) -> Repository:
        """Open the store; raises NamespaceNotFoundError for an unknown namespace."""
        return await open_repository(Settings(**self._settings))

    async def over(self, engine: Engine) -> Repository:
        """The same over an engine that is open already."""
        return await repository_over(engine, type(engine).__name__, Settings(**self._settings))

    def _set(self, **settings: Any) -> RepositoryBuilder:
        self._settings.update(settings)
        return self


def _at_least_zero(value: object, field: str) -> float:
    if type(value) not in (int, float) or not 0 <= value < MAX_SECONDS:  # type: ignore[operator]
        raise ValidationError(field, value, "must be a number of seconds, at least 0")
    return value  # type: ignore[return-value]

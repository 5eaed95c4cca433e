"""The rate limiter, which acquires tokens, reads levels, and manages entities and limits."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from zae_limiter._async.acquire import Acquire
from zae_limiter._async.ask import AcquireCall
from zae_limiter._async.management import Management
from zae_limiter._async.repository import Repository
from zae_limiter.clock import Clock
from zae_limiter.exceptions import InfrastructureError, ValidationError
from zae_limiter.models.config import Mode, OnError, OnUnavailable, OutagePolicy
from zae_limiter.models.limit import Limit, LimitName, check_amounts, check_limits
from zae_limiter.naming import DEFAULT_RESOURCE, check_bucket_names, check_entity_id, check_resource
from zae_limiter.runtime.calls import awithin
from zae_limiter.runtime.unpicklable import Unpicklable

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.hooks import Observer
    from zae_limiter.models.limit import Amount
    from zae_limiter.models.stack import StackOptions
    from zae_limiter.models.status import Availability, LimitStatus
    from zae_limiter.settings import Provision

    # sync: from zae_limiter.settings import ParallelMode

    # A key is a resource, or a pair of entity and resource. The type of keys is invariant, so that
    # a checker would refuse a mapping with keys of both kinds.
    FurtherResources = Mapping[Any, Mapping[str, Amount]]


class RateLimiter(Management, Unpicklable):
    """Limits the usage of resources by entities.

    ``RateLimiter(repository)`` uses an open repository. ``RateLimiter(url="sqlite:///limits.db")``
    opens the store of the URL on first use, and ``RateLimiter()`` opens the store that the
    environment names. Such a limiter may be made at the top of a module: making it reads no file
    and calls no server. Threads, event loops and forked workers may share it. The options
    ``namespace``, ``config_cache_ttl``, ``auto_update``, ``provision``,
    ``rejection_cache_ttl``, ``max_shards`` and ``request_timeout`` are those of
    ``Repository.open``; ``on_unavailable`` is the outage policy. If the store cannot be
    opened, the call fails, and the next call tries again. ``close`` closes a store that the
    limiter has opened; a later call opens it again.

    With ``mode="shadow"`` nothing is rejected: a call that does not fit is let through uncharged,
    counted as shadowed and reported to the hook ``on_shadow``; outages are not raised. ``hooks`` is
    an object with methods of ``zae_limiter.hooks.Hooks``, or a list of such objects.
    ``clock`` returns epoch milliseconds; it replaces the host's clock and is never corrected.
    ``speculative_writes=False`` reads a DynamoDB bucket before each charge. This is one more call,
    for buckets that so many clients share that their cached state is seldom right.
    """

    def __init__(
        self,
        repository: Repository | None = None,
        *,
        url: str | None = None,
        namespace: str | None = None,
        config_cache_ttl: float | None = None,
        provision: Provision | None = None,
        rejection_cache_ttl: float | None = None,
        max_shards: int | None = None,
        request_timeout: float | None = None,
        # sync: parallel_mode: ParallelMode | None = None,
        on_unavailable: OutagePolicy | None = None,
        auto_update: bool | None = None,
        speculative_writes: bool = True,
        clock: Clock | None = None,
        mode: Mode = "enforce",
        hooks: object = None,
        name: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        stack_options: StackOptions | None = None,
        bucket_ttl_refill_multiplier: int | None = None,
    ) -> None:
        store_options = _given(
            url=url,
            namespace=namespace,
            config_cache_ttl=config_cache_ttl,
            provision=provision,
            rejection_cache_ttl=rejection_cache_ttl,
            max_shards=max_shards,
            request_timeout=request_timeout,
            # sync: parallel_mode=parallel_mode,
            auto_update=auto_update,
            on_unavailable=on_unavailable,
        )
        deprecated = _given(
            name=name,
            region=region,
            endpoint_url=endpoint_url,
            stack_options=stack_options,
            bucket_ttl_refill_multiplier=bucket_ttl_refill_multiplier,
        )
        super().__init__(repository, clock, store_options, deprecated)
        self.speculative_writes = speculative_writes
        self._observer: Observer | None = None
        if hooks is not None or mode != "enforce":
            from zae_limiter.hooks import observer_of  # most limiters have no hooks

            self._observer = observer_of(hooks, mode)

    def acquire(
        self,
        entity_id: str,
        resource: str,
        consume: Mapping[str, Amount] | Mapping[str, int] | Mapping[LimitName, int],
        limits: Iterable[Limit] | None = None,
        use_stored_limits: bool = False,
        on_unavailable: OutagePolicy | None = None,
        *,
        timeout: float | None = None,
        on_error: OnError = "refund",
        mode: Mode | None = None,
        cascade: bool | None = None,
        also: FurtherResources | None = None,
    ) -> Acquire:
        """Take tokens from every limit named in ``consume``, or from none.

        ``async with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease: ...``

        Limits come from the stored configuration, or from ``limits`` for this call. If a limit
        holds too few tokens, RateLimitExceeded is raised. If the store does not answer,
        RateLimiterUnavailable is raised, unless ``on_unavailable`` is "allow". Wrong arguments
        raise ValidationError.

        If the block raises, all tokens are given back but those that ``lease.settle`` has fixed;
        with ``on_error="keep"`` the block costs the same as if it had succeeded. ``mode`` overrides
        the mode of the limiter for this call.

        With ``timeout``, the call waits up to that many seconds for capacity, in the order of
        arrival. It is rejected at once if the capacity will not be there by then.

        ``also={"all-models": {"usd": "0.0125"}}`` takes from up to three further resources in the
        same call, from all or from none; ``lease.resource("all-models")`` settles their costs. A
        pair ``(entity_id, resource)`` names a resource of another entity. ``limits`` are those of
        the first resource. With ``timeout``, such a call reserves nothing: it asks again when all
        resources can hold its amounts.
        """
        if type(consume) is not dict and isinstance(limits, Mapping):
            _deprecated("acquire(entity, resource, limits, consume): consume comes first")
            consume, limits = limits, consume  # type: ignore[assignment]
        if cascade is not None:
            _deprecated("acquire(cascade=...): set cascade on create_entity() instead")
        keeps_on_error = on_error != "refund" and _is_keep(on_error)
        amounts = check_amounts(consume)
        try:
            check_bucket_names(entity_id, resource)
        except TypeError:  # one of the two is not hashable; these checks name it
            check_entity_id(entity_id), check_resource(resource)
        observer = self._observer if mode is None else self._observer_in(mode)
        if timeout is not None and not _waits(timeout, observer):
            timeout = None
        policy = self._policy if on_unavailable is None else OnUnavailable.parse(on_unavailable)
        call = AcquireCall(
            entity_id,
            resource,
            amounts,
            None if limits is None else check_limits(limits),
            self._repository,
            self._opened,
            use_stored_limits,
            keeps_on_error,
            self.speculative_writes,
            cascade,
            policy,
            observer,
            timeout,
        )
        if also is not None:
            call.add_further(also)
        caller = sys._getframe(1)  # noqa: SLF001 - for the warning about a forgotten `with`
        return Acquire(call, caller)

    def _observer_in(self, mode: Mode) -> Observer | None:
        from zae_limiter.hooks import observer_of

        own = self._observer
        return observer_of(None, mode) if own is None else own.in_mode(mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._repository or self._unopened_store()})"

    # --- levels

    async def available(
        self,
        entity_id: str,
        resource: str,
        limits: Iterable[Limit] | None = None,
        use_stored_limits: bool | None = None,
    ) -> dict[str, int | Decimal]:
        """Return the whole tokens that an acquire could take now; negative while in debt.

        The amounts of budgets are Decimal, in currency units.

        The number is 0 while the bucket is paused or denied. If the entity cascades and its parent
        has the same limit, it is the smaller level of both.
        """
        levels: dict[str, int | Decimal] = {}
        stored = _prefers_stored("available", use_stored_limits)
        for status in await self._statuses(entity_id, resource, {}, limits, stored):
            available = min(0, status.available) if status.is_stopped else status.available
            lowest = levels.get(status.limit_name, available)
            levels[status.limit_name] = min(lowest, available)
        return levels

    async def check_availability(
        self,
        entity_id: str,
        resource: str,
        needed: Mapping[str, Amount] | Mapping[str, int] | None = None,
        limits: Iterable[Limit] | None = None,
        use_stored_limits: bool | None = None,
        *,
        also: FurtherResources | None = None,
    ) -> Availability:
        """Return whether an acquire of ``needed`` would succeed now, without taking tokens.

        ``also`` are further resources, as in ``acquire``.
        """
        stored = _prefers_stored("check_availability", use_stored_limits)
        return await self._availability(entity_id, resource, needed, limits, stored, also)

    async def _availability(
        self,
        entity_id: str,
        resource: str,
        needed: Mapping[str, Amount] | Mapping[str, int] | None,
        limits: Iterable[Limit] | None,
        prefer_stored: bool,
        also: FurtherResources | None = None,
    ) -> Availability:
        from zae_limiter.models.status import Availability  # few programs need it

        amounts = check_amounts({} if needed is None else needed, "needed")
        statuses_now = await self._statuses(
            entity_id, resource, amounts, limits, prefer_stored, also
        )
        return Availability(
            not any(status.exceeded for status in statuses_now),
            statuses_now,
            max(status.retry_after_seconds for status in statuses_now),
        )

    async def time_until_available(
        self,
        entity_id: str,
        resource: str,
        needed: Mapping[str, Amount] | Mapping[str, int],
        limits: Iterable[Limit] | None = None,
        use_stored_limits: bool | None = None,
    ) -> float:
        """Return the seconds until ``needed`` fits if nothing else is charged; ``inf`` if never."""
        stored = _prefers_stored("time_until_available", use_stored_limits)
        availability = await self._availability(entity_id, resource, needed, limits, stored)
        return availability.retry_after_seconds

    async def is_available(self, timeout: float = 1.0) -> bool:
        """Return whether the store answers within ``timeout`` seconds."""
        if type(timeout) not in (int, float) or not timeout > 0:
            raise ValidationError("timeout", timeout, "must be a number of seconds above 0")
        try:
            await awithin(timeout, self._ping)
        except (InfrastructureError, TimeoutError):
            return False
        return True

    # --- changes

    async def update_entity(
        self,
        entity_id: str,
        *,
        limits: Iterable[Limit] | None = None,
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
    ) -> None:
        """Replace the stored limits of an entity; existing buckets are re-based to them."""
        if limits is not None:
            await self.set_limits(entity_id, limits, resource, principal)

    async def _statuses(
        self,
        entity_id: str,
        resource: str,
        needed: dict[str, int],
        limits: Iterable[Limit] | None,
        prefer_stored: bool,
        also: FurtherResources | None = None,
    ) -> tuple[LimitStatus, ...]:
        call = AcquireCall(
            check_entity_id(entity_id),
            check_resource(resource),
            needed,
            None if limits is None else check_limits(limits),
            self._repository,
            self._opened,
            prefer_stored,
            field="needed",
        )
        if also is not None:
            call.add_further(also)
        return await call.look()

    async def _ping(self) -> None:
        await (self._repository or await self._opened()).ping()


def check_timeout(timeout: object) -> bool:
    """Return whether an acquire waits at all; raise ValidationError if it is not a duration."""
    if type(timeout) not in (int, float) or not timeout >= 0:  # type: ignore[operator]
        raise ValidationError("timeout", timeout, "must be a number of seconds, 0 or more")
    return timeout > 0  # type: ignore[operator]


def _is_keep(on_error: object) -> bool:
    """Return True for "keep"; raise ValidationError for anything else."""
    if on_error != "keep":
        raise ValidationError("on_error", on_error, 'must be "refund" or "keep"')
    return True


def _waits(timeout: float, observer: Observer | None) -> bool:
    """Tell whether a call with a timeout waits. With 0, or in shadow mode, it does not."""
    return check_timeout(timeout) and not (observer is not None and observer.is_shadow)


def _given(**keywords: Any) -> dict[str, Any]:
    return {keyword: value for keyword, value in keywords.items() if value is not None}


def _deprecated(message: str, stacklevel: int = 3) -> None:
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


def _prefers_stored(method: str, use_stored_limits: bool | None) -> bool:
    """Return whether stored limits win over those of the call; warn of the deprecated keyword."""
    if use_stored_limits is not None:
        _deprecated(f"{method}(use_stored_limits=...): leave limits= out to use stored limits", 4)
    return bool(use_stored_limits)

"""The rate limiter: acquire, ask, and manage."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

from zae_limiter._async.acquire import Acquire
from zae_limiter._async.call import Call
from zae_limiter._async.management import Management
from zae_limiter._async.repository import Repository
from zae_limiter.admission.charge import statuses, view
from zae_limiter.clock import Clock
from zae_limiter.concurrency.calls import awithin
from zae_limiter.exceptions import InfrastructureError, ValidationError
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import Limit, LimitName, check_amounts, check_limits
from zae_limiter.models.status import Availability, LimitStatus
from zae_limiter.naming import DEFAULT_RESOURCE, check_entity_id, check_resource


class RateLimiter(Management):
    """Limits what entities do on resources. Opens the default repository if given none.

    ``clock`` returns epoch milliseconds; it replaces the host's clock and is never corrected.
    ``speculative_writes=False`` reads a DynamoDB bucket before each charge: one more call, for
    buckets that so many clients share that a guess about their state is seldom right.
    """

    def __init__(
        self,
        repository: Repository | None = None,
        *,
        speculative_writes: bool = True,
        clock: Clock | None = None,
        name: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        stack_options: object = None,
        on_unavailable: OnUnavailable | str | None = None,
        auto_update: bool | None = None,
        bucket_ttl_refill_multiplier: int | None = None,
    ) -> None:
        deprecated = {
            "name": name,
            "region": region,
            "endpoint_url": endpoint_url,
            "stack_options": stack_options,
            "on_unavailable": on_unavailable,
            "auto_update": auto_update,
            "bucket_ttl_refill_multiplier": bucket_ttl_refill_multiplier,
        }
        super().__init__(repository, clock, deprecated)
        self.speculative_writes = speculative_writes

    def acquire(
        self,
        entity_id: str,
        resource: str,
        consume: Mapping[str, int] | Mapping[LimitName, int],
        limits: Iterable[Limit] | None = None,
        use_stored_limits: bool = False,
        on_unavailable: OnUnavailable | str | None = None,
        *,
        cascade: bool | None = None,
    ) -> Acquire:
        """Take tokens from every limit named in ``consume``, or from none.

        ``async with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease: ...``

        Limits come from the stored configuration, or from ``limits`` for this call. Raises
        RateLimitExceeded if they do not hold enough, RateLimiterUnavailable if the store does
        not answer (unless ``on_unavailable`` says "allow"), ValidationError for bad input.
        """
        if type(consume) is not dict and isinstance(limits, Mapping):
            _deprecated("acquire(entity, resource, limits, consume): consume comes first")
            consume, limits = limits, consume  # type: ignore[assignment]
        if cascade is not None:
            _deprecated("acquire(cascade=...): set cascade on create_entity() instead")
        amounts = check_amounts(consume)
        call = Call(
            self._repository,
            check_entity_id(entity_id),
            check_resource(resource),
            None if limits is None else check_limits(limits),
            use_stored_limits,
            cascade,
            self._policy if on_unavailable is None else OnUnavailable.parse(on_unavailable),
            self._opened,
            self.speculative_writes,
        )
        return Acquire(call, amounts)

    # --- questions

    async def available(
        self, entity_id: str, resource: str, limits: Iterable[Limit] | None = None
    ) -> dict[str, int]:
        """Whole tokens that an acquire could take now; negative while in debt.

        Where the entity cascades, a limit that its parent has too shows the smaller of both.
        """
        levels: dict[str, int] = {}
        for status in await self._statuses(entity_id, resource, {}, limits):
            known = levels.get(status.limit_name, status.available)
            levels[status.limit_name] = min(known, status.available)
        return levels

    async def check_availability(
        self,
        entity_id: str,
        resource: str,
        needed: Mapping[str, int] | None = None,
        limits: Iterable[Limit] | None = None,
    ) -> Availability:
        """What an acquire of ``needed`` would be answered now, without taking anything."""
        found = await self._statuses(
            entity_id, resource, check_amounts({} if needed is None else needed, "needed"), limits
        )
        return Availability(
            not any(status.exceeded for status in found),
            tuple(found),
            max(status.retry_after_seconds for status in found),
        )

    async def time_until_available(
        self,
        entity_id: str,
        resource: str,
        needed: Mapping[str, int],
        limits: Iterable[Limit] | None = None,
    ) -> float:
        """Seconds until ``needed`` fits if nobody else comes; ``inf`` if it never does."""
        found = await self.check_availability(entity_id, resource, needed, limits)
        return found.retry_after_seconds

    async def is_available(self, timeout: float = 1.0) -> bool:
        """Whether the store answers within ``timeout`` seconds."""
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
        """Replace an entity's stored limits; live buckets follow."""
        if limits is not None:
            await self.set_limits(entity_id, limits, resource, principal)

    # --- inside

    async def _statuses(
        self,
        entity_id: str,
        resource: str,
        needed: dict[str, int],
        limits: Iterable[Limit] | None,
    ) -> list[LimitStatus]:
        call = Call(
            self._repository,
            check_entity_id(entity_id),
            check_resource(resource),
            None if limits is None else check_limits(limits),
            False,
            None,
            None,
            self._opened,
        )
        scope = await call.scope()
        admission = call.admission
        images = await admission.images(scope)
        if scope.is_stale(images):
            scope = await call.scope(fresh=True)
            images = await admission.images(scope)
        charges, now_ms = scope.charges(needed, "needed"), admission.clock()
        return [
            status
            for charge, image in zip(charges, images, strict=True)
            for status in statuses(charge, view(image, charge.in_force, now_ms), now_ms)
        ]

    async def _ping(self) -> None:
        await (self._repository or await self._opened()).ping()


def _deprecated(message: str) -> None:
    warnings.warn(message, DeprecationWarning, stacklevel=3)

"""One acquire in the making: whose limits, which buckets, and the charge itself."""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter._async.repository import Repository
from zae_limiter._async.repository.admission import Admission, Scope
from zae_limiter.admission.request import (
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.clock import Clock
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import MILLI, Limit


class Call:
    """What a lease needs to know about the call that made it."""

    __slots__ = (
        "cascade",
        "clock",
        "entity_id",
        "limits",
        "on_unavailable",
        "repository",
        "resource",
        "scope",
        "stored_first",
    )

    def __init__(
        self,
        repository: Repository | None,
        clock: Clock | None,
        entity_id: str,
        resource: str,
        limits: tuple[Limit, ...] | None,
        stored_first: bool,
        cascade: bool | None,
        on_unavailable: OnUnavailable | None,
    ) -> None:
        self.repository = repository
        self.clock = clock
        self.entity_id = entity_id
        self.resource = resource
        self.limits = limits
        self.stored_first = stored_first
        self.cascade = cascade
        self.on_unavailable = on_unavailable
        self.scope: Scope | None = None

    @property
    def admission(self) -> Admission:
        assert self.repository is not None, "opened before anything is asked of it"
        return self.repository.admission

    def now_ms(self) -> int:
        return (self.clock or self.admission.clock)()

    async def find_scope(self, now_ms: int, *, fresh: bool = False) -> Scope:
        """The buckets concerned and their limits in force."""
        self.scope = await self.admission.scope(
            self.entity_id,
            self.resource,
            self.limits,
            self.stored_first,
            self.cascade,
            now_ms,
            fresh=fresh,
        )
        return self.scope

    async def charge(self, amounts: Mapping[str, int], receipt: list[ChargeOutcome]) -> Grant:
        """Charge all or nothing; raises RateLimitExceeded. The last receipt says what stands."""
        now_ms = self.now_ms()
        scope = await self.find_scope(now_ms)
        request = ChargeRequest(scope.charges(amounts), now_ms)
        outcome = await self.admission.charge(request, receipt)
        if type(outcome) is StaleLimits:
            scope = await self.find_scope(now_ms, fresh=True)
            request = ChargeRequest(scope.charges(amounts), now_ms, refreshed=True)
            outcome = await self.admission.charge(request, receipt)
        if type(outcome) is Rejection:
            raise RateLimitExceeded(outcome.statuses)
        assert type(outcome) is Grant
        return outcome

    async def settle(self, grant: Grant, amounts: Mapping[str, int]) -> None:
        """Write debts (positive) and credits (negative) to every bucket that has the limit."""
        assert self.scope is not None
        settlements = []
        for (entity_id, in_force), keys in zip(self.scope.buckets, grant.keys, strict=True):
            wanted = {
                key: amounts[name] * MILLI
                for name, key in zip(in_force.names, keys, strict=True)
                if amounts.get(name)
            }
            if wanted:
                settlements.append(Settlement(entity_id, self.resource, in_force, wanted))
        if settlements:
            await self.admission.settle(tuple(settlements), self.now_ms())

    async def give_back(self, receipt: list[ChargeOutcome], amounts: Mapping[str, int]) -> None:
        """Undo a charge that stands although its caller was stopped before learning of it."""
        outcome = receipt[-1] if receipt else None
        if type(outcome) is Grant:
            await self.settle(outcome, negated(amounts))

    def admits_in_outage(self, error: RateLimiterUnavailable) -> bool:
        """Whether an outage lets the call through; if not, the error names the call."""
        policy = self.admission.outage_policy(self.on_unavailable)
        error.entity_id, error.resource = self.entity_id, self.resource
        error.stack_name = error.stack_name or self.admission.stack_name
        return policy is OnUnavailable.ALLOW


def negated(amounts: Mapping[str, int]) -> dict[str, int]:
    """Credits for charges."""
    return {name: -amount for name, amount in amounts.items()}

"""One acquire in the making: whose limits, which buckets, and the charge itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from zae_limiter._async.repository import Repository
from zae_limiter._async.repository.admission import Admission
from zae_limiter.admission.request import (
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.resolution import Scope


class Call:
    """What was asked for; does not change once the repository is open."""

    __slots__ = (
        "cascade",
        "entity_id",
        "limits",
        "on_unavailable",
        "opened",
        "repository",
        "resource",
        "speculative",
        "stored_first",
    )

    def __init__(
        self,
        repository: Repository | None,
        entity_id: str,
        resource: str,
        limits: tuple[Limit, ...] | None,
        stored_first: bool,
        cascade: bool | None,
        on_unavailable: OnUnavailable | None,
        opened: Callable[[], Awaitable[Repository]],
        speculative: bool = True,
    ) -> None:
        self.repository = repository
        self.opened = opened
        self.entity_id = entity_id
        self.resource = resource
        self.limits = limits
        self.stored_first = stored_first
        self.cascade = cascade
        self.on_unavailable = on_unavailable
        self.speculative = speculative

    @property
    def admission(self) -> Admission:
        assert self.repository is not None, "opened before anything is asked of it"
        return self.repository.admission

    async def scope(self, *, fresh: bool = False) -> Scope:
        """The buckets concerned and their limits in force."""
        if self.repository is None:
            self.repository = await self.opened()
        return await self.admission.scope(
            self.entity_id,
            self.resource,
            self.limits,
            self.stored_first,
            self.cascade,
            fresh=fresh,
        )

    async def charge(
        self, amounts: Mapping[str, int], receipt: list[ChargeOutcome], *, is_acquire: bool = True
    ) -> Grant:
        """Charge all or nothing; raises RateLimitExceeded. The last receipt says what stands."""
        if self.repository is None:
            self.repository = await self.opened()
        admission = self.repository.admission
        scope = await admission.scope(
            self.entity_id, self.resource, self.limits, self.stored_first, self.cascade
        )
        charges = scope.charges(amounts)
        request = ChargeRequest(charges, admission.clock, False, is_acquire, self.speculative)
        outcome = await admission.charge(request, receipt)
        if type(outcome) is StaleLimits:
            charges = (await self.scope(fresh=True)).charges(amounts)
            request = ChargeRequest(charges, admission.clock, True, is_acquire, self.speculative)
            outcome = await admission.charge(request, receipt)
        if type(outcome) is Rejection:
            raise RateLimitExceeded(outcome.statuses)
        assert type(outcome) is Grant
        return outcome

    async def settle(self, settlements: tuple[Settlement, ...], receipt: list[None]) -> None:
        """Write debts and credits; the receipt says whether that stands."""
        if settlements:
            await self.admission.settle(settlements, receipt)

    async def settle_quietly(
        self, settlements: tuple[Settlement, ...], receipt: list[None]
    ) -> None:
        """The same where nobody could handle an error: it is logged and counted."""
        try:
            await self.settle(settlements, receipt)
        except Exception:
            self.admission.count_lost_settlement()
            import logging

            logging.getLogger("zae_limiter").exception(
                "could not settle %s for %r on %r",
                [(each.entity_id, each.amounts_milli) for each in settlements],
                self.entity_id,
                self.resource,
            )

    async def give_back(self, receipt: list[ChargeOutcome], amounts: Mapping[str, int]) -> None:
        """Undo a charge that stands although its caller was stopped before learning of it."""
        outcome = receipt[-1] if receipt else None
        if type(outcome) is Grant:
            await self.settle_quietly(outcome.settlements(negated(amounts)), [])

    def admits_in_outage(self, error: RateLimiterUnavailable) -> bool:
        """Whether an outage lets the call through; if not, the error names the call."""
        error.entity_id, error.resource = self.entity_id, self.resource
        if self.repository is None:  # it could not even be opened
            return self.on_unavailable is OnUnavailable.ALLOW
        error.stack_name = error.stack_name or self.repository.stack_name
        if self.admission.outage_policy(self.on_unavailable) is not OnUnavailable.ALLOW:
            return False
        self.admission.note_uncharged(error)
        return True


def negated(amounts: Mapping[str, int]) -> dict[str, int]:
    """Credits for charges."""
    return {name: -amount for name, amount in amounts.items()}

"""Buckets in DynamoDB: one conditional write per bucket and charge, no read before it."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from zae_limiter._async.engines.dynamodb.exchange import Exchange
from zae_limiter._async.engines.dynamodb.families import Families
from zae_limiter._async.engines.dynamodb.forgetting import Forgetting
from zae_limiter._async.engines.dynamodb.gathering import Gathering
from zae_limiter._async.engines.dynamodb.grouping import Grouping
from zae_limiter._async.engines.dynamodb.inspection import Inspection
from zae_limiter._async.engines.dynamodb.mending import Mending
from zae_limiter._async.engines.dynamodb.reshaping import Reshaping
from zae_limiter._async.engines.dynamodb.routing import Routing
from zae_limiter._async.engines.dynamodb.store import Store
from zae_limiter._async.engines.dynamodb.survey import Survey
from zae_limiter._async.engines.dynamodb.writing import Writing
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import (
    Charge,
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Settlement,
)
from zae_limiter.clock import Clock
from zae_limiter.concurrency.parallel import agather
from zae_limiter.concurrency.shield import ashield
from zae_limiter.dynamodb.cascade import compensation, in_order, refusal
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.heat import Heat
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.member import Member, Written
from zae_limiter.dynamodb.part import Part
from zae_limiter.dynamodb.refusals import Refusals
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.models.bucket import BucketState, ResourceCapacity
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import NoAnswer, ServerFault

CHARGE_SHARE = 0.75  # of the time that is left; the rest is for giving back
MAY_STAND = (Written, NoAnswer, ServerFault)


class DynamoBuckets:
    """Child and parent are charged side by side; what one side refuses, the other gives back."""

    def __init__(
        self,
        store: Store,
        known: Known,
        counters: Counters,
        *,
        rejection_cache_ttl: float,
        max_shards: int,
    ) -> None:
        client = store.client
        self._client = client
        self._known = known
        self._counters = counters
        self._parallel = store.parallel
        heat, survey, exchange = Heat(), Survey(client, known), Exchange(client)
        families, forgetting = Families(client, known), Forgetting(client)
        grouping = Grouping(Writing(exchange, known, families, forgetting, heat, counters))
        self.reshaping = Reshaping(
            client, known, survey, exchange, forgetting, heat, counters, max_shards
        )
        self._routing = Routing(
            grouping,
            known,
            survey,
            Gathering(client, known, survey, exchange, grouping, counters),
            self.reshaping,
            counters,
            rejection_cache_ttl,
        )
        self._refusals = Refusals(known, counters, rejection_cache_ttl)
        self._inspection = Inspection(client, survey)
        self._mending = Mending(store, known, survey)

    def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: list[ChargeOutcome]
    ) -> Coroutine[Any, Any, ChargeOutcome]:
        charge = self._charge_one if len(request.charges) == 1 else self._charge_all
        return charge(namespace_id, request, receipt)  # unasync: remove
        # sync: return shield(lambda: charge(namespace_id, request, receipt))

    async def settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: list[None],
    ) -> None:
        await ashield(lambda: self._settle(namespace_id, settlements, clock, receipt))

    async def get(
        self, namespace_id: str, entity_id: str, resource: str, clock: Clock
    ) -> BucketImage | None:
        return await self._inspection.image((namespace_id, entity_id, resource), clock)

    async def states(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> list[BucketState]:
        return await self._inspection.states(namespace_id, entity_id, resource, clock)

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        return await self._inspection.capacity(
            namespace_id, resource, limit_name, parents_only, clock
        )

    async def reset(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        return await self._mending.reset((namespace_id, entity_id, resource), now_ms, principal)

    async def top_up(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        now_ms: int,
        principal: str | None,
    ) -> bool:
        place = (namespace_id, entity_id, resource)
        return await self._mending.top_up(place, amounts, now_ms, principal)

    async def _charge_one(
        self, namespace_id: str, request: ChargeRequest, receipt: list[ChargeOutcome]
    ) -> ChargeOutcome:
        """Who waits for somebody else's write can be stopped; who writes itself can not."""
        charges = request.charges
        member = _member(namespace_id, charges[0], request, self._client.deadline())
        if not self._refusals.refuses(member, request.clock()):
            try:
                await self._routing.decide(member)
            finally:
                if isinstance(member.outcome, Written):
                    receipt.append(Grant(charges))
        if not isinstance(member.outcome, Written):
            receipt.append(refusal(charges, [member], self._known, request.clock()))
        return receipt[-1]

    async def _charge_all(
        self, namespace_id: str, request: ChargeRequest, receipt: list[ChargeOutcome]
    ) -> ChargeOutcome:
        return await ashield(lambda: self._cascade(namespace_id, request, receipt))

    async def _cascade(
        self, namespace_id: str, request: ChargeRequest, receipt: list[ChargeOutcome]
    ) -> ChargeOutcome:
        whole, charges = self._client.deadline(), request.charges
        deadline = Deadline(whole.left() * CHARGE_SHARE)
        members = [_member(namespace_id, charge, request, deadline) for charge in charges]
        try:
            await self._charge_each(members, request.clock())
        except BaseException:
            await self._give_back(charges, members, whole)
            raise
        outcome: ChargeOutcome
        if all(isinstance(member.outcome, Written) for member in members):
            outcome = Grant(charges)
        else:
            await self._give_back(charges, members, whole)
            outcome = refusal(charges, members, self._known, request.clock())
        receipt.append(outcome)
        return outcome

    async def _charge_each(self, members: list[Member], now_ms: int) -> None:
        """All at once; or first those in doubt, and the others only if they are charged."""
        if any(self._refusals.refuses(member, now_ms) for member in members):
            return
        in_doubt = in_order(members, self._known, now_ms) if len(members) > 1 else None
        if in_doubt is None:
            await agather(
                self._parallel, *(lambda each=each: self._routing.decide(each) for each in members)
            )
            return
        for member in in_doubt:
            await self._routing.decide(member)
            if not isinstance(member.outcome, Written):
                return

    async def _give_back(
        self, charges: tuple[Charge, ...], members: list[Member], deadline: Deadline
    ) -> None:
        """Take back what one side has charged when the other did not."""
        for charge, member in zip(charges, members, strict=True):
            if not isinstance(member.outcome, Written):
                continue
            owed = compensation(charge)
            part = Part.of_settlement(owed, -member.part.admitted)
            back = Member(member.place, part, member.clock, deadline)
            await self._routing.decide(back)
            if isinstance(back.outcome, ZAELimiterError):
                self._counters.add(lost_refunds=1)
                logging.getLogger("zae_limiter").error(
                    "could not give %r back to %r on %r",
                    owed.amounts_milli,
                    owed.entity_id,
                    owed.resource,
                    exc_info=back.outcome,
                )

    async def _settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: list[None],
    ) -> None:
        deadline = self._client.deadline()
        members = [
            Member(
                (namespace_id, each.entity_id, each.resource),
                Part.of_settlement(each),
                clock,
                deadline,
            )
            for each in settlements
        ]
        try:
            await agather(
                self._parallel, *(lambda each=each: self._routing.decide(each) for each in members)
            )
        finally:
            if any(isinstance(member.outcome, MAY_STAND) for member in members):
                receipt.append(None)  # it stands in part, or may: not to be made twice
        for member in members:
            if isinstance(member.outcome, ZAELimiterError):
                raise member.outcome


def _member(
    namespace_id: str, charge: Charge, request: ChargeRequest, deadline: Deadline
) -> Member:
    entity_id, resource, in_force, amounts_milli = charge
    _, clock, refreshed, is_acquire, speculative = request
    amounts = dict(zip(in_force.keys, amounts_milli, strict=True))
    part = Part(in_force, amounts, True, int(is_acquire), refreshed)
    place = (namespace_id, entity_id, resource)
    return Member(place, part, clock, deadline, look_first=not speculative)

"""Charges of several buckets at once, such as an entity and its parent: all or none."""

from __future__ import annotations

from functools import partial

from zae_limiter._async.engines.items.sharding.routing import ShardRouter
from zae_limiter.admission.request import Charge, ChargeOutcome, ChargeRequest
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.answers import grant, refund_of, refusal
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.buckets.outcomes import Applied, Outcome, Rejected
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.counters import Counters
from zae_limiter.items.rejection_cache import Prospect, RejectionCache
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.finishing import Receipt, agather_shielded
from zae_limiter.runtime.parallel import Parallel

CHARGE_SHARE = 0.75  # of the remaining time; the rest is for a refund if one bucket rejects

logger = quiet_logger(__name__)


class Cascade:
    """Charges child and parent side by side, and refunds one if the other rejects.

    The buckets of an acquire over several resources are charged one after the other.
    """

    def __init__(
        self,
        router: ShardRouter,
        rejections: RejectionCache,
        cache: BucketCache,
        counters: Counters,
        parallel: Parallel,
    ) -> None:
        self._router = router
        self._rejections = rejections
        self._cache = cache
        self._counters = counters
        self._parallel = parallel

    async def charge(
        self,
        namespace_id: str,
        request: ChargeRequest,
        deadline: Deadline,
        receipt: Receipt[ChargeOutcome],
    ) -> ChargeOutcome:
        """Charge every bucket of a request or none. The caller is under a shield."""
        charge_until = Deadline(deadline.left() * CHARGE_SHARE)
        pending = [
            PendingChange.of_charge(namespace_id, charge, request, charge_until)
            for charge in request.charges
        ]
        try:
            outcomes = await self._charge_each(pending, request.now_ms, in_order=request.in_order)
        except BaseException:
            await self._refund(request, pending, deadline)
            raise
        applied = [outcome for outcome in outcomes if isinstance(outcome, Applied)]
        if len(applied) == len(pending):
            receipt.outcome = grant(request, pending, applied, self._cache)
        else:
            await self._refund(request, pending, deadline)
            receipt.outcome = refusal(request, pending, outcomes, self._cache)
        return receipt.outcome

    async def submit_all(self, pending: list[PendingChange]) -> list[Outcome]:
        """Return the outcomes of changes to several buckets, which are made side by side."""
        return await agather_shielded(
            self._parallel, *[partial(self._router.submit, each) for each in pending]
        )

    async def _charge_each(
        self, pending: list[PendingChange], now_ms: int, *, in_order: bool
    ) -> list[Outcome | None]:
        """Charge all buckets at once if they seem to hold the amounts, else one after the other.

        A bucket that will probably reject is asked first and alone, so that the other is not
        charged in vain. The outcome of a bucket that was not asked is None. With ``in_order`` all
        are asked one after the other, as they come.
        """
        outcomes: list[Outcome | None] = [None] * len(pending)
        doubtful: list[int] = []
        for position, each in enumerate(pending):
            judged = self._rejections.judge(each, now_ms)
            if isinstance(judged, Rejected):
                outcomes[position] = judged
                return outcomes
            if judged is Prospect.DOUBTFUL:
                doubtful.append(position)
        if not doubtful and not in_order:
            return [*await self.submit_all(pending)]
        order = list(range(len(pending)))
        if not in_order:
            order = doubtful + [position for position in order if position not in doubtful]
        for position in order:
            pending[position].stamp_ms = None  # it may be from before the other's round trip
            outcome = outcomes[position] = await self._router.submit(pending[position])
            if not isinstance(outcome, Applied):
                break
        return outcomes

    async def _refund(
        self, request: ChargeRequest, pending: list[PendingChange], deadline: Deadline
    ) -> None:
        """Refund the buckets that were charged, also for a caller that was cancelled meanwhile."""
        for charge, each in zip(request.charges, pending, strict=True):
            if isinstance(each.outcome, Applied):
                await self._refund_one(charge, each, each.outcome, deadline)

    async def _refund_one(
        self, charge: Charge, charged: PendingChange, applied: Applied, deadline: Deadline
    ) -> None:
        for settlement in refund_of(charge, applied, charged.change.admitted):
            refund = PendingChange(charged.bucket_id, settlement, charged.clock, deadline)
            outcome = await self._router.submit(refund)
            if isinstance(outcome, ZAELimiterError):
                self._counters.add(lost_refunds=1)
                logger.error(
                    "could not refund %r to %r on %r",
                    settlement.amounts_milli,
                    settlement.entity_id,
                    settlement.resource,
                    exc_info=outcome,
                )

"""A lease: tokens that were taken, and what the block makes of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from zae_limiter._async.call import Call, negated
from zae_limiter.admission.request import ChargeOutcome, Grant
from zae_limiter.exceptions import InfrastructureError, LeaseExpiredError, ValidationError
from zae_limiter.models.limit import check_amounts

logger = logging.getLogger("zae_limiter")


class Lease:
    """Valid inside its ``async with`` block. It covers every limit of its resource.

    Charges are written when the block is entered; adjustments when it is left. If the block
    raises, everything that was written is given back. In an outage that admits (``allow``) the
    lease is uncharged: ``consumed`` is empty, and only ``consume`` asks the store again.
    """

    __slots__ = ("_call", "_grant", "_open", "_pending", "_written")

    def __init__(self, call: Call, grant: Grant | None, written: dict[str, int]) -> None:
        self._call = call
        self._grant = grant
        self._written = written
        self._pending: dict[str, int] = {}
        self._open = True

    @property
    def consumed(self) -> dict[str, int]:
        """Net tokens per limit, adjustments included."""
        if not self._pending:
            return dict(self._written)
        return _sum(self._written, self._pending)

    async def adjust(self, **amounts: int) -> None:
        """Add to what the block costs (or subtract), written when it ends.

        Never refused for lack of tokens: the bucket goes into debt and repays it over time.
        """
        checked = self._check("adjust", amounts, signed=True)
        if self._grant is not None:
            self._check_names("adjust", checked)
            self._pending = _sum(self._pending, checked)

    async def consume(self, **amounts: int) -> None:
        """Take more tokens now; raises RateLimitExceeded like acquire."""
        checked = self._check("consume", amounts)
        receipt: list[ChargeOutcome] = []
        try:
            self._grant = await self._call.charge(checked, receipt)
            self._written = _sum(self._written, checked)
        except BaseException:
            await self._call.give_back(receipt, checked)
            raise

    async def release(self, **amounts: int) -> None:
        """Give tokens of this lease back now."""
        checked = self._check("release", amounts)
        if self._grant is None:
            return
        self._check_names("release", checked)
        for name, amount in checked.items():
            held = self._written.get(name, 0)
            if amount > held:
                raise ValidationError(
                    f"release.{name}", amount, f"is more than this lease holds ({held})"
                )
        self._written = _sum(self._written, negated(checked))
        await self._call.settle(self._grant, negated(checked))

    async def _end(self, failed: bool) -> None:
        """Write the adjustments, or give back all that was written. Raises no outage."""
        self._open = False
        amounts = negated(self._written) if failed else self._pending
        if self._grant is None or not any(amounts.values()):
            return
        try:
            await self._call.settle(self._grant, amounts)
        except InfrastructureError as error:
            self._call.admission.count_lost_settlement()
            logger.error(
                "could not settle %s for %r on %r: %s",
                amounts,
                self._call.entity_id,
                self._call.resource,
                error,
            )

    def _check(
        self, operation: str, amounts: Mapping[str, int], *, signed: bool = False
    ) -> dict[str, int]:
        if not self._open:
            raise LeaseExpiredError(operation)
        return check_amounts(amounts, operation, signed=signed)

    def _check_names(self, operation: str, amounts: Mapping[str, int]) -> None:
        assert self._call.scope is not None
        self._call.scope.check_names(amounts, operation)


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    total = dict(first)
    for name, amount in second.items():
        total[name] = total.get(name, 0) + amount
    return total

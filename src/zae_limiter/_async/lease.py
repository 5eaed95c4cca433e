"""A lease: tokens that were taken, and what the block makes of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter._async.call import Call, negated
from zae_limiter.admission.request import ChargeOutcome, Grant, Settlement
from zae_limiter.exceptions import LeaseExpiredError, RateLimiterUnavailable, ValidationError
from zae_limiter.models.limit import check_amounts


class Held(NamedTuple):
    """What one charge took and the lease still holds; goes back to just the same buckets."""

    grant: Grant
    amounts: dict[str, int]


class Lease:
    """Valid inside its ``async with`` block. It covers every limit of its resource.

    Charges are written when the block is entered; adjustments when it is left. If the block
    raises, everything that was written is given back. In an outage that admits (``allow``) the
    lease is uncharged: ``consumed`` is empty, and only ``consume`` asks the store again.
    """

    __slots__ = ("_call", "_held", "_lock", "_open", "_pending", "_settled")

    def __init__(self, call: Call, held: list[Held]) -> None:
        self._call = call
        self._held = held
        self._pending: dict[str, int] = {}
        self._open = True
        self._settled: list[None] = []
        self._lock = threading.Lock()

    @property
    def consumed(self) -> dict[str, int]:
        """Net tokens per limit, adjustments included."""
        with self._lock:
            return _sum(*(held.amounts for held in self._held), self._pending)

    async def adjust(self, /, **amounts: int) -> None:
        """Add to what the block costs (or subtract), written when it ends.

        Never refused for lack of tokens: the bucket goes into debt and repays it over time.
        """
        checked = self._check("adjust", amounts, signed=True)
        with self._lock:
            if self._held:
                self._check_names("adjust", checked)
                self._pending = _sum(self._pending, checked)

    async def consume(self, /, **amounts: int) -> None:
        """Take more tokens now; raises RateLimitExceeded like acquire."""
        checked = self._check("consume", amounts)
        receipt: list[ChargeOutcome] = []
        try:
            grant = await self._call.charge(checked, receipt, is_acquire=False)
            with self._lock:
                self._held.append(Held(grant, checked))
        except RateLimiterUnavailable as error:
            if not self._call.admits_in_outage(error):
                raise
        except BaseException:
            await self._call.give_back(receipt, checked)
            raise

    async def release(self, /, **amounts: int) -> None:
        """Give tokens of this lease back now, those taken last first."""
        checked = self._check("release", amounts)
        with self._lock:
            if not self._held:
                return
            self._check_names("release", checked)
            parts = self._take_out(checked)
        receipt: list[None] = []
        try:
            returned = _flat(grant.settlements(negated(part)) for grant, part in parts)
            await self._call.settle(returned, receipt)
        except BaseException:
            if not receipt:  # still ours, to be given back at the end
                with self._lock:
                    self._held.extend(parts)
            raise

    async def _end(self, failed: bool) -> None:
        """Write the adjustments, or give back all that was written. Raises no outage.

        If it is interrupted before that stands, it can be called again.
        """
        self._open = False
        if (failed or self._pending) and not self._settled:
            await self._call.settle_quietly(self._owed(failed), self._settled)

    def _owed(self, failed: bool) -> tuple[Settlement, ...]:
        with self._lock:
            if failed:
                return _flat(each.grant.settlements(negated(each.amounts)) for each in self._held)
            return _flat(
                self._first_with(name).settlements({name: amount})
                for name, amount in self._pending.items()
            )

    def _first_with(self, name: str) -> Grant:
        """Adjustments go where the limit was first charged: a credit must not go elsewhere."""
        return next(each.grant for each in self._held if name in each.grant.names())

    def _take_out(self, amounts: Mapping[str, int]) -> list[Held]:
        """Remove amounts from what is held; nothing is removed if one of them is too large."""
        for name, amount in amounts.items():
            held = sum(each.amounts.get(name, 0) for each in self._held)
            if amount > held:
                raise ValidationError(
                    f"release.{name}", amount, f"is more than this lease holds ({held})"
                )
        left, parts = dict(amounts), []
        for each in reversed(self._held):
            part = {name: min(left.get(name, 0), held) for name, held in each.amounts.items()}
            for name, amount in part.items():
                each.amounts[name] -= amount
                left[name] = left.get(name, 0) - amount
            parts.append(Held(each.grant, part))
        return parts

    def _check(
        self, operation: str, amounts: Mapping[str, int], *, signed: bool = False
    ) -> dict[str, int]:
        if not self._open:
            raise LeaseExpiredError(operation)
        return check_amounts(amounts, operation, signed=signed)

    def _check_names(self, operation: str, amounts: Mapping[str, int]) -> None:
        known = frozenset().union(*(each.grant.names() for each in self._held))
        for name, amount in amounts.items():
            if name not in known:
                raise ValidationError(
                    f"{operation}.{name}",
                    amount,
                    f"is not a limit of {self._call.resource!r}; "
                    f"its limits are {', '.join(sorted(known))}",
                )


def _sum(*parts: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _flat(groups: Iterable[tuple[Settlement, ...]]) -> tuple[Settlement, ...]:
    return tuple(each for group in groups for each in group)

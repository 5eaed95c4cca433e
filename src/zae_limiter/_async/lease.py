"""A lease: tokens that were charged, and what the block changes about them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.request import ChargeOutcome, Grant, Settlement
from zae_limiter.concurrency.receipt import Receipt
from zae_limiter.exceptions import LeaseExpiredError, RateLimiterUnavailable, ValidationError
from zae_limiter.models.limit import check_amounts

if TYPE_CHECKING:
    from zae_limiter._async.acquire import AcquireCall


class HeldCharge(NamedTuple):
    """The amounts of one charge, or of a release (negative), with the buckets they belong to."""

    grant: Grant
    amounts: dict[str, int]


class Lease:
    """Valid inside its ``async with`` block. It covers every limit of its resource.

    Charges are written when the block is entered; adjustments when it is left. If the block
    raises, everything that was written is given back. In an outage that admits (``allow``) the
    lease is uncharged: ``consumed`` is empty, and only ``consume`` asks the store again.
    """

    __slots__ = ("_call", "_held", "_lock", "_open", "_pending", "_settled")

    def __init__(self, call: AcquireCall, held: list[HeldCharge]) -> None:
        self._call = call
        self._held = held
        self._pending: dict[str, int] = {}
        self._open = True
        self._settled: Receipt[None] = Receipt()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        call, ended = self._call, "" if self._open else ", ended"
        return (
            f"{type(self).__name__}({call.entity_id!r} on {call.resource!r}, "
            f"consumed {self.consumed}{ended})"
        )

    @property
    def consumed(self) -> dict[str, int]:
        """Return net tokens per limit, adjustments included."""
        with self._lock:
            return _sum(*[each.amounts for each in self._held], self._pending)

    async def adjust(self, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Add to what the block costs (or subtract), written when it ends.

        A mapping may stand for the keywords: ``adjust({"gpt-4.tokens": 5})``.

        Never refused for lack of tokens: the bucket goes into debt and repays it over time.
        """
        checked = self._check("adjust", amounts, named, signed=True)
        with self._lock:
            if self._held:
                self._check_names("adjust", checked)
                self._pending = _sum(self._pending, checked)

    async def consume(self, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Take more tokens now; raises RateLimitExceeded like acquire."""
        checked = self._check("consume", amounts, named)
        receipt: Receipt[ChargeOutcome] = Receipt()
        taken: list[HeldCharge] = []
        try:
            grant = await self._call.charge(checked, receipt, is_acquire=False)
            taken.append(HeldCharge(grant, checked))
            with self._lock:
                if not self._open:  # the block ended meanwhile, and has settled without this
                    raise LeaseExpiredError("consume")
                self._held.extend(taken)
        except RateLimiterUnavailable as error:
            if not self._call.admits_in_outage(error):
                raise
        except BaseException:
            if not self._holds(taken):  # else the end of the block gives it back
                await self._call.give_back(receipt, checked)
            raise

    async def release(self, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Give tokens of this lease back now, those taken last first."""
        checked = self._check("release", amounts, named)
        receipt: Receipt[None] = Receipt()
        returned: list[HeldCharge] = []
        try:
            with self._lock:
                if not self._held:
                    return
                self._check_names("release", checked)
                returned = self._credits(checked)
                # Before it is written: a second release must not find it.
                self._held.extend(returned)
            await self._call.settle(_flat([g.settlements(part) for g, part in returned]), receipt)
        except BaseException:
            if not receipt.is_committed and self._holds(returned):
                with self._lock:
                    self._held = [each for each in self._held if not _is_one_of(each, returned)]
            raise

    async def _end(self, failed: bool) -> None:
        """Write the adjustments, or refund all that was written. Raises no outage.

        If it is interrupted before that is committed, it can be called again.
        """
        with self._lock:
            self._open = False
        if (failed or self._pending) and not self._settled.is_committed:
            await self._call.settle_quietly(self._settlements(failed), self._settled)

    def _settlements(self, failed: bool) -> tuple[Settlement, ...]:
        with self._lock:
            if failed:
                return _flat([g.settlements(negated(amounts)) for g, amounts in self._net()])
            owed: dict[int, HeldCharge] = {}
            for name, amount in self._pending.items():
                grant = self._first_with(name)
                owed.setdefault(id(grant), HeldCharge(grant, {})).amounts[name] = amount
            return _flat([grant.settlements(amounts) for grant, amounts in owed.values()])

    def _first_with(self, name: str) -> Grant:
        """Return the first charge with the limit: a credit must go where it was charged."""
        for each in self._held:
            if name in each.grant.names():
                return each.grant
        raise AssertionError(f"{name} was checked when it was adjusted")

    def _net(self) -> list[HeldCharge]:
        """Return what is still held of each charge, the oldest first."""
        charges: dict[int, HeldCharge] = {}
        for grant, amounts in self._held:
            before = charges.get(id(grant), HeldCharge(grant, {}))
            charges[id(grant)] = HeldCharge(grant, _sum(before.amounts, amounts))
        return list(charges.values())

    def _holds(self, parts: list[HeldCharge]) -> bool:
        return bool(parts) and _is_one_of(parts[0], self._held)

    def _credits(self, amounts: Mapping[str, int]) -> list[HeldCharge]:
        """Split ``amounts`` into credits, the newest charges first."""
        left, parts = dict(amounts), []
        for grant, held in reversed(self._net()):
            part = {
                name: -min(amount, held[name])
                for name, amount in left.items()
                if amount and held.get(name)
            }
            if part:
                left = _sum(left, part)
                parts.append(HeldCharge(grant, part))
        for name, missing in left.items():
            if missing:
                raise ValidationError(
                    f"release.{name}",
                    amounts[name],
                    f"is more than this lease holds ({amounts[name] - missing})",
                )
        return parts

    def _check(
        self,
        operation: str,
        amounts: Mapping[str, int] | None,
        named: dict[str, int],
        *,
        signed: bool = False,
    ) -> dict[str, int]:
        if not self._open:
            raise LeaseExpiredError(operation)
        checked = check_amounts(named, operation, signed=signed)
        if amounts is None:
            return checked
        mapped = check_amounts(amounts, operation, signed=signed)
        for name in mapped.keys() & checked.keys():
            raise ValidationError(f"{operation}.{name}", checked[name], "was given twice")
        return mapped | checked

    def _check_names(self, operation: str, amounts: Mapping[str, int]) -> None:
        known = frozenset[str]().union(*[each.grant.names() for each in self._held])
        for name, amount in amounts.items():
            if name not in known:
                raise ValidationError(
                    f"{operation}.{name}",
                    amount,
                    f"is not a limit of {self._call.resource!r}; "
                    f"its limits are {', '.join(sorted(known))}",
                )


def _is_one_of(part: HeldCharge, parts: list[HeldCharge]) -> bool:
    """Compare by identity: two charges may well be equal."""
    for each in parts:  # noqa: SIM110 - a generator that an interrupt ends complains
        if each is part:
            return True
    return False


def _sum(*parts: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _flat(groups: Iterable[tuple[Settlement, ...]]) -> tuple[Settlement, ...]:
    return tuple([each for group in groups for each in group])


def negated(amounts: Mapping[str, int]) -> dict[str, int]:
    """Turn charges into credits."""
    return {name: -amount for name, amount in amounts.items()}

"""The account of a lease: what it has written, what it costs, and what of that a failure keeps.

Three numbers per limit. W is what is written to the buckets, T is what the block costs if it
succeeds, K is what it costs if it fails. At its end a block writes T - W, or K - W.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.request import ChargeOutcome, Grant, Settlement
from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus

NOTHING: Mapping[str, int] = {}


class HeldCharge(NamedTuple):
    """One charge of a lease; ``amounts`` is what is written of it and was not given back.

    ``written`` is what the whole lease had written when the charge was answered.
    """

    grant: Grant
    amounts: Mapping[str, int]
    written: Mapping[str, int]


class ChargeShare(NamedTuple):
    """Debts (positive) and credits (negative) that belong to the buckets of one charge."""

    position: int  # of the charge, among those of the lease
    amounts: Mapping[str, int]


class LeaseAccount(NamedTuple):
    """The charges of a lease, the oldest first, and its three numbers per limit.

    It never changes: every operation returns the account after it, so that an interrupt finds the
    account from before an operation or from after it, and nothing in between.

    W is the sum of what the charges hold. T is W and ``unwritten``. K is ``kept``: of the limits
    that were settled; of every other limit a failure keeps nothing. A lease that keeps everything
    on an error ends as if its block had succeeded, so its K is T and needs no number.
    """

    charges: tuple[HeldCharge, ...] = ()
    unwritten: Mapping[str, int] = NOTHING
    kept: Mapping[str, int] = NOTHING

    def written(self) -> dict[str, int]:
        """Return W."""
        return sum_amounts([charge.amounts for charge in self.charges])

    def cost(self) -> dict[str, int]:
        """Return T."""
        return sum_amounts([self.written(), self.unwritten])

    def names(self) -> frozenset[str]:
        """Return the limits that the lease covers, except those with slots."""
        return frozenset[str]().union(*[charge.grant.names() for charge in self.charges])

    def has_slots(self, name: str) -> bool:
        """Whether a limit of that name bounds the calls in flight."""
        charges = [charge for held in self.charges for charge in held.grant.charges]
        return any(name in charge.in_force.name_set for charge in charges) and (
            name not in self.names()
        )

    def statuses(self, now_ms: int) -> tuple[LimitStatus, ...]:
        """Return what is left of every limit, by the newest answer about its bucket."""
        from zae_limiter.admission.report import statuses_after  # not before it is needed

        cost, latest = self.cost(), {}
        for charge in self.charges:
            since = sum_amounts([cost, negated(charge.written)])
            for status in statuses_after(charge.grant, since, cost, now_ms):
                latest[status.entity_id, status.limit_name] = status
        return tuple(latest.values())

    def holds(self, outcome: ChargeOutcome) -> bool:
        """Whether a charge is booked; by identity, since two charges may well be equal."""
        for charge in self.charges:  # noqa: SIM110 - a generator that an interrupt ends complains
            if charge.grant is outcome:
                return True
        return False

    # --- operations

    def charged(self, grant: Grant, amounts: Mapping[str, int]) -> LeaseAccount:
        """Book a charge that was granted: T and W grow."""
        written = sum_amounts([self.written(), amounts])
        return self._replace(charges=(*self.charges, HeldCharge(grant, amounts, written)))

    def adjusted(self, amounts: Mapping[str, int]) -> LeaseAccount:
        """Change T."""
        changed = self._replace(unwritten=sum_amounts([self.unwritten, amounts]))
        return changed.kept_at_most_the_cost(amounts)

    def released(self, amounts: Mapping[str, int]) -> Booking:
        """Take from T and W; no more than W of a limit can be released."""
        written = self.written()
        for name, amount in amounts.items():
            if amount > written.get(name, 0):
                raise ValidationError(
                    f"release.{name}",
                    amount,
                    f"is more than this lease holds ({written.get(name, 0)})",
                )
        parts = self.parts(negated(amounts))
        return Booking(self, self.changed_by(parts).kept_at_most_the_cost(amounts), parts)

    def settled(self, amounts: Mapping[str, int]) -> LeaseAccount:
        """Set T and K."""
        written = self.written()
        unwritten = {name: cost - written.get(name, 0) for name, cost in amounts.items()}
        return self._replace(
            unwritten={**self.unwritten, **unwritten}, kept={**self.kept, **amounts}
        )

    def written_out(self, names: Iterable[str]) -> Booking:
        """Make W equal to T for these limits."""
        changes = {name: self.unwritten.get(name, 0) for name in names}
        parts = self.parts(changes)
        unwritten = sum_amounts([self.unwritten, negated(changes)])
        return Booking(self, self.changed_by(parts)._replace(unwritten=unwritten), parts)

    # --- the end

    def at_end(self, failed: bool) -> Mapping[str, int]:
        """Return what is to be written at the end of the block: T - W, or K - W if it failed."""
        if not failed:
            return self.unwritten
        return {name: self.kept.get(name, 0) - amount for name, amount in self._owned().items()}

    def parts(self, changes: Mapping[str, int]) -> list[ChargeShare]:
        """Divide debts and credits among the charges.

        A credit goes to the newest charge that still holds some. A debt, and a credit of more
        than the lease holds, go to the first charge with the limit.
        """
        divided: dict[int, dict[str, int]] = {}
        for name, change in changes.items():
            left = change
            for position in reversed(range(len(self.charges))):
                held = self.charges[position].amounts.get(name, 0)
                if left < 0 < held:
                    credit = max(left, -held)
                    divided.setdefault(position, {})[name] = credit
                    left -= credit
            if left:
                amounts = divided.setdefault(self._first_with(name), {})
                amounts[name] = amounts.get(name, 0) + left
        return [ChargeShare(position, amounts) for position, amounts in divided.items()]

    def settlements(self, parts: Iterable[ChargeShare]) -> tuple[Settlement, ...]:
        """Return what to write to each bucket."""
        return tuple(
            [
                settlement
                for position, amounts in parts
                for settlement in self.charges[position].grant.settlements(amounts)
            ]
        )

    def _owned(self) -> dict[str, int]:
        """Return W, with 0 for limits that were settled without a charge."""
        return sum_amounts([self.written(), dict.fromkeys(self.kept, 0)])

    def _first_with(self, name: str) -> int:
        for position, charge in enumerate(self.charges):
            if name in charge.grant.names():
                return position
        raise AssertionError(f"{name} was checked when it was named")

    def changed_by(self, parts: Iterable[ChargeShare]) -> LeaseAccount:
        """Change what the charges hold."""
        charges = list(self.charges)
        for position, amounts in parts:
            charge = charges[position]
            charges[position] = charge._replace(amounts=sum_amounts([charge.amounts, amounts]))
        return self._replace(charges=tuple(charges))

    def kept_at_most_the_cost(self, changed: Iterable[str]) -> LeaseAccount:
        """Lower K to T, where T fell below it: a failure costs no more than a success."""
        if not self.kept:
            return self
        cost, kept = self.cost(), dict(self.kept)
        for name in changed:
            if name in kept:
                kept[name] = min(kept[name], max(0, cost.get(name, 0)))
        return self._replace(kept=kept)


class Booking(NamedTuple):
    """A change that is booked before it is written, and how to undo that.

    It is undone only if the write certainly did not happen; one of which nothing is known counts
    as written.
    """

    before: LeaseAccount
    after: LeaseAccount
    parts: list[ChargeShare]

    def settlements(self) -> tuple[Settlement, ...]:
        """Return what to write."""
        return self.after.settlements(self.parts)

    def undone_in(self, account: LeaseAccount) -> LeaseAccount:
        """Return the account without this booking; others may have been made since."""
        before, after = self.before, self.after
        if account is after or account is before:
            return before
        returned = [ChargeShare(position, negated(amounts)) for position, amounts in self.parts]
        unwritten = [account.unwritten, before.unwritten, negated(after.unwritten)]
        kept = [account.kept, before.kept, negated(after.kept)]
        restored = account.changed_by(returned)._replace(
            unwritten=sum_amounts(unwritten), kept=sum_amounts(kept)
        )
        return restored.kept_at_most_the_cost(restored.kept)


def sum_amounts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add amounts by limit."""
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def negated(amounts: Mapping[str, int]) -> dict[str, int]:
    """Turn charges into credits."""
    return {name: -amount for name, amount in amounts.items()}

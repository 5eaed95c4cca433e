"""The account of a lease: the written amounts, the cost of success, and the cost of failure.

The account has three numbers per limit. W is the amount that is written to the buckets, T is the
cost of the block if it succeeds, and K is its cost if it fails. At its end a block writes T - W, or
K - W if it failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.in_force import check_money, stored_units
from zae_limiter.admission.quotas import QuotaHold
from zae_limiter.admission.request import NO_NAMES, ChargeOutcome, Grant, Settlement
from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.models.status import LimitStatus

NOTHING: Mapping[str, int] = {}
# The holds of quotas that each grant of a lease has, by the identity of the grant.
HoldsOfGrants = Mapping[int, tuple[tuple[QuotaHold, ...], ...]]
NO_HOLDS: HoldsOfGrants = {}


class HeldCharge(NamedTuple):
    """One charge of a lease.

    ``amounts`` are the written amounts of this charge, less those that were given back. ``used``
    are the limits whose amounts were settled at once: they are not held any more. ``written`` are
    the amounts that the whole lease had written when the store answered the charge, and
    ``written_used`` those of them that it did not hold.
    """

    grant: Grant
    amounts: Mapping[str, int]
    written: Mapping[str, int]
    written_used: Mapping[str, int] = NOTHING
    used: frozenset[str] = NO_NAMES


class ChargeShare(NamedTuple):
    """Debts (positive) and credits (negative) for the buckets of one charge."""

    position: int  # the index of the charge among the charges of the lease
    amounts: Mapping[str, int]


class LeaseAccount(NamedTuple):
    """The charges of a lease, the oldest first, and its three numbers per limit.

    An account never changes: every operation returns a new account. So an interrupt finds either
    the account before an operation or the account after it.

    W is the sum of the amounts of all charges. T is W plus ``unwritten``. K is ``kept``, which has
    an entry for each limit that was settled; for every other limit K is 0. A lease that keeps
    everything on an error ends as if its block had succeeded, so its K is T and needs no number.
    """

    charges: tuple[HeldCharge, ...] = ()
    unwritten: Mapping[str, int] = NOTHING
    kept: Mapping[str, int] = NOTHING

    def written(self) -> dict[str, int]:
        """Return W."""
        if len(self.charges) == 1:  # nearly every lease
            return dict(self.charges[0].amounts)
        return sum_amounts([charge.amounts for charge in self.charges])

    def cost(self) -> dict[str, int]:
        """Return T."""
        written = self.written()
        return sum_amounts([written, self.unwritten]) if self.unwritten else written

    def used(self) -> Mapping[str, int]:
        """Return the part of W that was settled at once, so that no hold is left of it."""
        charges = [charge for charge in self.charges if charge.used]
        if not charges:
            return NOTHING
        return sum_amounts(
            [{name: charge.amounts.get(name, 0) for name in charge.used} for charge in charges]
        )

    def names(self) -> frozenset[str]:
        """Return the limits that the lease covers, except those with slots."""
        return frozenset[str]().union(*[charge.grant.names() for charge in self.charges])

    def budget_names(self) -> frozenset[str]:
        """Return the limits whose amounts are money; the account counts billionths of them."""
        if len(self.charges) == 1:
            return self.charges[0].grant.budget_names()
        return frozenset[str]().union(*[charge.grant.budget_names() for charge in self.charges])

    def units(self, operation: str, amounts: Mapping[str, int]) -> dict[str, int]:
        """Return amounts of a caller as the account counts them."""
        money, units = self.budget_names(), dict[str, int]()
        if money:
            check_money(amounts, money, operation)
        for name, amount in amounts.items():
            if name in money:
                units[name] = stored_units(amount, True)
            elif type(amount) is int:
                units[name] = amount
            else:
                from zae_limiter.models.limit import no_budget  # few calls are wrong

                raise no_budget(f"{operation}.{name}", amount)
        return units

    def shown(self, units: Mapping[str, int]) -> dict[str, int | Decimal]:
        """Return amounts of the account as callers see them."""
        money = self.budget_names()
        if not money:
            return dict(units)
        from zae_limiter.models.money import in_currency

        return {name: in_currency(each) if name in money else each for name, each in units.items()}

    def has_slots(self, name: str) -> bool:
        """Tell whether a limit of that name bounds the calls in flight."""
        charges = [charge for held in self.charges for charge in held.grant.charges]
        return any(name in charge.in_force.name_set for charge in charges) and (
            name not in self.names()
        )

    def statuses(self, now_ms: int) -> tuple[LimitStatus, ...]:
        """Return the remaining tokens of every limit, from the newest answer about its bucket."""
        from zae_limiter.admission.report import statuses_after  # most leases never ask

        cost, latest = self.cost(), {}
        for charge in self.charges:
            # Nothing has changed since the charge in most leases that are asked.
            is_newest = charge.written == cost
            since = NOTHING if is_newest else sum_amounts([cost, negated(charge.written)])
            for status in statuses_after(
                charge.grant, since, self._held_since(charge), cost, now_ms
            ):
                latest[status.entity_id, status.limit_name] = status
        return tuple(latest.values())

    def _held_since(self, charge: HeldCharge) -> dict[str, int]:
        """Return how much more of each limit the lease holds than after one of its charges.

        What it has not written yet belongs to what it holds of the limit, if it holds anything.
        """
        cost, written, used = self.cost(), self.written(), self.used()
        changes = {}
        for name in cost:
            held = written.get(name, 0) - used.get(name, 0)
            after = max(0, held + self.unwritten.get(name, 0)) if held else 0
            before = charge.written.get(name, 0) - charge.written_used.get(name, 0)
            changes[name] = after - before
        return changes

    def holds(self, outcome: ChargeOutcome) -> bool:
        """Tell whether a charge is booked. Charges are compared by identity: two may be equal."""
        for charge in self.charges:  # noqa: SIM110 - an interrupted generator prints a warning
            if charge.grant is outcome:
                return True
        return False

    # --- operations

    def charged(self, grant: Grant, amounts: Mapping[str, int]) -> LeaseAccount:
        """Book a granted charge: T and W grow."""
        if not self.charges:
            return self._replace(charges=(HeldCharge(grant, amounts, amounts),))
        written = sum_amounts([self.written(), amounts])
        charge = HeldCharge(grant, amounts, written, self.used())
        return self._replace(charges=(*self.charges, charge))

    def adjusted(self, amounts: Mapping[str, int], *, clips: bool = False) -> LeaseAccount:
        """Add the amounts to T; raise if T would fall below 0, or leave it at 0 if it ``clips``."""
        cost = self.cost()
        if clips:
            amounts = {name: max(each, -cost.get(name, 0)) for name, each in amounts.items()}
        for name, amount in amounts.items():
            self._check_given_back("adjust", name, amount, cost.get(name, 0))
        changed = self._replace(unwritten=sum_amounts([self.unwritten, amounts]))
        return changed.kept_at_most_the_cost(amounts)

    def released(self, amounts: Mapping[str, int]) -> Booking:
        """Subtract the amounts from T and W, but leave T at 0; raise if W is smaller."""
        written, cost = self.written(), self.cost()
        for name, amount in amounts.items():
            self._check_given_back("release", name, -amount, written.get(name, 0))
        shares, after = self.shares(negated(amounts)), self
        for name, amount in amounts.items():
            if amount > cost.get(name, 0):  # the end of the block gives back a part of it anyway
                rest = {name: amount - cost.get(name, 0)}
                after = after._replace(unwritten=sum_amounts([after.unwritten, rest]))
        return Booking(self, after.changed_by(shares).kept_at_most_the_cost(amounts), shares)

    def _check_given_back(self, operation: str, name: str, change: int, held: int) -> None:
        """Raise if a change gives back more of a limit than the lease holds."""
        if change + held < 0:
            amount = change if operation == "adjust" else -change
            shown, most = self.shown({name: amount})[name], self.shown({name: held})[name]
            reason = f"is more than this lease holds ({most})"
            raise ValidationError(f"{operation}.{name}", shown, reason)

    def settled(self, amounts: Mapping[str, int]) -> LeaseAccount:
        """Set T and K to the amounts."""
        written = self.written()
        unwritten = {name: cost - written.get(name, 0) for name, cost in amounts.items()}
        return self._replace(
            unwritten={**self.unwritten, **unwritten}, kept={**self.kept, **amounts}
        )

    def written_out(self, names: Iterable[str]) -> Booking:
        """Make W equal to T for these limits, and hold nothing of them any more."""
        used = frozenset(names)
        changes = {name: self.unwritten.get(name, 0) for name in used}
        shares = self.shares(changes)
        unwritten = sum_amounts([self.unwritten, negated(changes)])
        after = self.changed_by(shares)._replace(unwritten=unwritten)
        if [charge for charge in after.charges if charge.grant.quota_holds]:  # rates hold nothing
            charges = [charge._replace(used=charge.used | used) for charge in after.charges]
            after = after._replace(charges=tuple(charges))
        return Booking(self, after, shares, used)

    # --- the end

    def at_end(self, failed: bool) -> Mapping[str, int]:
        """Return the amounts to write at the end of the block: T - W, or K - W if it failed."""
        if not failed:
            return self.unwritten
        return {name: self.kept.get(name, 0) - amount for name, amount in self._owned().items()}

    def shares(self, changes: Mapping[str, int]) -> list[ChargeShare]:
        """Divide debts and credits among the charges, the newest charge first.

        A credit goes to the newest charge that still holds tokens of the limit, and a debt to the
        first charge with the limit.
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
        return [ChargeShare(position, divided[position]) for position in sorted(divided)[::-1]]

    def settlements(
        self,
        shares: Iterable[ChargeShare],
        holds: HoldsOfGrants = NO_HOLDS,
        used: frozenset[str] = NO_NAMES,
    ) -> tuple[Settlement, ...]:
        """Return the settlement of each bucket, the newest charge first.

        ``holds`` of quotas go on, except those of the limits that are ``used`` from now on.
        """
        changes, found = dict(shares), list[Settlement]()
        for position in reversed(range(len(self.charges))):
            grant = self.charges[position].grant
            found += grant.settlements(
                changes.get(position, NOTHING), (), holds.get(id(grant), ()), used
            )
        return tuple(found)

    def settlements_at_end(
        self, shares: Iterable[ChargeShare], holds: HoldsOfGrants
    ) -> tuple[Settlement, ...]:
        """Return the settlement of each bucket at the end of the block, which ends all holds."""
        changes, found = dict(shares), list[Settlement]()
        for position, charge in enumerate(self.charges):
            ended = holds.get(id(charge.grant), ())
            found += charge.grant.settlements(changes.get(position, NOTHING), (), ended)
        return tuple(found)

    def _owned(self) -> dict[str, int]:
        """Return W, with a 0 for each limit that was settled without a charge."""
        return sum_amounts([self.written(), dict.fromkeys(self.kept, 0)])

    def _first_with(self, name: str) -> int:
        for position, charge in enumerate(self.charges):
            if name in charge.grant.names():
                return position
        raise AssertionError(f"no charge of the lease has the limit {name}")

    def changed_by(self, shares: Iterable[ChargeShare]) -> LeaseAccount:
        """Add the shares to the amounts of their charges."""
        charges = list(self.charges)
        for position, amounts in shares:
            charge = charges[position]
            charges[position] = charge._replace(amounts=sum_amounts([charge.amounts, amounts]))
        return self._replace(charges=tuple(charges))

    def kept_at_most_the_cost(self, changed: Iterable[str]) -> LeaseAccount:
        """Lower K to T where T fell below K: a failure costs at most as much as a success."""
        if not self.kept:
            return self
        cost, kept = self.cost(), dict(self.kept)
        for name in changed:
            if name in kept:
                kept[name] = min(kept[name], max(0, cost.get(name, 0)))
        return self._replace(kept=kept)


class Booking(NamedTuple):
    """A change of an account that is booked before it is written.

    The booking is undone only if the write was certainly not made. A write with an unknown outcome
    counts as made. ``used`` are limits of which the lease holds nothing after it.
    """

    before: LeaseAccount
    after: LeaseAccount
    shares: list[ChargeShare]
    used: frozenset[str] = NO_NAMES

    def settlements(self, holds: HoldsOfGrants = NO_HOLDS) -> tuple[Settlement, ...]:
        """Return the settlements to write; ``holds`` of quotas change with them."""
        return self.after.settlements(self.shares, holds, self.used)

    def undone_in(self, account: LeaseAccount) -> LeaseAccount:
        """Return the account without this booking, but with all that was booked since."""
        before, after = self.before, self.after
        if account is after or account is before:
            return before
        returned = [ChargeShare(position, negated(amounts)) for position, amounts in self.shares]
        unwritten = [account.unwritten, before.unwritten, negated(after.unwritten)]
        kept = [account.kept, before.kept, negated(after.kept)]
        restored = account.changed_by(returned)._replace(
            unwritten=sum_amounts(unwritten), kept=sum_amounts(kept)
        )
        return restored.kept_at_most_the_cost(restored.kept)


def sum_amounts(mappings: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add amounts by limit."""
    total: dict[str, int] = {}
    for amounts in mappings:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def negated(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts with the opposite sign, so that charges become credits."""
    return {name: -amount for name, amount in amounts.items()}

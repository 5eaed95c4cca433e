"""A lease: the tokens that were charged, and the changes that the block makes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

# Imported here, since a suspended generator may end its block when imports are no longer possible.
from zae_limiter._async.operation_line import LinePlace
from zae_limiter.admission.account import LeaseAccount
from zae_limiter.admission.request import ChargeOutcome, Grant, Settlement, with_released
from zae_limiter.exceptions import (
    LeaseExpiredError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
)
from zae_limiter.models.limit import check_amounts
from zae_limiter.runtime.finishing import Receipt

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter._async.ask import AcquireCall
    from zae_limiter._async.holds import HeldQuotas
    from zae_limiter._async.pending_ends import PendingEnd
    from zae_limiter._async.slots import HeldSlots
    from zae_limiter.admission.account import Booking, HoldsOfGrants
    from zae_limiter.hooks import AcquireWatch
    from zae_limiter.models.limit import Amount
    from zae_limiter.models.status import HeaderStyle, LimitStatus


class Lease:
    """A lease is valid inside its ``async with`` block, and covers every limit of its resource.

    Tasks may share a lease: operations are made one after the other, in the order of their calls,
    and the end of the block waits for those that were called before.

    Charges are written when the block is entered; adjustments and settled amounts are written when
    it is left. If the block raises, all charges but the settled amounts are given back; with
    ``on_error="keep"`` nothing is given back.

    A lease may be uncharged: in an outage whose policy is ``allow``, and in shadow mode if the call
    would have been rejected. Then ``consumed`` is empty, and only ``consume`` calls the store.

    The lease of an acquire with ``also=`` covers several resources. ``statuses``, ``headers`` and
    ``lost`` are about all of them, everything else is about the first; ``resource`` returns the
    lease of another one.
    """

    __slots__ = (
        "_account",
        "_call",
        "_ended",
        "_further",
        "_grant",
        "_line",
        "_lock",
        "_open",
        "_quotas",
        "_slots",
        "_uncharged",
        "_watch",
    )

    def __init__(
        self,
        call: AcquireCall,
        grant: Grant | None,
        watch: AcquireWatch | None = None,
        further: tuple[Lease, ...] = (),
    ) -> None:
        self._call = call
        self._watch = watch
        self._grant = grant  # None if the lease is uncharged
        self._uncharged = grant is None  # an acquire or a consume was let through without a charge
        self._further = further  # the leases of further resources
        # Most blocks change nothing, and so need no account and no receipt of their end.
        self._account: LeaseAccount | None = None
        self._open = True
        self._ended: Receipt[Any] | None = None
        self._lock = threading.Lock()
        self._line: list[LinePlace] = []  # of the operations that are under way
        self._slots: list[HeldSlots] | None = None
        self._quotas: list[HeldQuotas] | None = None
        for part in further:
            # The operations of all resources share a line, since one settlement ends all of them.
            part._line, part._lock = self._line, self._lock

    def __repr__(self) -> str:
        call, ended = self._call, "" if self._open else ", ended"
        return (
            f"{type(self).__name__}({call.entity_id!r} on {call.resource!r}, "
            f"consumed {self.consumed}{ended})"
        )

    @property
    def consumed(self) -> dict[str, int | Decimal]:
        """Return the cost of the block if it succeeds, by limit, adjustments included.

        Amounts are whole tokens; those of a budget are Decimal, in currency units.
        """
        with self._lock:
            account = self._booked()
        return account.shown(account.cost())

    @property
    def lost(self) -> bool:
        """Whether slots of this lease have expired, so that another call may run in its place.

        Slots are renewed while the block runs. They are lost if the store does not answer for too
        long, or if the process was stopped. False if no limit bounds the calls in flight.
        """
        return any(held.is_lost for part in self._parts() for held in part._slots or ())

    @property
    def shadowed(self) -> bool:
        """Whether shadow mode let through an acquire or a ``consume`` that did not fit.

        The mode may be that of the call, of the limiter or of a bucket.
        """
        return any(part._was_shadowed() for part in self._parts())

    def _was_shadowed(self) -> bool:
        if self._watch is not None and self._watch.would_reject is not None:
            return True
        with self._lock:
            charges = self._booked().charges
        return True in [held.grant.would_reject for held in charges]

    def resource(self, resource: str | tuple[str, str]) -> Lease:
        """Return the lease of one resource of an acquire with ``also=``.

        A resource of another entity is named by a pair ``(entity_id, resource)``. The lease ends
        with the block of the acquire. That of the first resource is this lease itself.
        """
        from zae_limiter.admission.several import named_bucket  # few programs need it

        leases = {part._bucket(): part for part in self._parts()}
        bucket = named_bucket(self._call.entity_id, resource, "resource")
        if bucket not in leases:
            held = ", ".join(
                [repr(name if of == self._call.entity_id else (of, name)) for of, name in leases]
            )
            reason = f"is not a resource of this lease; its resources are {held}"
            raise ValidationError("resource", resource, reason)
        return leases[bucket]

    def _bucket(self) -> tuple[str, str]:
        return self._call.entity_id, self._call.resource

    def _opened_call(self) -> AcquireCall:
        """Return a call of the acquire whose repository is open, if any is.

        After an outage at first only the resources that have taken tokens have opened it.
        """
        opened = [part._call for part in self._parts() if part._call.repository is not None]
        return opened[0] if opened else self._call

    def _parts(self) -> tuple[Lease, ...]:
        """Return the leases of all resources, this one first."""
        return (self, *self._further)

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Return the limits of the entity and its cascading parent, with the remaining tokens.

        They come from the answer of the acquire, or of the last ``consume``, without a call.
        Refill since then and the changes of this block are included; later charges of other callers
        are not. ``requested`` is the cost of the block. A bucket that several resources share is
        listed once.

        If shadow mode let the acquire through, these are the statuses of the rejection. The result
        is empty if the lease is uncharged for another reason.
        """
        if not self._further:
            return self._own_statuses()
        listed: dict[tuple[str, str, str], LimitStatus] = {}
        for part in self._parts():
            for status in part._own_statuses():
                key = (status.entity_id, status.resource, status.limit_name)
                known = listed.get(key)
                if known is None or status.available < known.available:
                    listed[key] = status
        return tuple(listed.values())

    def _own_statuses(self) -> tuple[LimitStatus, ...]:
        """Return the statuses of the resource of this lease alone."""
        with self._lock:
            account = self._booked()
        if account.charges:
            return account.statuses(self._call.charging.clock())
        return (self._watch.would_reject or ()) if self._watch is not None else ()

    @property
    def remaining(self) -> dict[str, int | Decimal]:
        """Return the remaining whole tokens of each limit, negative in debt; see ``statuses``.

        If the entity cascades, this is the smaller number of the entity and its parent.
        """
        from zae_limiter.models.status import least_available  # few programs need it

        return least_available(self._own_statuses())

    def headers(self, style: HeaderStyle = "ietf") -> dict[str, str]:
        """Return HTTP headers with the remaining tokens: ``RateLimit`` and ``RateLimit-Policy``.

        ``style="x-ratelimit"`` returns ``X-RateLimit-*`` of the tightest limit, ``"openai"`` the
        headers of OpenAI. An uncharged lease has no headers.
        """
        from zae_limiter.headers import rate_limit_headers  # few programs need it

        statuses = self.statuses
        now_ms = self._opened_call().charging.clock() if statuses else 0
        return rate_limit_headers(statuses, style, now_ms=now_ms)

    async def adjust(self, amounts: Mapping[str, Amount] | None = None, /, **named: Amount) -> None:
        """Add to the cost of the block, or subtract from it. It is written when the block ends.

        A mapping may replace the keywords: ``adjust({"gpt-4.tokens": 5})``.

        An adjustment is never rejected: the bucket goes into debt and repays the debt over time.
        A cost below zero raises ValidationError, since a lease gives back no more than it holds.
        If something of the lease was let through uncharged, such a cost is zero instead.
        """
        checked = self._check("adjust", amounts, named, signed=True)
        with self._lock:
            if not self._line:  # nobody to wait for
                self._book_adjusted(checked)
                return
        async with LinePlace(self._line):
            with self._lock:
                self._book_adjusted(checked)

    def _book_adjusted(self, checked: dict[str, Any]) -> None:
        """Add to the cost. Hold the lock."""
        account = self._open_account("adjust", checked)
        if account is not None:
            units = account.units("adjust", checked)
            self._account = account.adjusted(units, clips=self._uncharged)

    async def consume(
        self, amounts: Mapping[str, Amount] | None = None, /, **named: Amount
    ) -> None:
        """Take more tokens now; raise RateLimitExceeded as acquire does."""
        checked = self._check("consume", amounts, named)
        async with LinePlace(self._line):
            await self._consume(checked)

    async def _consume(self, checked: dict[str, Any]) -> None:
        if not self._open:
            raise LeaseExpiredError("consume")
        own = self._call
        call = own.about(own.entity_id, own.resource, checked, own.limits, is_acquire=False)
        receipt: Receipt[ChargeOutcome] = Receipt()
        watch, began_s = self._watch, monotonic()
        try:
            grant = await call.charge(receipt)
            own.repository = call.repository  # opened by now
            with self._lock:
                if not self._open:  # a signal handler has ended the block, without this charge
                    raise LeaseExpiredError("consume")
                self._account = self._booked().charged(grant, grant.tokens(checked))
            self._hold(grant)
            if watch is not None and grant.would_reject:
                watch.overdrawn(checked, self.statuses, began_s=began_s)
        except (RateLimitExceeded, RateLimiterUnavailable) as error:
            if not call.lets_through(error, watch, began_s):
                raise
            self._uncharged = True
        except BaseException:
            if not self._holds(receipt.outcome):  # the end of the block refunds a booked charge
                await call.give_back(receipt)
            raise

    async def release(
        self, amounts: Mapping[str, Amount] | None = None, /, **named: Amount
    ) -> None:
        """Give tokens of this lease back now, the last ones taken first."""
        checked = self._check("release", amounts, named)
        async with LinePlace(self._line):
            await self._release(checked)

    async def _release(self, checked: dict[str, Any]) -> None:
        receipt: Receipt[None] = Receipt()
        booking: Booking | None = None
        try:
            with self._lock:
                account = self._open_account("release", checked)
                if account is None:
                    return
                booking = account.released(account.units("release", checked))
                # Booked before it is written, so that a second release does not find these tokens.
                self._account = booking.after
            await self._write(booking, receipt)
        except BaseException as error:
            self._undo(booking, receipt)
            if not self._is_ignored(error):
                raise

    async def settle(
        self,
        amounts: Mapping[str, Amount] | None = None,
        /,
        *,
        now: bool = False,
        **named: Amount,
    ) -> None:
        """Set the cost of the block so far, in absolute amounts: ``settle(tpm=812)``.

        It may be called any number of times; the last amount counts. The amount is kept however
        the block ends: by an exception, a cancellation, a disconnect or Ctrl-C. It is written at
        the end of the block, or at once with ``now=True``. A settlement is never rejected. What was
        written at once stays if the process dies: nothing of a quota or budget is held for it.

        If the store does not answer, ``now=True`` raises RateLimiterUnavailable. Then the amount is
        written at the end of the block. If it may have been written already, that is looked up in
        the background, and it is written if it was not. If only one of two buckets did not take it,
        that one gets it later.
        """
        checked = self._check("settle", amounts, named)
        if not now:
            with self._lock:
                if not self._line:  # nobody to wait for
                    self._book_settled(checked)
                    return
        async with LinePlace(self._line):
            await self._settle(checked, now=now)

    def _book_settled(self, checked: dict[str, Any]) -> LeaseAccount | None:
        """Set the cost, and return the account; None if the lease is uncharged. Hold the lock."""
        account = self._open_account("settle", checked)
        if account is not None:
            self._account = account = account.settled(account.units("settle", checked))
        return account

    async def _settle(self, checked: dict[str, Any], *, now: bool) -> None:
        receipt: Receipt[None] = Receipt()
        booking: Booking | None = None
        try:
            with self._lock:
                settled = self._book_settled(checked)
                if settled is None or not now:
                    return
                booking = settled.written_out(checked)
                self._account = booking.after
            await self._write(booking, receipt)
        except BaseException as error:
            self._undo(booking, receipt)  # this undoes the write; the settled cost stays noted
            if not self._is_ignored(error):
                raise

    async def _end(self, failed: bool) -> None:
        """Write the unwritten amounts, or refund a failed block. An outage is not raised.

        What the store does not take is repeated in the background. If this is interrupted before
        the write is committed, it can be called again.
        """
        with self._lock:
            is_alone = not self._line
            if is_alone and not self._close(failed):
                return
        if is_alone:
            await self._write_end(failed)
        else:
            from zae_limiter.runtime.finishing import ashield  # few blocks need it

            place = LinePlace(self._line)
            try:
                place.join()  # at once, since what is called later comes after the end
                # Under a shield, so that a cancelled caller waits as well, and its end is written.
                await ashield(partial(self._end_in_line, place, failed))
            except BaseException:
                place.leave()
                raise

    async def _end_in_line(self, place: LinePlace, failed: bool) -> None:
        async with place:
            with self._lock:
                self._close(failed)
            await self._write_end(failed)

    def _close(self, failed: bool) -> bool:
        """Refuse further operations, and tell whether the end may change anything. Hold the lock.

        Most blocks only charge.
        """
        self._open = False
        changes = self._account is not None or failed or bool(self._slots or self._quotas)
        for part in self._further:
            changes = part._close(failed) or changes
        return changes

    async def _write_end(self, failed: bool) -> None:
        """Settle all resources together, so that an interrupt finds all of them written or none."""
        with self._lock:
            ended = self._ended = self._ended or Receipt()
        settlements: list[Settlement] = []
        for part in self._parts():
            part._ended = ended
            if not ended.has_outcome:
                settlements += await part._settlements_at_end(failed)
        if settlements or ended.has_outcome:
            quotas = [held for part in self._parts() for held in part._quotas or ()]
            call = self._opened_call()
            await call.settle_quietly(tuple(settlements), ended, quotas, self._slots_are_back)
        self._slots_are_back()

    def _slots_are_back(self) -> None:
        """Wake callers that wait for the slots of this lease, on all resources."""
        for part in self._parts():
            if part._slots is not None:
                part._wake_slot_waiters()

    async def _settlements_at_end(self, failed: bool) -> tuple[Settlement, ...]:
        """Return the debts and credits of the end of the block, with the slots to be given back."""
        with self._lock:
            account = self._booked()
        changes = self._due_at_end(account, failed)
        shares = account.shares(changes) if changes else []
        settlements: tuple[Settlement, ...] = ()
        if self._quotas is not None:
            settlements = account.settlements_at_end(shares, await self._end_quotas(self._quotas))
        elif shares:
            settlements = account.settlements(shares)
        if self._slots is not None:
            settlements = await self._with_slots(self._slots, settlements)
        return settlements

    async def _return_slots(self) -> None:
        """Give the slots back before the block ends, since the call in flight is over."""
        for part in self._parts():
            await part._return_own_slots()

    async def _return_own_slots(self) -> None:
        with self._lock:
            # The slots are taken under the lock: a second release would free another call's slot.
            slots, self._slots = (self._slots, None) if self._open else (None, self._slots)
        if slots is None:
            return
        settlements = await self._with_slots(slots, ())
        if settlements:
            on_stored = self._wake_slot_waiters
            await self._call.settle_quietly(settlements, Receipt(), on_stored=on_stored)
        self._wake_slot_waiters()

    def _wake_slot_waiters(self) -> None:
        if self._grant is not None:
            self._call.charging.slot_lines.slots_returned(self._grant)

    def hold(self) -> None:
        """Hold the slots and the quotas of the acquire until the block ends, on all resources."""
        for part in self._parts():
            if part._grant is not None:
                part._hold(part._grant)

    def _hold(self, grant: Grant) -> None:
        if grant.quota_holds:
            kept = self._call.charging.holds.keep(grant)
            self._quotas = [*(self._quotas or ()), kept]
        if not grant.holds:
            return
        held = self._call.charging.slots.keep(grant)
        if self._watch is not None:
            held.on_lost = self._watch.lost
        self._slots = [*(self._slots or ()), held]

    async def _end_quotas(self, quotas: list[HeldQuotas]) -> HoldsOfGrants:
        """Stop renewing the holds of quotas, and return them by the grant that they belong to."""
        keeper = self._call.charging.holds
        return {id(held.grant): await keeper.end(held) for held in quotas}

    async def _write(self, booking: Booking, receipt: Receipt[None]) -> None:
        """Write a booking in the middle of the block; holds follow the written amounts.

        A bucket may refuse its part while another one takes it. What it refuses of quotas comes
        with the next write.
        """
        keeper, quotas = self._call.charging.holds, self._quotas or []
        try:
            before = await self._end_quotas(quotas)
            settlements = booking.settlements(before)
            for held in quotas:
                held.settled(before[id(held.grant)], settlements)
            refused: list[Settlement] = []
            try:
                await self._call.settle(settlements, receipt)
            except BaseException as error:
                refused = self._call.repeat_unsettled(receipt, settlements, error)
                raise
            finally:
                for held in quotas:
                    made = settlements if receipt.has_outcome else ()
                    held.settled(before[id(held.grant)], made, refused)
        finally:  # also if this was cancelled while it waited for a renewal
            for held in quotas:
                keeper.go_on(held)

    async def _with_slots(
        self, slots: list[HeldSlots], settlements: tuple[Settlement, ...]
    ) -> tuple[Settlement, ...]:
        """Return the settlements with the slots to be given back added to them."""
        for held in slots:
            released = await self._call.charging.slots.end(held)
            if released:
                settlements = with_released(settlements, held.grant.settlements({}, released))
        return settlements

    def _due_at_end(self, account: LeaseAccount, failed: bool) -> Mapping[str, int]:
        return account.at_end(failed and not self._call.keeps_on_error)

    def _report(self, failed: bool) -> None:
        """Report the cost of the block to the hooks, for each resource."""
        for part in self._parts():
            part._report_own(failed)

    def _report_own(self, failed: bool, ended_s: float | None = None) -> None:
        """Report the cost on the resource of this lease, once it is stored or given up."""
        watch = self._watch
        if watch is None:
            return
        end = self._pending_end()
        if end is not None and end.when_over(partial(self._report_own, failed, monotonic())):
            return
        account = self._booked()
        if account.charges:
            changes = self._due_at_end(account, failed)
            written = {name: amount for name, amount in changes.items() if amount}
            cost = account.shown(account.changed_by(account.shares(written)).written())
            watch.settled(
                cost,
                account.shown(written),
                failed=failed,
                lost=end is not None and self._has_lost(end),
                ended_s=ended_s,
            )

    def _pending_end(self) -> PendingEnd | None:
        """Return the part of the end that the store did not take at once."""
        ended = self._ended
        if ended is None or not ended.has_outcome or not ended.outcome:
            return None
        return cast("PendingEnd", ended.outcome)

    def _has_lost(self, end: PendingEnd) -> bool:
        """Tell whether a part of the end was given up that concerns this resource."""
        charges = [charge for held in self._booked().charges for charge in held.grant.charges]
        buckets = {(charge.entity_id, charge.resource) for charge in charges}
        return any((each.entity_id, each.resource) in buckets for each in end.lost)

    def _is_ignored(self, error: BaseException) -> bool:
        """Tell whether an error is an outage in shadow mode, in which outages are not raised."""
        watch = self._watch
        if watch is None or not watch.is_shadow or not isinstance(error, RateLimiterUnavailable):
            return False
        watch.failed(error, admitted=True)
        return True

    def _undo(self, booking: Booking | None, receipt: Receipt[None]) -> None:
        """Undo a booking that was certainly not written."""
        if booking is not None and not receipt.has_outcome:
            with self._lock:
                self._account = booking.undone_in(self._booked())

    def _holds(self, outcome: ChargeOutcome) -> bool:
        with self._lock:
            return self._booked().holds(outcome)

    def _open_account(self, operation: str, amounts: Mapping[str, int]) -> LeaseAccount | None:
        """Return the account that an operation may change; None if the lease is uncharged.

        Call this under the lock, since the block may end at any moment.
        """
        if not self._open:
            raise LeaseExpiredError(operation)
        account = self._booked()
        if not account.charges:
            return None
        names = account.names()
        for name, amount in amounts.items():
            if name not in names:
                raise ValidationError(
                    f"{operation}.{name}",
                    amount,
                    "has slots, which return when the block ends"
                    if account.has_slots(name)
                    else f"is not a limit of {self._call.resource!r}; "
                    f"its limits are {', '.join(sorted(names))}",
                )
        return account

    def _booked(self) -> LeaseAccount:
        """Return the account, which begins with the charge of the acquire. Hold the lock."""
        if self._account is None:
            uncharged = LeaseAccount()
            if self._grant is None:
                return uncharged
            amounts = self._grant.tokens(self._call.amounts)
            self._account = uncharged.charged(self._grant, amounts)
        return self._account

    def _check(
        self,
        operation: str,
        amounts: Mapping[str, Amount] | None,
        named: Mapping[str, Amount],
        *,
        signed: bool = False,
    ) -> dict[str, Any]:
        if not self._open:
            raise LeaseExpiredError(operation)
        checked = check_amounts(dict(named), operation, signed=signed)
        if amounts is None:
            return checked
        mapped = check_amounts(amounts, operation, signed=signed)
        for name in mapped.keys() & checked.keys():
            raise ValidationError(f"{operation}.{name}", checked[name], "was given twice")
        return mapped | checked

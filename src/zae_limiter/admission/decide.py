"""The one decision about a bucket: what a group of changes does to it.

Everything that happens to a bucket is a ``BucketChange``. The order is the same for every store:
expired slots are swept, settlements are made, holds are renewed, charges are admitted in the order
of their arrival, and what they take is taken. A store that holds its buckets itself saves
``after``. One that is far away carries out the effects (the moves of balances, and the changes of
what is held), under conditions within which they do the same to the bucket as it is by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from zae_limiter.admission.image import BucketImage, LimitState, is_paused, is_same_kind
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Move, RateLedger, Seen
from zae_limiter.admission.quotas import HoldWrite, QuotaHold, QuotaLedger
from zae_limiter.admission.rebase import full_bucket, full_limit
from zae_limiter.admission.request import BucketChange, Charge
from zae_limiter.admission.reservation import advance_milli
from zae_limiter.admission.slots import SlotHold, SlotLedger, SlotWrite
from zae_limiter.admission.usage import with_through_children
from zae_limiter.bucket import EPOCH_MS

NO_SLOTS: Mapping[str, SlotLedger] = {}
NO_QUOTAS: Mapping[str, QuotaLedger] = {}


class Ledger(Protocol):
    """The changes of one write to one limit, however the limit counts."""

    room: int | None  # the level that is left for charges, once ``open`` has counted it

    def enter(self, change: BucketChange, position: int, amount: int) -> None:
        """Enter a debt, a credit, a charge that is taken whether or not it fits, or usage."""

    def open(self, changes: Sequence[BucketChange]) -> int:
        """Count ``room`` behind all that was entered; ``changes`` are those of the group."""

    def take(self, change: BucketChange, position: int, amount: int, advance: int = 0) -> None:
        """Take a charge that fits. A reservation counts on the tokens of an ``advance``, too."""

    def after(self) -> LimitState:
        """Return the limit after the write, if the bucket was as the decision saw it."""

    def first_move(self) -> Move:
        """Return the move that creates the limit, or takes from one that is full."""


class Decision:
    """What a group of changes does to a bucket, and which of them the write carries.

    Charges that are not ``carried`` do not fit. ``late`` are amounts of settlements that only count
    as usage, with the part of them that came through children: of limits that the bucket does not
    have any more. ``through_milli`` is the part of the usage that comes through children.
    ``has_quotas`` says that quotas are in force or concerned.
    ``is_doubtful`` says that something which a call holds was not seen: it has expired, or the
    image is outdated. ``needs_latest`` says that the write is right only if no other write came
    since the bucket was seen.

    ``has_debt``, ``has_credit`` and ``has_reservation`` are about tokens of rates: taken however
    little the bucket holds, given back, or taken before they have accrued. ``ends_holds`` says that
    a call gives back, settles or renews what it holds.
    """

    # Most decisions are those of one plain charge, so they begin as these.
    admitted = elsewhere = 0
    has_charge = has_debt = has_credit = has_reservation = False
    has_slots = has_quotas = ends_holds = False
    is_doubtful = needs_latest = False
    _is_absent = False
    _slots: Mapping[str, SlotLedger] = NO_SLOTS
    _quotas: Mapping[str, QuotaLedger] = NO_QUOTAS

    def __init__(
        self,
        image: BucketImage,
        changes: Sequence[BucketChange],
        now_ms: int,
        guess: Seen | None,
        *,
        is_absent: bool = False,
    ) -> None:
        self.image = image
        self.changes = changes
        self.carried: list[int] = []
        self.through_milli: dict[str, int] = {}
        self.late: dict[str, tuple[int, int]] = {}
        self.now_ms = now_ms
        self._guess = guess
        self._ledgers: dict[str, Ledger] = {}
        self._rates: dict[str, RateLedger] = {}
        if is_absent:
            self._is_absent = True
        if image.holds is not None:
            self.has_slots = True
            self._slots = {key: SlotLedger(key, image, now_ms) for key in image.holds}
            self._ledgers.update(self._slots)
        for change in changes:
            if change.in_force.quota_keys or change.quotas or change.renewed_quotas:
                self._open_quotas()
                break

    # --- what the write does

    @property
    def has_hidden_spills(self) -> bool:
        """Whether the write would both give and take tokens of one limit."""
        return any(each.gives_and_takes for each in self._rates.values())

    def rate_moves(self) -> list[Move]:
        """Return the moves of the rates that the changes name."""
        return [each.move(self._guess) for each in self._rates.values()]

    def blind_moves(self) -> list[Move]:
        """Return the moves of credits alone, which need nothing to be known of the bucket."""
        return [each.blind_move() for each in self._rates.values()]

    def first_moves(self) -> list[Move]:
        """Return the moves that create the bucket, one for each limit."""
        image, now_ms = self.image, self.now_ms
        return [
            (self._ledgers.get(key) or RateLedger(key, state, now_ms)).first_move()
            for key, state in image.limits.items()
        ]

    def slot_moves(self) -> list[Move]:
        """Return the moves of limits with slots; a sweep moves those that no change names."""
        return [each.move() for each in self._slots.values() if each.is_named or each.net_milli]

    def slot_writes(self) -> list[SlotWrite]:
        """Return the changes of held slots, which the write makes besides the moves."""
        return [each.write() for each in self._slots.values() if each.has_effect]

    def quota_moves(self) -> list[Move]:
        """Return the moves of quotas that the write changes or has bounds on."""
        moves = [each.planned.move for each in self._quotas.values()]
        return [each for each in moves if each.has_effect]

    def hold_writes(self) -> list[HoldWrite]:
        """Return the changes of held amounts, which the write makes besides the moves."""
        writes = [each.planned.holds for each in self._quotas.values()]
        return [each for each in writes if not each.is_empty]

    def held_through_children(self) -> dict[str, int]:
        """Return the part of ``through_milli`` that is of quotas."""
        return {key: each for key, each in self.through_milli.items() if key in self._quotas}

    @property
    def is_empty(self) -> bool:
        """Whether the write would change nothing."""
        return not (
            self._rates
            or self.has_charge
            or self.admitted
            or self.slot_writes()
            or self.hold_writes()
            or self.quota_moves()
        )

    def after(self) -> BucketImage:
        """Return the bucket after the write, if it was as the decision saw it."""
        image, first = self.image, self.changes[0]
        limits = dict(image.limits)
        for key, ledger in self._ledgers.items():
            limits[key] = ledger.after()
        holds = image.holds
        if self._slots:
            holds = {key: ledger.held for key, ledger in self._slots.items()}
        tally = image.tally
        if self.elsewhere:
            tally = tally.with_calls_elsewhere(self.elsewhere)
        version, paused_ms = image.config_version, image.paused_until_ms
        if self.has_charge:
            # A charge stores its configuration, and removes a pause that is over.
            version, paused_ms = version or first.in_force.governing_version, None
        through = image.through_children
        if self.through_milli:
            through = with_through_children(through, self.through_milli)
        return BucketImage(
            limits,
            version,
            first.in_force.extended_ttl(image.expires_ms, self.now_ms),
            image.hour,
            image.admitted + self.admitted,
            image.admitted_counted,
            image.writes + 1,
            through,
            tally,
            holds,
            paused_ms,
            image.life,
        )

    # --- what it means for each change

    def taken_slots(self, position: int) -> tuple[SlotHold, ...]:
        """Return the slots that a charge holds."""
        if not self._slots:
            return ()
        held = [each.holds.get(position) for each in self._slots.values()]
        return tuple([hold for hold in held if hold is not None])

    def taken_quotas(self, position: int) -> tuple[QuotaHold, ...]:
        """Return the amounts of quotas that a charge holds."""
        if not self._quotas:
            return ()
        held = [each.holds.get(position, ()) for each in self._quotas.values()]
        return tuple([hold for holds in held for hold in holds])

    def renewed(self, position: int) -> tuple[int | None, ...]:
        """Return when the holds of a renewal expire from now on; None for an expired one.

        The moments of slots come first, in milliseconds, then those of amounts, in seconds.
        """
        change = self.changes[position]
        slots = [
            self._slots[hold.key].renewed.get((position, at)) if hold.key in self._slots else None
            for at, hold in enumerate(change.renewed)
        ]
        amounts = [
            self._quotas[hold.key].renewed.get((position, at)) if hold.key in self._quotas else None
            for at, hold in enumerate(change.renewed_quotas)
        ]
        return (*slots, *amounts)

    # --- how it is made

    def _open_quotas(self) -> None:
        image, self.has_quotas = self.image, True
        self._quotas = {
            key: QuotaLedger(key, image, self.now_ms)
            for key, state in image.limits.items()
            if state.quota is not None
        }
        self._ledgers.update(self._quotas)

    def _ledger(self, key: str) -> Ledger:
        ledger = self._ledgers.get(key)
        if ledger is None:
            rate = RateLedger(key, self.image.limits[key], self.now_ms)
            ledger = self._rates[key] = self._ledgers[key] = rate
        return ledger

    def enter(self, position: int) -> None:
        """Enter a settlement or a renewal, or a charge that is taken whether or not it fits."""
        change = self.changes[position]
        self._carry(change, position)
        for key, amount in change.amounts_milli.items():
            if not change.is_charge and is_absent(self.image, key, change):
                _add_late(self.late, key, amount, change.of_child(key).units)
                continue
            self._ledger(key).enter(change, position, amount)
            if change.through_child or change.through_milli is not None:
                self._count_through(change, key)
        if change.held_slots or change.held_quotas:
            self.ends_holds = True
            self._end_holds(change, position)

    def _end_holds(self, change: BucketChange, position: int) -> None:
        """Enter what a change does to the slots and the amounts that its call holds."""
        for end in change.quotas:
            key = end.hold.key
            if self._is_absent or is_absent(self.image, key, change):
                self.is_doubtful = True
                of_child = end.late_usage if end.hold.through_child else 0
                _add_late(self.late, key, end.late_usage, of_child)
            else:
                self._quotas[key].settle(end, change)
        if self._is_absent:  # what was held went with the bucket
            return
        for at, hold in enumerate(change.renewed_quotas):
            if hold.key in self._quotas:
                self._quotas[hold.key].renew(hold, change, position, at)
        for slot in change.released:
            if slot.key in self._slots:
                self._slots[slot.key].release(slot)
            else:
                self.is_doubtful = True
        for at, slot in enumerate(change.renewed):
            if slot.key in self._slots:
                self._slots[slot.key].renew(slot, position, at)
            else:
                self.is_doubtful = True

    def admit(self, position: int) -> None:
        """Take a charge that must fit, if the bucket holds it behind all that came before."""
        change = self.changes[position]
        for key, amount in change.amounts_milli.items():
            ledger = self._ledgers.get(key) or self._ledger(key)
            room = ledger.room
            if room is None:
                room = ledger.open(self.changes)
            if change.until_ms is not None:
                room += self._advance(change, key, amount)
            if room < amount:
                return
        self.take(position)

    def take(self, position: int) -> None:
        """Take a charge that must fit, without another look at the bucket."""
        change, ledgers = self.changes[position], self._ledgers
        self._carry(change, position)
        amounts, reserves = change.amounts_milli, change.until_ms is not None
        for key, amount in amounts.items():
            ledger = ledgers.get(key)
            if ledger is None:  # as `_ledger`, written out: every charge of rates comes here
                rate = RateLedger(key, self.image.limits[key], self.now_ms)
                ledger = self._rates[key] = ledgers[key] = rate
            if reserves:
                ledger.take(change, position, amount, self._advance(change, key, amount))
            else:
                ledger.take(change, position, amount)
        if change.through_child or change.through_milli is not None:
            for key in amounts:
                self._count_through(change, key)

    def make(self, position: int) -> None:
        """Make a change, whether or not it fits."""
        if self.changes[position].must_fit:
            self.take(position)
        else:
            self.enter(position)

    def finish(self) -> Decision:
        """End the decision: no change comes any more."""
        if len(self.carried) < len(self.changes):  # some did not fit, and have changed nothing
            self._rates = {key: each for key, each in self._rates.items() if each.is_named}
        if len(self.carried) > 1:
            self.carried.sort()
        for rate in self._rates.values():
            self.has_debt = self.has_debt or rate.owed > 0
            self.has_credit = self.has_credit or rate.returned > 0
            self.has_reservation = self.has_reservation or rate.reserves
        if self._quotas:
            self._finish_quotas()
        if self._slots:
            missed = [each.is_doubtful for each in self._slots.values()]
            self.is_doubtful = self.is_doubtful or True in missed
        return self

    def _finish_quotas(self) -> None:
        for key, quota in self._quotas.items():
            if not (quota.is_touched or self._is_absent):
                del self._ledgers[key]
                continue
            quota.finish()
            self.is_doubtful = self.is_doubtful or quota.is_doubtful
            self.needs_latest = self.needs_latest or quota.needs_latest
            if of_children := quota.planned.through_children:
                self.through_milli[key] = of_children
        self._quotas = {key: self._quotas[key] for key in self._quotas if key in self._ledgers}

    def _carry(self, change: BucketChange, position: int) -> None:
        self.carried.append(position)
        self.admitted += change.admitted
        self.elsewhere += change.elsewhere
        self.has_charge = self.has_charge or change.is_charge

    def _advance(self, change: BucketChange, key: str, amount: int) -> int:
        rate = self.image.limits[key].rate
        return advance_milli(rate, amount, self.now_ms, change.until_ms)

    def _count_through(self, change: BucketChange, key: str) -> None:
        """Count usage that comes through a child; that of quotas depends on what is held."""
        units = 0 if key in self._quotas else change.of_child(key).units
        if units:
            self.through_milli[key] = self.through_milli.get(key, 0) + units


def decide(
    image: BucketImage | None,
    changes: Sequence[BucketChange],
    now_ms: int,
    guess: Seen | None = None,
    *,
    apart: bool = False,
) -> Decision:
    """Decide a group of changes on a bucket that has the limits in force of its charges.

    An absent bucket is full. Without a ``guess`` the image is the bucket. With one it may be
    outdated: then a change that is alone goes into the write, whether or not it seems to fit, and
    the store decides. ``apart`` writes credits apart from charges and debts of the same limits, for
    shards: they spill what they have no room for, and only a write that takes nothing shows it.
    """
    whole = image if image is not None else full_bucket(changes[0].in_force, now_ms)

    def begun() -> Decision:
        return Decision(whole, changes, now_ms, guess, is_absent=image is None)

    decision = begun()
    if guess is not None and len(changes) == 1:
        decision.make(0)
        return decision.finish()
    _go_through(decision)
    if not decision.carried and guess is not None:
        decision = begun()
        decision.make(0)
    elif apart and len(decision.carried) > 1 and decision.has_hidden_spills:
        first = decision.carried[:1]
        credits_alone = [each for each in decision.carried if _only_gives(changes[each])]
        decision = begun()
        for position in credits_alone or first:
            decision.make(position)
    return decision.finish()


def after_plain_charge(image: BucketImage, charge: Charge, now_ms: int) -> BucketImage | None:
    """Return the bucket after a charge of rates alone; None if it is another, or does not fit.

    This is a short cut for embedded stores, whose acquires it makes a third faster. ``decide`` does
    the same, which ``tests/property/test_decide.py`` compares.
    """
    in_force = charge.in_force
    if charge.switch is not None or charge.until_ms is not None or in_force.has_terms:
        return None
    if image.holds is not None or image.paused_until_ms is not None:
        return None
    limits, since_ms = dict(image.limits), now_ms - EPOCH_MS
    for key, amount in charge.amounts_milli.items():
        state = limits[key]
        rate, balance = state.rate, state.balance_milli
        accrued = since_ms * rate.refill_milli // rate.period_ms
        if balance + accrued > rate.capacity_milli:
            balance = rate.capacity_milli - accrued  # tokens that overflowed in idle time are lost
        if balance + accrued < amount:
            return None
        if amount:
            consumed = state.consumed_milli + amount
            limits[key] = LimitState(balance - amount, rate, consumed, state.counted_milli)
    through, tally = image.through_children, image.tally
    if charge.through_child or charge.through_milli is not None:
        of_child = {key: charge.of_child(key).units for key in charge.amounts_milli}
        through = with_through_children(through, of_child)
    if charge.counts_elsewhere and charge.admitted:
        tally = tally.with_calls_elsewhere(charge.admitted)
    return BucketImage(
        limits,
        image.config_version or in_force.governing_version,
        in_force.extended_ttl(image.expires_ms, now_ms),
        image.hour,
        image.admitted + charge.admitted,
        image.admitted_counted,
        image.writes + 1,
        through,
        tally,
        None,
        None,
        image.life,
    )


def _go_through(decision: Decision) -> None:
    """Enter what is always made, then admit charges in the order of their arrival.

    Charges in shadow mode are debts: behind other charges, they would take a balance on which those
    were admitted. During a pause no charge is made.
    """
    charges, paused = [], is_paused(decision.image, decision.now_ms)
    for position, change in enumerate(decision.changes):
        if change.is_charge and paused:
            continue
        if change.must_fit:
            charges.append(position)
        else:
            decision.enter(position)
    for position in charges:
        decision.admit(position)


def with_owed_limits(
    image: BucketImage, changes: Iterable[BucketChange], in_force: InForce, now_ms: int
) -> BucketImage:
    """Return the bucket with every limit of which a settlement takes something.

    A missing limit is full, so a credit does not add it.
    """
    missing = {
        key: full_limit(in_force.rate_of(key), now_ms, image.writes)
        for change in changes
        if not change.is_charge
        for key, amount in change.amounts_milli.items()
        if amount > 0 and key not in image.limits
    }
    return image._replace(limits={**image.limits, **missing}) if missing else image


def late_amounts(changes: Iterable[BucketChange]) -> dict[str, tuple[int, int]]:
    """Return all amounts of settlements, as usage alone: their bucket does not exist.

    With each goes the part of it that came through children.
    """
    late: dict[str, tuple[int, int]] = {}
    for change in changes:
        for key, amount in change.amounts_milli.items():
            _add_late(late, key, amount, change.of_child(key).units)
        for end in change.quotas:
            of_child = end.late_usage if end.hold.through_child else 0
            _add_late(late, end.hold.key, end.late_usage, of_child)
    return late


def _add_late(late: dict[str, tuple[int, int]], key: str, units: int, of_children: int) -> None:
    if not (units or of_children):
        return
    before = late.get(key, (0, 0))
    late[key] = before[0] + units, before[1] + of_children


def _only_gives(change: BucketChange) -> bool:
    return all(amount <= 0 for amount in change.amounts_milli.values())


def is_absent(image: BucketImage, key: str, change: BucketChange) -> bool:
    """Tell whether a bucket lacks a limit, or has one of another kind under its name."""
    state = image.limits.get(key)
    return state is None or not is_same_kind(state.rate, change.in_force.rate_of(key))

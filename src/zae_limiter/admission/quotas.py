"""Quotas: the changes of one write to one quota, with the amounts that calls in flight hold.

Every charge on a quota is held until it is settled. Held amounts are counted by window and by the
second of their expiry, so that thousands of calls are a handful of numbers. The level and the held
amounts of a window always add up to its amount and top-ups, less the settled costs. The holds of a
process that has died are not renewed: they expire, and the next write that charges the quota
returns them.

A settlement changes the balance only while the balance is in the window that has admitted the call.
The ledger decides that on the bucket as it was seen; a store that writes without reading first
checks it with the bounds of the move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.image import BucketImage, LimitState, Rate
from zae_limiter.admission.moves import Move, room_milli
from zae_limiter.admission.windows import (
    DEEPEST,
    HALF_SPAN,
    NO_WINDOW,
    HoldName,
    QuotaState,
    Terms,
    Window,
    balance_in,
    begun,
    end_ms,
    free_level,
    has_expired,
    held_in,
    is_far_ahead,
    is_sunk,
    joined,
    last_ended,
    level_in,
    reached_mark,
    window_of,
)
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import FirstUse

if TYPE_CHECKING:
    from zae_limiter.admission.request import BucketChange

NEVER_EXPIRES = 0  # the second of expiry of a hold that ends with its window


class QuotaHold(NamedTuple):
    """The amount that one charge holds of one quota, given by its stored name.

    ``units`` is 0 for a quota that the charge does not name, and after a settlement at once: later
    debts belong to the window, too. ``life`` is the life of the bucket in which the amount was
    taken, and ``number`` that of the limit; ``life`` is empty if nothing was taken, since another
    shard may have admitted the charge. ``through_child`` says that a child of the entity was
    charged the amount as well. ``late`` is a change that the store has refused while other buckets
    took theirs: the next settlement of the hold brings it.
    """

    key: str
    units: int
    window: int
    expires_s: int
    life: str = ""
    number: int = 0
    through_child: bool = False
    late: int = 0

    @property
    def name(self) -> HoldName:
        return HoldName(self.window, self.expires_s, self.through_child)


class JoinedWindow:
    """Where a store notes which window a debt has joined, and in which life.

    A call that did not name the quota learns it only then: ``number`` is that of the window of
    first use which the debt has begun or joined, ``life`` that of the bucket, and ``limit_number``
    that of the limit. They count once the debt is committed; settlements of the call that follow
    belong there.
    """

    __slots__ = ("life", "limit_number", "number")

    def __init__(self) -> None:
        self.number = NO_WINDOW
        self.life = ""
        self.limit_number = 0

    def joined_by(self, hold: QuotaHold) -> QuotaHold:
        """Return the hold of a call whose debt is committed."""
        if not self.life:  # there was none
            return hold
        window = hold.window if self.number == NO_WINDOW else self.number
        return hold._replace(window=window, life=self.life, number=self.limit_number)


class QuotaSettlement(NamedTuple):
    """The end of a hold: the cost of the call is larger by ``change`` than the held amount.

    With ``keeps`` the call goes on to hold the changed amount. A call that holds nothing may settle
    again: what it has settled before is charged, and moves without a hold. ``joined`` is for a call
    that was charged nothing yet. With ``undoes`` the charge counts as never made.
    """

    hold: QuotaHold
    change: int
    keeps: bool = False
    joined: JoinedWindow | None = None
    undoes: bool = False

    @classmethod
    def of(cls, hold: QuotaHold, change: int, *, keeps: bool) -> QuotaSettlement:
        """Return the settlement of a call that has a lease."""
        joined = None if hold.units or hold.life else JoinedWindow()
        return cls(hold, change + hold.late, keeps, joined)

    def apart(self) -> QuotaSettlement:
        """Return what still makes the change when the call has gone on as if it were made.

        The call then holds the changed amount, and renews no more than that. What it gives back is
        a hold of its own: it stays under the name that all of it had.
        """
        if not self.keeps or not self.hold.units or self.change >= 0:
            return self
        return self._replace(hold=self.hold._replace(units=-self.change), keeps=False)

    @property
    def held_after(self) -> int:
        """The amount that the call holds after the settlement."""
        return self.hold.units + self.change if self.keeps and self.hold.units else 0

    @property
    def late_usage(self) -> int:
        """The usage that it adds where nothing is held any more: the cost of the call."""
        return self.hold.units + self.change


class OfChild(NamedTuple):
    """The part of a charge on one limit that a child of the entity is charged as well.

    ``is_counted`` says that the child has the limit, too: it counts debts that come later.
    """

    units: int
    is_counted: bool


NO_CHILD = OfChild(0, False)


@dataclass(slots=True)
class HoldWrite:
    """The changes that one write makes to a quota besides its balance.

    Held amounts: ``swept`` must be as they were seen, and are replaced by ``put`` or deleted;
    ``removed`` are subtracted, and at least as much must be stored; ``added`` are added.
    ``topped`` replaces the sum of top-ups, and ``forgets`` deletes it and the mark of thresholds.
    With ``remarks`` the mark becomes ``marked``; None deletes it. Both delete the mark of
    exhaustion. ``untopped`` requires that nothing was topped up in a window: a stored sum is of an
    earlier one, which is above this number.
    """

    key: str
    swept: dict[HoldName, int] = field(default_factory=dict)
    put: dict[HoldName, int] = field(default_factory=dict)
    removed: dict[HoldName, int] = field(default_factory=dict)
    added: dict[HoldName, int] = field(default_factory=dict)
    topped: int | None = None
    forgets: bool = False
    remarks: bool = False
    marked: int | None = None
    untopped: int | None = None

    @property
    def is_empty(self) -> bool:
        changes = self.swept or self.removed or self.added or self.untopped is not None
        return not (changes or self.forgets or self.remarks) and self.topped is None

    def applied(self, quota: QuotaState) -> QuotaState:
        """Return the state of the quota after the write."""
        holds = dict(quota.holds)
        for name in self.swept:
            del holds[name]
        holds.update(self.put)
        for name, added in self.added.items():
            holds[name] = holds.get(name, 0) + added
        for name, removed in self.removed.items():
            units = holds.get(name, 0) - removed
            if units:
                holds[name] = units
            else:
                holds.pop(name, None)
        if self.forgets:
            return QuotaState(holds)
        topped = quota.topped if self.topped is None else self.topped
        if self.remarks:
            return QuotaState(holds, topped, self.marked)
        return QuotaState(holds, topped, quota.marked, quota.exhausted)


class QuotaMove(NamedTuple):
    """The move of a quota's balance, and the changes that the same write makes besides.

    ``through_children`` is the part of the usage that children of the entity count as well.
    """

    move: Move
    holds: HoldWrite
    through_children: int = 0

    def applied(self, state: LimitState) -> LimitState:
        """Return the limit after the write."""
        assert state.quota is not None
        # Written out, since ``replace`` takes as long as the rest of the change.
        return LimitState(
            self.move.applied(state.balance_milli),
            state.rate,
            state.consumed_milli + self.move.consumed_milli,
            state.counted_milli,
            self.holds.applied(state.quota),
            state.number,
        )


def in_life(holds: Iterable[QuotaHold], life: str) -> tuple[QuotaHold, ...]:
    """Return holds with the life of the bucket in which their amounts were taken."""
    return tuple([hold._replace(life=life) if hold.units else hold for hold in holds])


# --- reading


def quota_terms(rate: Rate) -> tuple[Terms, Window]:
    """Return the terms of a quota, and its window."""
    terms = rate.terms
    assert terms is not None, "only a quota has windows"
    assert terms.window is not None, "only a quota has windows"
    return terms, terms.window


def expiry_s(hold_ttl_s: int | None, now_ms: int) -> int:
    """Return the second at which an amount expires that is taken or renewed now.

    It is rounded up to whole steps of half the TTL, so a hold lives 1.5 times the TTL at most.
    """
    if hold_ttl_s is None:
        return NEVER_EXPIRES
    step_s = hold_ttl_s // 2
    return -(-(now_ms + hold_ttl_s * 1000) // (step_s * 1000)) * step_s


def current_window(state: LimitState, now_ms: int) -> int:
    """Return the number of the window that a charge at this moment would use."""
    _, window = quota_terms(state.rate)
    return joined(window, state.balance_milli, now_ms)


def held_units(state: LimitState, number: int, now_ms: int) -> int:
    """Return the amount of a window that calls in flight hold."""
    return 0 if state.quota is None else held_in(state.quota.holds, number, now_ms, expired=False)


def free_units(state: LimitState, now_ms: int) -> int:
    """Return the level of a quota at a moment; see ``windows.free_level``."""
    _, window = quota_terms(state.rate)
    balance, capacity = state.balance_milli, state.rate.capacity_milli
    quota = state.quota or QuotaState()
    return free_level(window, balance, capacity, quota, now_ms)


def topped_units(state: LimitState, number: int) -> int:
    """Return the sum of the top-ups of a window."""
    quota = state.quota
    if quota is None or quota.topped is None or window_of(quota.topped) != number:
        return 0
    return level_in(number, quota.topped)


def fits_at_ms(state: LimitState, units: int, now_ms: int) -> int | None:
    """Return the moment at which a quota holds an amount; None if the amount never fits.

    The moment is now, the expiry of enough holds of dead calls, or the start of the next window.
    """
    _, window = quota_terms(state.rate)
    if free_units(state, now_ms) >= units:
        return now_ms
    number = current_window(state, now_ms)
    if window_of(state.balance_milli) < number:
        return None  # the whole amount is there
    over_ms = end_ms(window, number)
    level = level_in(number, state.balance_milli)
    holds = {} if state.quota is None or is_sunk(level) else state.quota.holds
    for name, held in sorted(holds.items(), key=lambda hold: hold[0].expires_s):
        expires_s = name.expires_s
        if name.window != number or expires_s == NEVER_EXPIRES:
            continue
        if expires_s * 1000 >= over_ms:
            break
        level += held
        if level >= units:
            return max(now_ms, expires_s * 1000)
    return over_ms if units <= state.rate.capacity_milli else None


def has_sunk(states: Iterable[LimitState]) -> bool:
    """Tell whether one of the limits is a quota that owes more than is counted."""
    return any(
        is_sunk(level_in(window_of(state.balance_milli), state.balance_milli))
        for state in states
        if state.quota is not None
    )


# --- writing


def shifted_level(level: int, change: int) -> int:
    """Return the level of a quota after a change, in its window."""
    return max(level + change, -DEEPEST) if not is_sunk(level) else level


def move_in_window(
    key: str,
    number: int,
    level: int,
    change: int,
    *,
    to: int | None = None,
    most: int = HALF_SPAN,
    consumed: int = 0,
) -> Move:
    """Return the move that changes a level in the window of its balance.

    A debt that would sink the quota sets the level to the deepest one, and a quota that is sunk
    stays there. The bounds of the move are those within which it does the same to any balance.
    ``to`` is the number that the window has after the move, if another calendar changes it, and
    ``most`` the highest level for which the change was decided.
    """
    to, debt = number if to is None else to, max(-change, 0)
    if not is_sunk(level - debt):
        low, high = balance_in(number, debt - DEEPEST) + 1, balance_in(number, most)
        add = change if to == number else change + balance_in(to, 0) - balance_in(number, 0)
        return Move(key, low, high, add, None, consumed)
    low, high = balance_in(number, -HALF_SPAN) + 1, balance_in(number, debt - DEEPEST)
    return Move(key, low, high, 0, balance_in(to, -DEEPEST), consumed)


class WindowLedger:
    """One quota and its window while a write is put together: settlements first, then charges.

    ``QuotaLedger`` below decides with it, once without the charges of the write and once with them.
    ``charges`` says that the write takes an amount of this quota. Then its window is that of the
    stamp, and the balance is turned if it belongs to an earlier one. A write of settlements alone
    stays in the window of the balance.
    """

    __slots__ = (
        "_added",
        "_charged",
        "_charges",
        "_held",
        "_is_settled",
        "_now_ms",
        "_owed",
        "_removed",
        "_returned",
        "_state",
        "_through_children",
        "_undoes",
        "_unheld",
        "_usage",
        "is_doubtful",
        "key",
        "life",
        "number",
    )

    def __init__(
        self, key: str, state: LimitState, now_ms: int, *, charges: bool, life: str = ""
    ) -> None:
        self.key = key
        self.life = life
        self._state = state
        self._now_ms = now_ms
        self._charges = charges
        self.number = current_window(state, now_ms) if charges else window_of(state.balance_milli)
        self._held = dict(self._quota.holds)
        self._added: dict[HoldName, int] = {}
        self._removed: dict[HoldName, int] = {}
        self._charged = self._owed = self._returned = self._usage = self._through_children = 0
        self._unheld = 0  # the part of the returned amount that no hold was taken for
        self._is_settled = self._undoes = False
        self.is_doubtful = False  # a hold was not found: it has expired, or the image is outdated

    @property
    def _quota(self) -> QuotaState:
        assert self._state.quota is not None, "only a quota has holds"
        return self._state.quota

    @property
    def _is_older(self) -> bool:
        """Whether the balance belongs to a window before that of the write."""
        return window_of(self._state.balance_milli) < self.number

    @property
    def gives_unheld(self) -> bool:
        """Whether something comes back that no hold was taken for.

        How much may come back depends on all holds, which no condition can add up. So a store that
        writes without reading first has to write to the bucket as it was seen.
        """
        return self._unheld > 0

    @property
    def is_overdrawn(self) -> bool:
        """Whether the current window is in debt as long as expired holds are not returned.

        Only then they are returned by a call that does not name the quota.
        """
        if current_window(self._state, self._now_ms) != self.number:
            return False
        level = level_in(self.number, self._state.balance_milli)
        return level + self._returned < self._charged + self._owed

    def settle(self, settlement: QuotaSettlement, *, is_same: bool = True) -> None:
        """Settle a charge; ``is_same`` says that the quota still has the calendar of the charge."""
        hold, change = settlement.hold, settlement.change
        self._is_settled = True
        is_own = is_same and self._is_of_this_life(hold)
        if hold.units:
            name = hold.name
            if is_own and self._held.get(name, 0) >= hold.units:
                self._subtract(name, hold.units)
            else:
                self.is_doubtful = True
                change += hold.units  # the hold was returned before, and its usage with it
        if is_own and (after := settlement.held_after):
            self._add(hold.name, after)
        self._usage += change
        if hold.through_child:
            self._through_children += change
        if is_own and self._is_of_this_window(settlement, change):
            self._undoes = self._undoes or settlement.undoes
            self._owed += max(change, 0)
            self._returned -= min(change, 0)
            if not hold.units:
                self._unheld -= min(change, 0)

    def _is_of_this_life(self, hold: QuotaHold) -> bool:
        """Tell whether the bucket and the limit are those in which the amount was taken.

        A limit that was changed and changed back holds amounts of other calls by now.
        """
        return not hold.life or (hold.life, hold.number) == (self.life, self._state.number)

    def _is_of_this_window(self, settlement: QuotaSettlement, change: int) -> bool:
        """Tell whether a settlement changes the balance.

        The debt of a quota that its charge did not name may begin a window, as a charge does.
        """
        hold = settlement.hold
        number = hold.window
        if not hold.units and not hold.life and change > 0:
            _, window = quota_terms(self._state.rate)
            if isinstance(window, FirstUse) and number == NO_WINDOW:
                number = joined(window, self._state.balance_milli, self._now_ms)
                if settlement.joined is not None:
                    settlement.joined.number = number
            if settlement.joined is not None:
                settlement.joined.life = self.life
                settlement.joined.limit_number = self._state.number
            if number > self.number and not self._charges:
                self.number = number
                # Earlier settlements belong to the last window.
                self._owed = self._returned = self._unheld = 0
        return number == self.number

    def renew(self, hold: QuotaHold) -> int | None:
        """Renew a hold, and return its new second of expiry; None if the hold has expired."""
        if not self._is_of_this_life(hold) or self._held.get(hold.name, 0) < hold.units:
            self.is_doubtful = True
            return None
        terms, _ = quota_terms(self._state.rate)
        expires_s = expiry_s(terms.hold_ttl_s, self._now_ms)
        if expires_s <= hold.expires_s:
            return hold.expires_s
        self._subtract(hold.name, hold.units)
        self._add(hold._replace(expires_s=expires_s).name, hold.units)
        return expires_s

    def count(self, units: int, through_children: int = 0) -> None:
        """Count an amount as usage only, and the part of it that children count as well."""
        self._usage += units
        self._through_children += through_children

    def take(self, units: int, *, as_debt: bool = False, through_child: bool = False) -> QuotaHold:
        """Take an amount, whether or not it fits, and hold it.

        An amount of 0 takes nothing; the hold then names the window for debts that come later. If
        no first use has begun a window yet, the hold names NO_WINDOW. ``as_debt`` is for a charge
        in shadow mode, ``through_child`` for one that a child counts as well.
        """
        terms, window = quota_terms(self._state.rate)
        if not units:
            number = joined(window, self._state.balance_milli, self._now_ms)
            if isinstance(window, FirstUse) and window_of(self._state.balance_milli) < number:
                number = NO_WINDOW
            return QuotaHold(self.key, 0, number, NEVER_EXPIRES, through_child=through_child)
        expires_s, limit_number = expiry_s(terms.hold_ttl_s, self._now_ms), self._state.number
        hold = QuotaHold(
            self.key, units, self.number, expires_s, self.life, limit_number, through_child
        )
        self._add(hold.name, units)
        self._usage += units
        if through_child:
            self._through_children += units
        if terms.soft or as_debt:
            self._owed += units
        else:
            self._charged += units
        return hold

    def take_with_child(
        self, of_child: OfChild, units: int, *, as_debt: bool = False
    ) -> list[QuotaHold]:
        """Take an amount; the part of it that a child is charged as well is held apart."""
        if not of_child.units:
            later = of_child.is_counted and not units
            return [self.take(units, as_debt=as_debt, through_child=later)]
        parts = ((units - of_child.units, False), (of_child.units, True))
        return [
            self.take(part, as_debt=as_debt, through_child=through)
            for part, through in parts
            if part
        ]

    def finish(self, *, asked: bool) -> QuotaMove:
        """Return the changes of the write.

        ``asked`` says that the write charges the bucket. Such a write is refused if a quota is
        overdrawn, also a quota that the call does not name. Soft quotas have no such bound.
        """
        terms, window = quota_terms(self._state.rate)
        taken = self._charged + self._owed
        asked = asked and not terms.soft
        turns = self._is_older and (self._charges or taken > 0) and self._may_turn(terms, taken)
        most = self._bounded_returns(taken) if self._unheld else HALF_SPAN
        sweeps = self._charges or turns or (asked and self.is_overdrawn)
        holds = self._hold_write(self._swept(turns) if sweeps else {})
        if turns:
            over = last_ended(window, self.number, self._now_ms)
            level = shifted_level(self._state.rate.capacity_milli, -taken)
            put = balance_in(self.number, level)
            move = self._move(low=balance_in(over, -HALF_SPAN) + 1, put=put)
            return QuotaMove(move, holds, self._through_children)
        change = self._returned - taken
        if self._undoes and self._is_untouched(change):
            return self._without_window()
        at_stamp = self.number
        if asked and not self._charges:
            at_stamp = joined(window, self._state.balance_milli, self._now_ms)
        if asked and at_stamp == self.number:
            low = balance_in(self.number, max(-change, 1 - DEEPEST))
            move = self._move(low, balance_in(self.number, most), change)
        elif self._charges or self._is_settled:
            level, consumed = level_in(self.number, self._state.balance_milli), self._usage
            move = move_in_window(
                self.key, self.number, level, change, most=most, consumed=consumed
            )
        elif asked:  # the call does not name the quota, and the quota's window is over
            over = last_ended(window, at_stamp, self._now_ms)
            move = self._move(low=balance_in(over, -HALF_SPAN) + 1, add=change)
        else:
            move = self._move(add=change)
        return QuotaMove(move, holds, self._through_children)

    def _is_untouched(self, change: int) -> bool:
        """Tell whether nothing was charged in a window of first use but what is undone now.

        The window is so young that no hold of it can have expired: each call that held something
        has settled.
        """
        terms, window = quota_terms(self._state.rate)
        if not isinstance(window, FirstUse) or self._charges or self.number == NO_WINDOW:
            return False
        ttl_s = terms.hold_ttl_s
        if ttl_s is not None and self._now_ms >= self.number + ttl_s * 1000:
            return False
        level = level_in(self.number, self._state.balance_milli) + change
        held = [units for name, units in self._held.items() if name.window == self.number]
        topped = topped_units(self._state, self.number)
        return level == self._state.rate.capacity_milli and not any(held) and not topped

    def _without_window(self) -> QuotaMove:
        """Return the changes of a write after which no window has begun.

        The bucket must be as it was seen: a charge that comes between is in the window.
        """
        seen = self._state.balance_milli
        holds = HoldWrite(self.key, untopped=balance_in(self.number, HALF_SPAN))
        for name, units in self._quota.holds.items():
            if name.window == self.number:
                holds.swept[name] = units
        put = balance_in(NO_WINDOW, self._state.rate.capacity_milli)
        return QuotaMove(self._move(seen, seen, put=put), holds, self._through_children)

    def _bounded_returns(self, taken: int) -> int:
        """Return less of what no hold was taken for, if a reset has forgiven these costs.

        They would lift the window above its amount and top-ups. The result is the highest level at
        which they do not, or that of any window if nothing of them is left.
        """
        held = sum([units for name, units in self._held.items() if name.window == self.number])
        amount = self._state.rate.capacity_milli + topped_units(self._state, self.number)
        most = amount - held + taken - self._returned
        surplus = max(0, level_in(self.number, self._state.balance_milli) - most)
        if surplus >= self._unheld:
            self._returned -= self._unheld
            return HALF_SPAN
        self._returned -= surplus
        return most + surplus

    def _may_turn(self, terms: Terms, taken: int) -> bool:
        """Tell whether the amount of a new window holds the charges.

        Otherwise the write has the bounds of that window, and the store refuses it.
        """
        return terms.soft or not self._charged or taken <= self._state.rate.capacity_milli

    def _move(
        self,
        low: int | None = None,
        high: int | None = None,
        add: int = 0,
        put: int | None = None,
    ) -> Move:
        return Move(key=self.key, low=low, high=high, add=add, put=put, consumed_milli=self._usage)

    def _swept(self, turns: bool) -> dict[HoldName, int]:
        """Return expired holds to the level, and forget those of other windows.

        The holds are returned as they were seen. A turn forgets every hold.
        """
        swept = {}
        for name, seen in self._quota.holds.items():
            window, expires_s, through_child = name
            if turns or window != self.number or has_expired(expires_s, self._now_ms):
                units = self._held[name] - self._added.get(name, 0)
                swept[name] = seen
                self.count(-units, -units if through_child else 0)
                if window == self.number and not turns:
                    self._returned += units
        return swept

    def _hold_write(self, swept: dict[HoldName, int]) -> HoldWrite:
        write = HoldWrite(self.key, swept)
        for name, units in self._added.items():
            if name in swept:
                write.put[name] = units
            else:
                write.added[name] = units
        write.removed = {name: each for name, each in self._removed.items() if name not in swept}
        return write

    def _subtract(self, name: HoldName, units: int) -> None:
        self._held[name] -= units
        self._removed[name] = self._removed.get(name, 0) + units

    def _add(self, name: HoldName, units: int) -> None:
        self._held[name] = self._held.get(name, 0) + units
        self._added[name] = self._added.get(name, 0) + units


class QuotaLedger:
    """The changes of one write to one quota, gathered until it is known which charges go along.

    ``room`` is the level that is left for charges, once ``open`` has counted it. After ``finish``
    there are ``planned``, the ``holds`` of each charge and the seconds of ``renewed`` holds, None
    for one that has expired, by the position of their change. ``is_doubtful`` says that a hold was
    not seen: it has expired, or the image is outdated. ``needs_latest`` says that the write is
    right only if no other write came since.
    """

    room: int | None = None
    needs_latest = is_doubtful = False
    planned: QuotaMove

    def __init__(self, key: str, image: BucketImage, now_ms: int) -> None:
        self.key = key
        self._state = image.limits[key]
        self._life = image.life
        self._now_ms = now_ms
        self._ends: list[tuple[QuotaSettlement, bool]] = []
        self._counts: list[tuple[int, int]] = []
        self._renewals: list[tuple[int, int, QuotaHold, bool]] = []
        self._charges: list[tuple[int, BucketChange, int]] = []
        self.holds: dict[int, list[QuotaHold]] = {}
        self.renewed: dict[tuple[int, int], int | None] = {}

    def settle(self, end: QuotaSettlement, change: BucketChange) -> None:
        self._ends.append((end, self._is_same(change)))

    def enter(self, change: BucketChange, position: int, amount: int) -> None:
        """Enter a charge that is taken whether or not it fits, or an amount that is usage only."""
        if change.is_charge:
            self._charges.append((position, change, amount))
        else:
            self._counts.append((amount, change.of_child(self.key).units))

    def renew(self, hold: QuotaHold, change: BucketChange, position: int, at: int) -> None:
        """Renew a hold, the one ``at`` its place among those of the change."""
        self._renewals.append((position, at, hold, self._is_same(change)))

    def open(self, changes: Sequence[BucketChange]) -> int:
        """Count what charges may take behind the settlements.

        If a charge of the group begins a window, costs that are settled there leave less room.
        """
        state = self._state
        if self._ends or self._counts or self._renewals:
            turns = window_of(state.balance_milli) != current_window(state, self._now_ms)
            charges = [each for each in changes if each.is_charge]
            turns = turns and any(each.amounts_milli.get(self.key) for each in charges)
            state = self._ledger(charges=turns).finish(asked=False).applied(state)
        self.room = room_milli(state, self._now_ms)
        for _, change, amount in self._charges:
            self.room -= 0 if change.forfeits else amount
        return self.room

    def take(self, change: BucketChange, position: int, amount: int, advance: int = 0) -> None:
        if self.room is not None:
            self.room -= amount
        self._charges.append((position, change, amount))

    @property
    def is_touched(self) -> bool:
        """Whether a change concerns the quota."""
        return bool(self._ends or self._counts or self._renewals or self._charges)

    def finish(self) -> None:
        """Plan the write with all changes that were entered."""
        charging, asked = False, False
        for _, change, amount in self._charges:
            charging = charging or (amount != 0 and not change.forfeits)
        ledger = self._ledger(charges=charging)
        for position, change, amount in self._charges:
            of_child = change.of_child(self.key)
            if change.forfeits:
                ledger.count(amount, of_child.units)
            else:
                held = ledger.take_with_child(of_child, amount, as_debt=change.is_debt)
                self.holds[position] = held
                asked = asked or change.must_fit
        self.is_doubtful, self.needs_latest = ledger.is_doubtful, ledger.gives_unheld
        self.planned = ledger.finish(asked=asked)

    def after(self) -> LimitState:
        """Return the limit after the write."""
        return self.planned.applied(self._state)

    def first_move(self) -> Move:
        """Return the move that creates the quota, or turns it if its window is over."""
        _, window = quota_terms(self._state.rate)
        after, number = self.after(), current_window(self._state, self._now_ms)
        low = balance_in(last_ended(window, number, self._now_ms), -HALF_SPAN) + 1
        return Move(self.key, low, None, 0, after.balance_milli, after.consumed_milli)

    def _ledger(self, *, charges: bool) -> WindowLedger:
        """Return the ledger with all settlements and renewals, and no charge yet."""
        ledger = WindowLedger(self.key, self._state, self._now_ms, charges=charges, life=self._life)
        for end, is_same in self._ends:
            ledger.settle(end, is_same=is_same)
        for units, of_children in self._counts:
            ledger.count(units, of_children)
        for position, at, hold, is_same in self._renewals:
            self.renewed[position, at] = ledger.renew(hold) if is_same else None
        return ledger

    def _is_same(self, change: BucketChange) -> bool:
        """Tell whether the quota still has the windows under which it was charged."""
        return has_same_windows(self._state.rate, change.in_force.rate_of(self.key))


def full_quota(rate: Rate, now_ms: int) -> LimitState:
    """Return a quota of which nothing was used."""
    _, window = quota_terms(rate)
    balance = balance_in(begun(window, now_ms), rate.capacity_milli)
    return LimitState(balance, rate, quota=QuotaState())


def held_usage(state: LimitState | None, now_ms: int | None = None) -> tuple[int, int]:
    """Return the usage that calls hold of a limit, and the part that children hold as well.

    Given a moment, it is only that of dead calls, which is no usage from then on: nobody has
    renewed it in time, or its window is over and it ends with it.
    """
    if state is None or state.quota is None or not state.quota.holds:
        return 0, 0
    holds = state.quota.holds
    if now_ms is not None:
        _, window = quota_terms(state.rate)
        holds = {
            name: units
            for name, units in holds.items()
            if has_expired(name.expires_s, now_ms)
            or (name.expires_s == NEVER_EXPIRES and end_ms(window, name.window) <= now_ms)
        }
    of_children = [units for name, units in holds.items() if name.through_child]
    return sum(holds.values()), sum(of_children)


def _all_swept(state: LimitState, holds: HoldWrite) -> tuple[int, int]:
    """Let a write remove all that is held; return the change of usage, and that of children."""
    assert state.quota is not None, "only a quota has holds"
    holds.swept = dict(state.quota.holds)
    units, of_children = held_usage(state)
    return -units, -of_children


def top_up_quota(key: str, state: LimitState, units: int, now_ms: int) -> QuotaMove:
    """Return the move that adds to the window; the level may exceed the amount until its end.

    Thresholds above the new level are raised again when they are reached again. Amount and top-ups
    of a window are at most ``DEEPEST`` together; ``add`` is what is really added.
    """
    terms, window = quota_terms(state.rate)
    number, amount = current_window(state, now_ms), state.rate.capacity_milli
    seen, topped = window_of(state.balance_milli), topped_units(state, number)
    level = level_in(number, state.balance_milli)
    units = min(units, max(0, DEEPEST - amount - topped))
    if seen == number and is_sunk(level):
        return QuotaMove(move_in_window(key, number, level, 0), HoldWrite(key))
    holds = HoldWrite(key, topped=balance_in(number, topped + units), remarks=True)
    if seen == number:
        holds.marked = reached_mark(terms.thresholds, amount, number, level + units)
        return QuotaMove(move_in_window(key, number, level, units), holds)
    if isinstance(window, FirstUse):
        raise ValidationError(
            "amounts",
            key,
            "has no window yet: it begins with the first charge, and then a top-up is possible",
        )
    consumed, through = _all_swept(state, holds)
    low = balance_in(last_ended(window, number, now_ms), -HALF_SPAN) + 1
    put = balance_in(number, amount + units)
    return QuotaMove(Move(key, low, None, units, put, consumed), holds, through)


def reset_quota(key: str, state: LimitState, now_ms: int) -> QuotaMove | None:
    """Return the move that forgives the settled costs of the window; None if none has begun.

    Amounts that calls in flight hold stay held. A balance that a wrong clock has moved far ahead is
    brought back.
    """
    assert state.quota is not None
    _, window = quota_terms(state.rate)
    seen, holds = window_of(state.balance_milli), HoldWrite(key, forgets=True)
    capacity, balance = state.rate.capacity_milli, state.balance_milli
    if is_far_ahead(window, seen, now_ms):
        consumed, through = _all_swept(state, holds)
        put = balance_in(begun(window, now_ms), capacity)
        return QuotaMove(Move(key, balance, balance, 0, put, consumed), holds, through)
    if seen < current_window(state, now_ms):
        return None
    held = sum(units for name, units in state.quota.holds.items() if name.window == seen)
    level, left = level_in(seen, balance), shifted_level(capacity, -held)
    if is_sunk(level):
        low, high = balance_in(seen, -HALF_SPAN) + 1, balance_in(seen, -DEEPEST)
        return QuotaMove(Move(key, low, high, left - level, balance_in(seen, left)), holds)
    return QuotaMove(move_in_window(key, seen, level, left - level), holds)


def rebase_quota(key: str, state: LimitState, rate: Rate, now_ms: int) -> QuotaMove:
    """Return the move of a quota to another amount or calendar: its usage stays.

    Another calendar begins another life of the limit and forgets the holds of the one before: what
    has expired returns, and the estimates of calls in flight stay charged. After a change of the
    amount or of the thresholds, all thresholds that are reached count as raised.
    """
    assert state.quota is not None
    old_terms, before = quota_terms(state.rate)
    terms, after = quota_terms(rate)
    seen, holds = window_of(state.balance_milli), HoldWrite(key)
    level, new = level_in(seen, state.balance_milli), rate.capacity_milli
    change = new - state.rate.capacity_milli
    if before == after:
        if change or terms.thresholds != old_terms.thresholds:
            holds.remarks = True
            shifted = shifted_level(level, change)
            holds.marked = reached_mark(terms.thresholds, new, seen, shifted)
        return QuotaMove(move_in_window(key, seen, level, change), holds)
    holds.remarks = True  # the windows of another calendar have other numbers
    number = begun(after, now_ms)
    consumed, through = _all_swept(state, holds)
    if seen < current_window(state, now_ms):
        holds.forgets = True
        low, high = balance_in(seen, -HALF_SPAN) + 1, balance_in(seen, HALF_SPAN)
        put = balance_in(number, new)
        return QuotaMove(Move(key, low, high, 0, put, consumed), holds, through)
    if isinstance(after, FirstUse):
        number = seen  # its window began at the same moment
    if state.quota.topped is not None and window_of(state.quota.topped) == seen:
        holds.topped = balance_in(number, topped_units(state, seen))
    change += held_in(state.quota.holds, seen, now_ms, expired=True)
    move = move_in_window(key, seen, level, change, to=number, consumed=consumed)
    return QuotaMove(move, holds, through)


def is_same_quota(before: Rate, after: Rate) -> bool:
    """Tell whether a quota goes on under other terms, in the same unit; else it begins full."""
    if before.terms is None or after.terms is None:
        return False
    first, second = before.terms, after.terms
    if first.window is None or second.window is None or first.currency != second.currency:
        return False
    return isinstance(first.window, FirstUse) == isinstance(second.window, FirstUse)


def has_same_windows(before: Rate, after: Rate) -> bool:
    """Tell whether a quota has the windows and the unit that its holds were taken under."""
    if before.terms is None or after.terms is None or before.terms.window is None:
        return False
    first, second = before.terms, after.terms
    return (first.window, first.currency) == (second.window, second.currency)

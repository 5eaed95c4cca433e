"""What the calls of a quota have really cost: the truth that the stored item is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from proof.model.quota import AMOUNT, Item, Wish, Write
from zae_limiter.admission.windows import HoldName, has_expired, level_in, window_of


class Call(NamedTuple):
    """A call whose charge was carried out under an id.

    Its amount is held until it ends at a cost, or until it is returned because it has expired.
    """

    op: int
    window: int
    units: int
    expires_s: int
    cost: int | None = None
    is_returned: bool = False

    @property
    def name(self) -> HoldName:
        return HoldName(self.window, self.expires_s)

    @property
    def is_held(self) -> bool:
        """Whether the item holds the amount of the call."""
        return self.cost is None and not self.is_returned


Calls = tuple[Call, ...]


class Wrong(Exception):
    """A write does what no write may do."""


def after(calls: Calls, wish: Wish, write: Write, op: int, window: int, now_ms: int) -> Calls:
    """Return the calls after a write was carried out: ends and renewals, then sweeps and charges.

    ``window`` is that of the item, which forgets the holds of all other windows. ``now_ms`` is the
    stamp of the write. Raises Wrong for a call that begins or ends twice, and for an amount that is
    returned although its call is alive.
    """
    known = {call.op: call for call in calls}
    if wish.held is not None:
        call = known.get(wish.held.call)
        if call is None:
            raise Wrong("a call ends that has not begun")
        known[call.op] = _changed(call, wish, write)
    swept = dict(write.swept)
    for call in known.values():
        if call.is_held and call.name in swept:
            if call.window == window and not has_expired(call.expires_s, now_ms):
                raise Wrong("a hold was returned before it has expired")
            known[call.op] = call._replace(is_returned=True)
    if write.taken is not None:
        if op in known:
            raise Wrong("a charge was carried out twice")
        hold = write.taken
        known[op] = Call(op, hold.window, hold.units, hold.expires_s)
    return tuple(known.values())


def _changed(call: Call, wish: Wish, write: Write) -> Call:
    """Return a call after its end or its renewal."""
    if wish.cost is not None:
        if call.cost is not None:
            raise Wrong("a call was settled twice")
        return call._replace(cost=wish.cost)
    if write.renewed_s is None or not call.is_held:
        return call
    return call._replace(expires_s=write.renewed_s)


# --- rules


def broken_rule(item: Item, calls: Calls, *, in_doubt: bool) -> str | None:
    """Return the rule that an item breaks.

    Calls whose amounts expire together hold one sum. After an answer was lost (``in_doubt``), a
    late settlement or renewal may take the amount of another call, which then has none to give
    back. So the holds are not compared one by one; all sums still agree.
    """
    window, holds = window_of(item.balance), dict(item.holds)
    if any(units < 0 for units in holds.values()):
        return "more was given back than was held"
    costs = _costs(call for call in calls if call.window == window)
    held = sum(units for name, units in holds.items() if name[0] == window)
    if level_in(window, item.balance) + held + costs != AMOUNT:
        return "an amount was lost, or credited twice"
    if item.usage != _costs(calls) + sum(holds.values()):
        return "the counted use is wrong"
    if not in_doubt and held_by_name(calls) != {name: each for name, each in holds.items() if each}:
        return "the item does not hold what the calls hold"
    return None


def is_overfull(calls: Calls, window: int, now_ms: int, in_doubt: int) -> bool:
    """Tell whether the calls of a window cost more than its amount, or may cost more.

    Counted are the costs of calls that have ended, and the estimates of those that are alive. The
    amount of each renewal of unknown outcome may be counted for another call: that is the bound.
    """
    of_window = [call for call in calls if call.window == window]
    alive = [
        call.units
        for call in of_window
        if call.cost is None and not has_expired(call.expires_s, now_ms)
    ]
    return _costs(of_window) + sum(alive) > AMOUNT + in_doubt


def held_by_name(calls: Calls) -> dict[HoldName, int]:
    """Return the amounts that the item holds, by window and expiry."""
    held = Counter[HoldName]()
    for call in calls:
        if call.is_held:
            held[call.name] += call.units
    return dict(held)


def _costs(calls: Iterable[Call]) -> int:
    return sum(call.cost or 0 for call in calls)

"""Windows of quotas: which window a balance belongs to, and which window a write uses.

The balance of a quota counts windows as that of a rate counts time: with each window that begins, a
span accrues that is larger than any level or debt. So the balance itself names its window, and a
balance that is a span too high belongs to a window that has ended. The first charge of a window
turns the balance: it is set to the amount of the limit, whatever was left or owed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.models.calendar import Calendar
from zae_limiter.models.limit import DAY, LATE_SETTLEMENTS_MS, FirstUse, Limit

SPAN = 10**22  # larger than any level or debt; stored balances depend on it: never change it
HALF_SPAN = SPAN // 2
# A quota that owes so much stays at this level until its window ends or is reset, and no more than
# so much is topped up. So the balance never leaves its window, whatever is settled there.
DEEPEST = SPAN // 4
NO_WINDOW = 0  # the number of a first-use window before its first use
MARKS = 10  # a mark is MARKS times the number of its window, plus the position of a threshold

Window = Calendar | FirstUse


class HoldName(NamedTuple):
    """The name of a held amount: its window, and the second of its expiry.

    What children of the entity hold through its bucket is held under names of its own: their usage
    counts it as well.
    """

    window: int
    expires_s: int
    through_child: bool = False


class QuotaState(NamedTuple):
    """The state of a quota besides its balance.

    ``holds`` are the amounts that calls in flight hold. ``topped`` is the sum of the top-ups of a
    window, relative to the window as the balance is. ``marked`` is the last threshold that was
    raised: ten times the number of its window, and its position, counted from 1. ``exhausted`` is
    the last window in which the quota has rejected an acquire, as far as somebody was told of it.
    """

    holds: Mapping[HoldName, int] = {}
    topped: int | None = None
    marked: int | None = None
    exhausted: int | None = None


QUOTA_FIELDS = 4  # plain values of a quota


def plain_quota(quota: QuotaState | None) -> tuple[object, ...]:
    """Return the state of a quota as plain values for ``quota_of``; empty if there is no quota."""
    if quota is None:
        return ()
    holds = [[_plain_name(name), units] for name, units in quota.holds.items()]
    return holds, quota.topped, quota.marked, quota.exhausted


def _plain_name(name: HoldName) -> list[int]:
    window, expires_s, through_child = name
    return [window, expires_s, 1] if through_child else [window, expires_s]


def quota_of(
    holds: list[tuple[list[int], int]] | None = None,
    topped: int | None = None,
    marked: int | None = None,
    exhausted: int | None = None,
) -> QuotaState | None:
    """Return the state of a quota from its plain values; None if there are none."""
    if holds is None:
        return None
    names = {HoldName(name[0], name[1], len(name) > 2): units for name, units in holds}
    return QuotaState(names, topped, marked, exhausted)


class Terms(NamedTuple):
    """The parameters that a limit has beyond those of a rate.

    ``window`` is None for a soft rate, and for soft slots. ``hold_ttl_s`` None means that holds
    end with their window.
    """

    window: Window | None
    soft: bool = False
    hold_ttl_s: int | None = None
    thresholds: tuple[int, ...] = ()
    currency: str | None = None

    @classmethod
    def of(cls, limit: Limit) -> Terms | None:
        """Return the terms of a limit; None for a rate and for slots that are not soft."""
        if limit.window is None and not limit.soft:
            return None
        return cls(limit.window, limit.soft, limit.hold_ttl, limit.thresholds, limit.currency)


def window_of(balance: int) -> int:
    """Return the number of the window that a balance belongs to."""
    return (HALF_SPAN - balance) // SPAN


def level_in(number: int, balance: int) -> int:
    """Return the level of a balance, given the number of its window."""
    return balance + number * SPAN


def is_sunk(level: int) -> bool:
    """Tell whether a quota owes more than is counted: nothing changes its level in its window."""
    return level <= -DEEPEST


def balance_in(number: int, level: int) -> int:
    """Return the balance of a level in a window."""
    return level - number * SPAN


def joined(window: Window, balance: int, now_ms: int) -> int:
    """Return the number of the window that a write at this moment uses.

    A client whose clock is behind joins the window that another client has begun. A first-use
    window is named by the millisecond at which it begins.
    """
    number = window_of(balance)
    if isinstance(window, FirstUse):
        return number if now_ms < number + window.length_ms else now_ms
    return max(number, window.number(now_ms))


def begun(window: Window, now_ms: int) -> int:
    """Return the number of the window of a quota that no charge has named yet."""
    return NO_WINDOW if isinstance(window, FirstUse) else window.number(now_ms)


def last_ended(window: Window, number: int, now_ms: int) -> int:
    """Return the last window that has ended when the window ``number`` is turned to."""
    return now_ms - window.length_ms if isinstance(window, FirstUse) else number - 1


def start_ms(window: Window, number: int) -> int:
    """Return the moment at which a window begins."""
    return number if isinstance(window, FirstUse) else window.edge_ms(number)


def end_ms(window: Window, number: int) -> int:
    """Return the moment at which a window ends."""
    if isinstance(window, FirstUse):
        return number + window.length_ms
    return window.edge_ms(number + 1)


def kept_until_ms(window: Window, number: int) -> int:
    """Return the moment until which a window's balance is kept for late settlements."""
    late = DAY * 1000 if isinstance(window, FirstUse) else LATE_SETTLEMENTS_MS
    return end_ms(window, number) + late


def is_far_ahead(window: Window, number: int, now_ms: int) -> bool:
    """Tell whether a wrong clock has moved the balance more than one window ahead."""
    if isinstance(window, FirstUse):
        return number > now_ms + window.length_ms
    return number > window.number(now_ms) + 1


def has_expired(expires_s: int, now_ms: int) -> bool:
    """Tell whether a hold was not renewed in time; 0 never expires."""
    return 0 < expires_s * 1000 <= now_ms


def held_in(holds: Mapping[HoldName, int], number: int, now_ms: int, *, expired: bool) -> int:
    """Return the sum of a window's holds: of the expired ones, or of those still valid."""
    return sum(
        [
            units
            for (window, expires_s, _), units in holds.items()
            if window == number and has_expired(expires_s, now_ms) is expired
        ]
    )


def free_level(window: Window, balance: int, capacity: int, quota: QuotaState, now_ms: int) -> int:
    """Return the level of a quota at a moment; negative while the quota is overdrawn.

    If the balance belongs to an earlier window, the quota is full. A call that needs expired holds
    returns them, so they count as free.
    """
    number = joined(window, balance, now_ms)
    if window_of(balance) < number:
        return capacity
    level = level_in(number, balance)
    if not quota.holds or is_sunk(level):
        return level
    return level + held_in(quota.holds, number, now_ms, expired=True)


def trigger_level(amount: int, percent: int) -> int:
    """Return the level at which a threshold is reached, given the amount of the quota."""
    return amount - -(-amount * percent // 100)


def reached_mark(thresholds: tuple[int, ...], amount: int, number: int, level: int) -> int | None:
    """Return the mark of the highest threshold that a level has reached; None if none is.

    The amount is 0 in all shards of a bucket but the first, which has all of a quota.
    """
    if not amount:
        return None
    position = sum(level <= trigger_level(amount, percent) for percent in thresholds)
    return number * MARKS + position if position else None

"""The rules of quotas as functions of an item: which write a group of changes makes.

A bucket's item has for each limit ``t_`` (balance), ``c_`` (usage), ``k_`` (the part of it that
children count as well), ``n_`` (number) and ``a_`` (amount), for each number ``v`` (top-ups) and
``e`` (the mark of the last threshold), and held amounts by ``HoldName``. ``cv`` is the version of
the limits, ``g`` counts splits and merges up, ``wc`` counts writes, ``ttl`` is in seconds.

The methods under "guards" are replaced by the planted defects.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tests.support.quotas.table import Below, Equals, Item, Key, Within, Write

SPAN = 10**22
HALF = SPAN // 2
NEVER = 0  # the expiry of a hold that ends with its window
DAY_S = 86_400


class CalendarLike(Protocol):
    """Windows by the calendar; hosts may have different data."""

    def number(self, t_ms: int) -> int: ...

    def edge_ms(self, k: int) -> int: ...


@dataclass(frozen=True)
class Quota:
    """One limit. ``calendar`` is None for a window of ``length_ms`` from its first use.

    ``number`` is its number in the item; ``era`` tells the ledger of another calendar or kind.
    """

    name: str
    amount: int
    number: int
    calendar: CalendarLike | None = None
    length_ms: int = 0
    soft: bool = False
    hold_ttl: int | None = 10
    thresholds: tuple[int, ...] = (50, 80, 100)
    era: int = 0

    def share(self, shard: int, shards: int) -> int:
        if shards == 1:
            return self.amount
        return self.amount // 2 if shard else self.amount - self.amount // 2


class Hold(NamedTuple):
    """The place of a held amount. ``shard`` and ``generation`` name the item that has it.

    ``era`` is for the ledger alone. ``of_child`` says that a child of the entity was charged, too.
    """

    limit: str
    number: int
    window: int
    expires_s: int
    amount: int
    shard: int = 0
    generation: int | None = None
    era: int = 0
    of_child: bool = False


class HoldName(NamedTuple):
    """The name of the attribute of held amounts."""

    limit: str
    number: int
    window: int
    expires_s: int
    of_child: bool = False


# --- changes that callers ask for, and their effects, which the ledger follows


@dataclass
class Ask:
    """A charge of one call on one bucket; ``shadow`` ones are never rejected.

    ``of_child`` says that a child of the entity makes the call.
    """

    call: int
    amounts: dict[str, int]
    shadow: bool = False
    of_child: bool = False


@dataclass
class End:
    """The settlement of one call on one shard of a bucket: the true cost of each hold."""

    call: int
    costs: list[tuple[Hold, int]]


@dataclass
class Renewal:
    """A hold of one call that is to expire later."""

    call: int
    hold: Hold


class Taken(NamedTuple):
    call: int
    hold: Hold
    hard: bool


class Settled(NamedTuple):
    call: int
    hold: Hold
    cost: int


class Renewed(NamedTuple):
    call: int
    hold: Hold
    after: Hold


class Swept(NamedTuple):
    """``shard`` is the shard that had the hold, if another one than that of the write."""

    limit: str
    name: HoldName
    stamp_ms: int
    shard: int | None = None


class ToppedUp(NamedTuple):
    limit: str
    amount: int
    window: int


class WasReset(NamedTuple):
    """``settled`` is what the ledger had for the window when the bucket was read."""

    limit: str
    settled: int
    brought_back: bool


class Rebased(NamedTuple):
    """Other limits; ``older`` says that the balance was of an earlier window."""

    limit: str
    before: Quota
    after: Quota
    older: bool


class Marked(NamedTuple):
    limit: str
    position: int


class Moved(NamedTuple):
    """Tokens were moved between shards."""


@dataclass
class Plan:
    """The writes of a group, and what becomes of its changes."""

    writes: list[Write]
    admitted: list[Ask] = field(default_factory=list)
    rejected: list[tuple[Ask, float]] = field(default_factory=list)  # with the moment to retry
    holds: dict[int, list[Hold]] = field(default_factory=dict)  # of admitted calls
    renewed: dict[tuple[int, Hold], Hold | None] = field(default_factory=dict)


def holds_of(item: Item, limit: str) -> dict[HoldName, int]:
    """Return the held amounts of a limit, of all numbers and windows."""
    return {
        name: value
        for name, value in item.items()
        if type(name) is HoldName and name.limit == limit
    }


def window_of(balance: int) -> int:
    return (HALF - balance) // SPAN


class LimitPlan:
    """The part of a write that concerns one limit, while it is planned."""

    def __init__(
        self,
        rules: GroupRules,
        item: Item,
        quota: Quota,
        stamp_ms: int,
        shard: int = 0,
        at_least: int = 0,
    ) -> None:
        self.rules, self.item, self.quota, self.stamp_ms = rules, item, quota, stamp_ms
        self.share = quota.share(shard, item["n"])
        self.balance = item[f"t_{quota.name}"]
        self.seen = holds_of(item, quota.name)
        self.held = dict(self.seen)
        self.off: dict[HoldName, int] = defaultdict(int)  # subtracted from holds
        self.on: dict[HoldName, int] = defaultdict(int)  # added to holds
        self.less: dict[HoldName, int] = {}  # holds that must be lower than this
        self.usage = self.of_children = self.charges = self.debts = self.credits = 0
        self.joined = max(at_least, rules.joined(quota, self.balance, stamp_ms))
        self.turns = False
        self.effects: list[Any] = []

    # --- what is known before it is decided whether the limit is charged

    @property
    def is_overdrawn(self) -> bool:
        """Whether the window of a charge is in debt as long as nothing is swept."""
        if self.is_older:
            return False
        level = self.balance + self.joined * SPAN
        return level + self.credits < self.charges + self.debts

    @property
    def is_older(self) -> bool:
        """Whether the balance is of a window before that of a charge."""
        return self.rules.is_older(window_of(self.balance), self.joined)

    def room(self, ends: list[tuple[int, Hold, int]]) -> int:
        """Return the level for a charge, after the settlements of the group and a sweep."""
        if self.is_older:
            return self.share - sum(
                cost for _, hold, cost in ends if self.is_own(hold, self.joined)
            )
        level = self.balance + self.joined * SPAN
        held = dict(self.seen)
        for _, hold, cost in ends:
            name = self.rules.hold_name(hold)
            returned = hold.amount if held.get(name, 0) >= hold.amount else 0
            held[name] = held.get(name, 0) - returned
            if self.is_own(hold, self.joined):
                level += returned - cost
        for name, amount in held.items():
            if self.is_swept(name) and self.is_in_window(name):
                level += amount
        return level

    def is_own(self, hold: Hold, window: int) -> bool:
        return hold.number == self.quota.number and hold.window == window

    def is_swept(self, name: HoldName) -> bool:
        if not self.is_in_window(name):
            return True
        return 0 < name.expires_s * 1000 <= self.stamp_ms

    def is_in_window(self, name: HoldName) -> bool:
        own = name.number == self.quota.number
        return own and self.rules.counts_for(name.window, self.joined)

    # --- the write

    def build(
        self,
        write: Write,
        takes: list[tuple[Ask, int]],
        ends: list[tuple[int, Hold, int]],
        renewals: list[Renewal],
        *,
        asked: bool,
        plan: Plan,
    ) -> None:
        """Add the changes of the limit to a write.

        ``asked`` says that the write charges the bucket: then a limit that is not named must not be
        overdrawn.
        """
        rules, quota = self.rules, self.quota
        charging = bool(takes)
        turns = self.turns = charging and self.is_older
        window = self.joined if charging else window_of(self.balance)
        for call, hold, cost in ends:
            rules.settle(self, call, hold, cost, window)
        for renewal in renewals:
            self._renew(renewal, plan)
        for ask, amount in takes:
            self._take(ask, amount, window, plan, write.key.shard)
        swept = self._sweep(turns, charging, asked)
        self._write_holds(write, swept)
        self._write_balance(write, window, turns, charging, asked, bool(ends))
        if self.usage:
            write.add(f"c_{quota.name}", self.usage)
        if self.of_children:
            write.add(f"k_{quota.name}", self.of_children)
        write.effects += self.effects

    def _renew(self, renewal: Renewal, plan: Plan) -> None:
        hold, name = renewal.hold, self.rules.hold_name(renewal.hold)
        place = (renewal.call, hold)
        expires_s = expiry_s(self.quota.hold_ttl, self.stamp_ms)
        if not self.rules.may_renew(self.held.get(name, 0), hold):
            plan.renewed[place] = None
            return
        if expires_s <= hold.expires_s or hold.number != self.quota.number:
            plan.renewed[place] = hold
            return
        after = hold._replace(expires_s=expires_s)
        self.move(name, -hold.amount)
        self.move(self.rules.hold_name(after), hold.amount)
        plan.renewed[place] = after
        self.effects.append(Renewed(renewal.call, hold, after))

    def _take(self, ask: Ask, amount: int, window: int, plan: Plan, shard: int) -> None:
        quota = self.quota
        hold = Hold(
            quota.name,
            quota.number,
            window,
            expiry_s(quota.hold_ttl, self.stamp_ms),
            amount,
            shard,
            self.item.get("g"),
            quota.era,
            ask.of_child,
        )
        hard = not (ask.shadow or quota.soft)
        if hard:
            self.charges += amount
        else:
            self.debts += amount
        self.usage += amount
        self.of_children += amount if ask.of_child else 0
        if self.rules.has_hold(quota):
            self.move(self.rules.hold_name(hold), amount)
        plan.holds.setdefault(ask.call, []).append(hold)
        self.effects.append(Taken(ask.call, hold, hard))

    def move(self, name: HoldName, by: int) -> None:
        self.held[name] = self.held.get(name, 0) + by
        (self.on if by > 0 else self.off)[name] += abs(by)

    def _sweep(self, turns: bool, charging: bool, asked: bool) -> dict[HoldName, int]:
        """Return the holds that the write removes, as they were seen."""
        asked = asked and not self.quota.soft
        if not (charging or (asked and self.rules.sweeps_unnamed(self))):
            return {}
        swept = {}
        for name, seen in self.seen.items():
            if turns or self.is_swept(name):
                rest = self.held[name] - self.on.get(name, 0)
                swept[name] = seen
                self.usage -= rest
                self.of_children -= self.rules.swept_of_children(name, rest)
                if self.is_in_window(name) and not turns:
                    self.credits += rest
                self.effects.append(Swept(self.quota.name, name, self.stamp_ms))
        return swept

    def _write_holds(self, write: Write, swept: dict[HoldName, int]) -> None:
        for name in {*swept, *self.off, *self.on, *self.less}:
            off, on = self.off.get(name, 0), self.on.get(name, 0)
            if name in swept:
                if self.rules.sweeps_as_seen():
                    write.conditions.append(Equals(name, swept[name]))
                if on:
                    write.sets[name] = on
                else:
                    write.removes.add(name)
                continue
            if off and self.rules.requires_hold():
                write.conditions.append(Within(name, off, None))
            if name in self.less:
                write.conditions.append(Below(name, self.less[name]))
            if on or off:
                write.add(name, on - off)

    def _write_balance(
        self, write: Write, window: int, turns: bool, charging: bool, asked: bool, ends: bool
    ) -> None:
        rules, quota, balance = self.rules, self.quota, f"t_{self.quota.name}"
        base = window * SPAN
        taken = self.charges + self.debts
        if turns:
            write.conditions.append(Within(balance, rules.turn_floor(quota, window, self), None))
            write.sets[balance] = self.share - base - taken
            return
        if charging or ends:
            if rules.bounds_settlements() or charging:
                low = rules.least(self) if self.charges else -HALF + 1
                write.conditions.append(Within(balance, low - base, rules.most(base)))
            if self.credits != taken:
                write.add(balance, self.credits - taken)
        elif self.credits:  # of a sweep
            write.add(balance, self.credits)
        if asked and not charging and not quota.soft:  # a limit that the calls do not name
            base = self.joined * SPAN
            if self.is_older:
                floor = rules.turn_floor(quota, self.joined, self)
                write.conditions.append(Within(balance, floor, None))
            else:
                low = taken - self.credits
                write.conditions.append(Within(balance, low - base, HALF - base))


def expiry_s(hold_ttl: int | None, stamp_ms: int) -> int:
    """Return the second at which an amount expires that is taken or renewed now."""
    if hold_ttl is None:
        return NEVER
    step_s = hold_ttl // 2
    return -(-(stamp_ms + hold_ttl * 1000) // (step_s * 1000)) * step_s


@dataclass(frozen=True)
class Config:
    """The limits in force; a later version replaces them."""

    version: int
    limits: dict[str, Quota]


class GroupRules:
    """Plans the writes of groups of changes. All clients of a world have the same rules."""

    # --- guards

    def is_older(self, seen: int, window: int) -> bool:
        """Tell whether a balance is of a window before that of a charge."""
        return seen < window

    def least(self, limit: LimitPlan) -> int:
        """Return the level that a charge needs: after the whole write it must not be negative."""
        return limit.charges + limit.debts - limit.credits

    def most(self, base: int) -> int | None:
        """Return the highest balance of a window; a higher one belongs to an earlier window."""
        return HALF - base

    def joined(self, quota: Quota, balance: int, stamp_ms: int) -> int:
        """Return the window that a charge uses: that of the balance, if it is later."""
        seen = window_of(balance)
        if quota.calendar is None:
            return seen if stamp_ms < seen + quota.length_ms else stamp_ms
        return max(seen, quota.calendar.number(stamp_ms))

    def turn_floor(self, quota: Quota, window: int, limit: LimitPlan) -> int:
        """Return the lowest balance of the last window that has ended."""
        if quota.calendar is None:
            return -HALF - (limit.stamp_ms - quota.length_ms) * SPAN + 1
        return -HALF - (window - 1) * SPAN + 1

    def settle(self, limit: LimitPlan, call: int, hold: Hold, cost: int, window: int) -> None:
        """Settle a hold: its balance changes only in the window that has admitted the call."""
        name = self.hold_name(hold)
        change = cost
        if self.is_held(limit.held.get(name, 0), hold):
            limit.move(name, -hold.amount)
            change = cost - hold.amount
        else:
            limit.less[name] = limit.off.get(name, 0) + hold.amount
        limit.usage += change
        limit.of_children += change if hold.of_child else 0
        if limit.is_own(hold, window):
            if limit.turns:  # the window is begun again: nothing of it is held
                change = cost
            limit.debts += max(change, 0)
            limit.credits -= min(change, 0)
        limit.effects.append(Settled(call, hold, cost))

    def is_held(self, held: int, hold: Hold) -> bool:
        """Tell whether a hold was not returned yet."""
        return held >= hold.amount

    def may_renew(self, held: int, hold: Hold) -> bool:
        return held >= hold.amount

    def requires_hold(self) -> bool:
        """Tell whether the store checks that a hold was not returned yet."""
        return True

    def sweeps_as_seen(self) -> bool:
        return True

    def sweeps_unnamed(self, limit: LimitPlan) -> bool:
        """Tell whether calls that do not name a limit return its expired holds."""
        return limit.is_overdrawn

    def bounds_settlements(self) -> bool:
        return True

    def hold_name(self, hold: Hold) -> HoldName:
        return HoldName(hold.limit, hold.number, hold.window, hold.expires_s, hold.of_child)

    def swept_of_children(self, name: HoldName, amount: int) -> int:
        """Return the part of a swept amount that is usage through children."""
        return amount if name.of_child else 0

    def counts_for(self, named: int, window: int) -> bool:
        """Tell whether the holds of the window in their name belong to a window."""
        return named == window

    def has_hold(self, quota: Quota) -> bool:
        return True

    def in_order(self, asks: list[Ask]) -> list[Ask]:
        """Return the charges of a group: debts of shadow calls precede the others."""
        return sorted(asks, key=lambda ask: not ask.shadow)

    def retry_end_ms(self, quota: Quota, window: int, stamp_ms: int) -> int:
        """Return the moment at which callers may try again that a window has rejected."""
        return self.end_ms(quota, window)

    def end_ms(self, quota: Quota, window: int) -> int:
        if quota.calendar is None:
            return window + quota.length_ms
        return quota.calendar.edge_ms(window + 1)

    def ttl_s(self, quota: Quota, window: int) -> int:
        """Return when an item may be forgotten, as far as one limit is concerned."""
        if quota.calendar is None:
            return (window + quota.length_ms) // 1000 + DAY_S
        return quota.calendar.edge_ms(window + 1) // 1000 + 2 * DAY_S

    # --- groups of changes on one item

    def plan(
        self,
        key: Key,
        item: Item | None,
        config: Config,
        stamp_ms: int,
        asks: list[Ask],
        ends: list[End] | None = None,
        renewals: list[Renewal] | None = None,
        at_least: dict[str, int] | None = None,
    ) -> Plan:
        """Plan the one write of a group; ``at_least`` are windows that charges use or pass."""
        if item is None:
            return self._first(key, config, stamp_ms, asks)
        write = Write(key, by="group")
        plan = Plan([write])
        parts = {
            name: LimitPlan(self, item, quota, stamp_ms, key.shard, (at_least or {}).get(name, 0))
            for name, quota in config.limits.items()
        }
        costs: dict[str, list[tuple[int, Hold, int]]] = defaultdict(list)
        for end in ends or ():
            for hold, cost in end.costs:
                costs[hold.limit].append((end.call, hold, cost))
        self._admit(plan, parts, asks, costs)
        moved: dict[str, list[Renewal]] = defaultdict(list)
        for renewal in renewals or ():
            moved[renewal.hold.limit].append(renewal)
        asked = any(not ask.shadow for ask in plan.admitted)
        for name, part in parts.items():
            takes = [(ask, ask.amounts[name]) for ask in plan.admitted if ask.amounts.get(name)]
            part.build(write, takes, costs[name], moved[name], asked=asked, plan=plan)
            if costs[name] or moved[name]:
                write.conditions.append(Equals(f"n_{name}", part.quota.number))
        if plan.admitted:
            write.conditions += [Equals(name, item.get(name)) for name in ("cv", "n", "g")]
        elif key.shard:  # the second shard of another split has other holds
            write.conditions.append(Equals("g", item["g"]))
        if not write.effects:
            plan.writes = []
        self._set_ttl(write, parts)
        return plan

    def _admit(
        self,
        plan: Plan,
        parts: dict[str, LimitPlan],
        asks: list[Ask],
        costs: dict[str, list[tuple[int, Hold, int]]],
    ) -> None:
        rooms = {name: part.room(costs[name]) for name, part in parts.items()}
        for ask in self.in_order(asks):
            late = []
            for name, part in parts.items():
                amount = ask.amounts.get(name, 0)
                if rooms[name] < amount and not part.quota.soft:
                    late.append(self.retry_at(part, amount))
            if late and not ask.shadow:
                plan.rejected.append((ask, max(late)))
                continue
            plan.admitted.append(ask)
            for name, amount in ask.amounts.items():
                rooms[name] -= amount

    def retry_at(self, part: LimitPlan, amount: int) -> float:
        """Return when a charge would fit: when holds have expired, or in the next window."""
        end = self.retry_end_ms(part.quota, part.joined, part.stamp_ms)
        if not part.is_older:
            level = part.balance + part.joined * SPAN
            for name, held in sorted(part.seen.items(), key=lambda each: each[0].expires_s):
                if name.expires_s and part.is_in_window(name) and name.expires_s * 1000 < end:
                    level += held
                    if level >= amount:
                        return max(part.stamp_ms, name.expires_s * 1000)
        return math.inf if amount > part.share else end

    def _first(self, key: Key, config: Config, stamp_ms: int, asks: list[Ask]) -> Plan:
        """Plan the first write of a bucket, which sets every limit in force."""
        item = self.full(config, stamp_ms)
        plan = self.plan(key, item, config, stamp_ms, asks)
        if not plan.writes:
            return plan
        write = plan.writes[0]
        write.creates, write.by, write.conditions = True, "first write", []
        for name, quota in config.limits.items():
            part = LimitPlan(self, item, quota, stamp_ms)
            write.conditions += self.first_conditions(part)
            balance = f"t_{name}"
            write.sets.setdefault(balance, item[balance] + write.adds.pop(balance, 0))
        for name in ("cv", "n", *(f"{kind}_{name}" for kind in "na" for name in config.limits)):
            write.conditions.append(Equals(name, item[name]))
            write.sets[name] = item[name]
        return plan

    def first_conditions(self, part: LimitPlan) -> list[Within]:
        """Return the conditions on a bucket that a first write finds all the same."""
        floor = self.turn_floor(part.quota, part.joined, part)
        return [Within(f"t_{part.quota.name}", floor, None)]

    def begun(self, quota: Quota, stamp_ms: int) -> int:
        """Return the window of a limit that no call has named yet."""
        return 0 if quota.calendar is None else quota.calendar.number(stamp_ms)

    def full(self, config: Config, stamp_ms: int) -> Item:
        """Return an item of which nothing was used."""
        item: Item = {"cv": config.version, "n": 1}
        for name, quota in config.limits.items():
            item[f"t_{name}"] = quota.amount - self.begun(quota, stamp_ms) * SPAN
            item[f"n_{name}"], item[f"a_{name}"] = quota.number, quota.amount
        return item

    def _set_ttl(self, write: Write, parts: dict[str, LimitPlan]) -> None:
        ends = [self.ttl_s(part.quota, part.joined) for part in parts.values()]
        ends += [name.expires_s for part in parts.values() for name in part.held]
        write.sets["ttl"] = max(ends)

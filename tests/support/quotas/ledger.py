"""The check of all writes: what calls have really cost, beside what the items say."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.quotas.admin import trigger
from tests.support.quotas.rules import (
    SPAN,
    Ask,
    Config,
    Hold,
    HoldName,
    Marked,
    Quota,
    Rebased,
    Renewed,
    Settled,
    Swept,
    Taken,
    ToppedUp,
    WasReset,
    holds_of,
    window_of,
)
from tests.support.quotas.table import Applied, Item, Key, Table

NO_WINDOW = -1


class Wrong(AssertionError):
    """A rule is broken."""


@dataclass
class Window:
    """What one window of a limit has had: settled costs, top-ups, and raised thresholds."""

    settled: int = 0
    topped: int = 0
    raised: set[int] = field(default_factory=set)


class Ledger:
    """Follows the writes that a table has applied, and raises ``Wrong`` at the first bad one.

    ``exact`` says that no call loses its hold: no crash, no stop, no message lost. Then the held
    amounts are exactly those of the calls in flight. ``strict`` says that in addition no call costs
    more than its estimate, and no limit is forgiven or lowered. Then a window never admits more
    than its amount and top-ups.
    """

    def __init__(
        self, table: Table, *, skew_ms: int, exact: bool = False, strict: bool = False
    ) -> None:
        self.table, self.skew_ms, self.exact, self.strict = table, skew_ms, exact, strict
        self.windows: dict[tuple[str, str, int, int], Window] = defaultdict(Window)
        self.usage: dict[tuple[str, str], int] = defaultdict(int)  # settled costs of all windows
        self.of_children: dict[tuple[str, str], int] = defaultdict(int)  # those of children
        self.places: dict[tuple[str, HoldName], dict[tuple[int, int], Hold]] = defaultdict(dict)
        self.configs: dict[int, Config] = {}  # with the true calendars
        self.events = 0
        self._merged: Item | None = None  # the second shard, while its merge is followed

    def know(self, config: Config) -> None:
        self.configs[config.version] = config

    def quota(self, limit: str, item: Item) -> Quota:
        return self.configs[item["cv"]].limits[limit]

    def window(self, bucket: str, limit: str, item: Item) -> Window:
        """Return what the window of an item's balance has had."""
        era = self.quota(limit, item).era
        return self.windows[bucket, limit, era, window_of(item[f"t_{limit}"])]

    def settled(self, bucket: str, item: Item) -> dict[str, int]:
        """Return the settled costs of the current windows, for a reset that was read now."""
        return {name: self.window(bucket, name, item).settled for name in limits_of(item)}

    # --- writes

    def follow(self, applied: Sequence[Applied], now_ms: int) -> None:
        self._merged = next((each.before for each in applied if each.after is None), None)
        for each in applied:
            self._check_turn(each)
            for effect in each.write.effects:
                self._follow(each, effect, now_ms)
        self.check(applied[0].write.key.bucket, applied[0].write.by)

    def _check_turn(self, applied: Applied) -> None:
        """A window of first use begins when the one before is over."""
        if applied.before is None or applied.after is None:
            return
        for limit in limits_of(applied.before):
            quota, began = self.quota(limit, applied.before), applied.before[f"t_{limit}"]
            begins, last = window_of(applied.after[f"t_{limit}"]), window_of(began)
            changed = any(isinstance(each, Rebased | WasReset) for each in applied.write.effects)
            if changed or quota.calendar is not None or not last:
                continue
            if last < begins < last + quota.length_ms:
                raise Wrong(f"{limit}: a window begins {begins - last} ms after another")

    def _follow(self, applied: Applied, effect: object, now_ms: int) -> None:
        bucket = applied.write.key.bucket
        after = applied.after
        if after is None:
            return
        match effect:
            case Taken(call, hold, hard):
                self._take(bucket, call, hold, after, hard)
            case Settled(call, hold, cost):
                self.usage[bucket, hold.limit] += cost
                self.of_children[bucket, hold.limit] += cost if hold.of_child else 0
                current = window_of(after[f"t_{hold.limit}"])
                if (self.quota(hold.limit, after).era, current) == (hold.era, hold.window):
                    self.window(bucket, hold.limit, after).settled += cost
                self._leave(bucket, call, hold)
            case Renewed(call, hold, moved):
                self._leave(bucket, call, hold)
                self.places[bucket, name_of(moved)][call, moved.shard] = moved
            case Swept():
                self._sweep(applied, effect, after, now_ms)
            case ToppedUp(limit, amount, window):
                era = self.quota(limit, after).era
                self.windows[bucket, limit, era, window].topped += amount
                self._arm(bucket, limit, after)
            case WasReset(limit, settled, brought_back):
                self._reset(bucket, limit, after, settled, brought_back)
            case Rebased(limit, old, new, older):
                self._rebase(applied, limit, old, new, older)
            case Marked(limit, position):
                self.raise_event(bucket, limit, after, position)

    def _take(self, bucket: str, call: int, hold: Hold, after: Item, hard: bool) -> None:
        limit, window = hold.limit, hold.window
        self.places[bucket, name_of(hold)][call, hold.shard] = hold
        balance = after[f"t_{limit}"]
        if (self.quota(limit, after).era, window_of(balance)) != (hold.era, window):
            raise Wrong(f"{limit}: a charge of window {window} in window {window_of(balance)}")
        if hard and balance + window * SPAN < 0:
            raise Wrong(f"{limit}: a charge was admitted, and leaves {balance + window * SPAN}")

    def _leave(self, bucket: str, call: int, hold: Hold) -> None:
        self.places[bucket, name_of(hold)].pop((call, hold.shard), None)

    def _sweep(self, applied: Applied, swept: Swept, after: Item, now_ms: int) -> None:
        """Follow the removal of a hold; a window that is brought back loses all of its holds."""
        limit, name, effects = swept.limit, swept.name, applied.write.effects
        bucket, shard = applied.write.key
        current = after[f"n_{limit}"], window_of(after[f"t_{limit}"])
        is_current = (name.number, name.window) == current and not any(
            isinstance(each, WasReset) and each.limit == limit and each.brought_back
            for each in effects
        )
        if is_current and not 0 < name.expires_s * 1000 <= now_ms + self.skew_ms:
            raise Wrong(f"{limit}: a hold until {name.expires_s} s is swept at {now_ms} ms")
        calls = self.places[bucket, name]
        if self.exact and is_current and calls:
            raise Wrong(f"{limit}: the hold of calls in flight is swept")
        # A renewal of the same write sets the amount under this name again.
        moved = {
            (each.call, each.after.shard)
            for each in effects
            if isinstance(each, Renewed) and name_of(each.after) == name
        }
        of_shard = shard if swept.shard is None else swept.shard
        for place, hold in [*calls.items()]:
            if place not in moved and self._shard_of(bucket, hold) == of_shard:
                del calls[place]

    def _shard_of(self, bucket: str, hold: Hold) -> int:
        """Return the shard that has a hold, or had it before a merge moves it to the first."""
        second = self.table.item(Key(bucket, 1)) or self._merged
        return int(bool(hold.shard) and second is not None and second["g"] == hold.generation)

    def _reset(
        self, bucket: str, limit: str, after: Item, settled: int, brought_back: bool
    ) -> None:
        era, current = self.quota(limit, after).era, window_of(after[f"t_{limit}"])
        if brought_back:  # windows from here on are granted again, by intention
            for place in [*self.windows]:
                if place[:3] == (bucket, limit, era) and place[3] >= current:
                    del self.windows[place]
            return
        window = self.window(bucket, limit, after)
        window.settled -= settled
        window.topped = 0
        self._arm(bucket, limit, after)

    def _rebase(self, applied: Applied, limit: str, old: Quota, new: Quota, older: bool) -> None:
        bucket, before, after = applied.write.key.bucket, applied.before, applied.after
        assert before is not None
        assert after is not None
        kinds = [quota.calendar is None for quota in (old, new)]
        at = window_of(before[f"t_{limit}"])
        if old.era != new.era and kinds[0] == kinds[1] and not older:
            was = self.window(bucket, limit, before)
            window = self.window(bucket, limit, after)
            # Calls in flight keep their estimates.
            window.settled = was.settled + held_in(before, limit, old.number, at)
            window.topped = was.topped
        self._arm(bucket, limit, after)

    def _arm(self, bucket: str, limit: str, after: Item) -> None:
        """Let thresholds be raised again that are above the mark."""
        window, mark = self.window(bucket, limit, after), after.get(f"e|{after[f'n_{limit}']}", 0)
        last = mark % 10 if mark // 10 == window_of(after[f"t_{limit}"]) else 0
        window.raised = {position for position in window.raised if position <= last}

    def raise_event(self, bucket: str, limit: str, item: Item, position: int) -> None:
        """Note that a client tells its user of a threshold."""
        window, quota = self.window(bucket, limit, item), self.quota(limit, item)
        balance = item[f"t_{limit}"]
        level = balance + window_of(balance) * SPAN
        reached = trigger(
            Quota(limit, item[f"a_{limit}"], 0, thresholds=quota.thresholds), position
        )
        if level > reached:
            raise Wrong(f"{limit}: threshold {position} is raised at {level}, above {reached}")
        if position in window.raised:
            raise Wrong(f"{limit}: threshold {position} is raised twice")
        window.raised.add(position)
        self.events += 1

    # --- the state after a write

    def check(self, bucket: str, by: str) -> None:
        items = self.table.shards(bucket)
        if items[0] is None:
            return
        for limit in limits_of(items[0]):
            self._check_level(bucket, limit, items, by)
            self._check_usage(bucket, limit, items, by)
            if self.exact:
                self._check_holds(bucket, limit, items, by)
            if self.strict:
                self._check_admitted(bucket, limit, items[0], by)

    def position(self, bucket: str, limit: str) -> tuple[int, int, int, Window]:
        """Return amount, level, held amounts and the ledger of the current window of a bucket."""
        items = [item for item in self.table.shards(bucket) if item is not None]
        number = items[0][f"n_{limit}"]
        last = max(window_of(item[f"t_{limit}"]) for item in items)
        level = held = 0
        amount = items[0][f"a_{limit}"]
        for shard, item in enumerate(items):
            if window_of(item[f"t_{limit}"]) == last:
                level += item[f"t_{limit}"] + last * SPAN
                held += held_in(item, limit, number, last)
            else:  # it has its full share of the later window
                level += Quota(limit, amount, 0).share(shard, len(items))
        era = self.quota(limit, items[0]).era
        return amount, level, held, self.windows[bucket, limit, era, last]

    def _check_level(self, bucket: str, limit: str, items: Sequence[Item | None], by: str) -> None:
        amount, level, held, window = self.position(bucket, limit)
        expected = amount + window.topped - window.settled
        if level + held != expected:
            raise Wrong(
                f"{limit} after {by}: {level} left and {held} held of {amount}, "
                f"{window.topped} topped up, {window.settled} settled"
            )
        if level > amount + window.topped:
            raise Wrong(f"{limit} after {by}: level {level} of {amount} and {window.topped}")
        for item in items:
            if item is None:
                continue
            topped = item.get(f"v|{item[f'n_{limit}']}")
            at = window_of(item[f"t_{limit}"])
            said = 0 if topped is None or window_of(topped) != at else topped + at * SPAN
            if item is items[0] and items[1] is None and said != window.topped:
                raise Wrong(f"{limit} after {by}: {said} topped up, and really {window.topped}")

    def _check_usage(self, bucket: str, limit: str, items: Sequence[Item | None], by: str) -> None:
        there = [item for item in items if item is not None]
        usage = sum(item.get(f"c_{limit}", 0) for item in there)
        held = sum(sum(holds_of(item, limit).values()) for item in there)
        if usage != self.usage[bucket, limit] + held:
            true = self.usage[bucket, limit]
            raise Wrong(f"{limit} after {by}: usage {usage}, really {true} and {held} held")
        usage = sum(item.get(f"k_{limit}", 0) for item in there)
        held = sum(
            amount
            for item in there
            for name, amount in holds_of(item, limit).items()
            if name.of_child
        )
        true = self.of_children[bucket, limit]
        if usage != true + held:
            raise Wrong(f"{limit} after {by}: {usage} of children, really {true} and {held} held")

    def _check_holds(self, bucket: str, limit: str, items: Sequence[Item | None], by: str) -> None:
        """Check the holds of the last window; those of others count for usage only."""
        there = [item for item in items if item is not None]
        last = max(window_of(item[f"t_{limit}"]) for item in there)
        held: dict[HoldName, int] = defaultdict(int)
        for item in there:
            for name, amount in holds_of(item, limit).items():
                if name.window == last:
                    held[name] += amount
        for name, amount in held.items():
            true = sum(hold.amount for hold in self.places[bucket, name].values())
            if amount != true:
                raise Wrong(f"{limit} after {by}: {amount} held at {name}, really {true}")

    def _check_admitted(self, bucket: str, limit: str, item: Item, by: str) -> None:
        """Check what the calls of a window cost, or may cost, without a look at its balance."""
        window, quota = self.window(bucket, limit, item), self.quota(limit, item)
        current = window_of(item[f"t_{limit}"])
        estimates = sum(
            hold.amount
            for (of, name), calls in self.places.items()
            if (of, name.limit, name.window) == (bucket, limit, current)
            for hold in calls.values()
        )
        if window.settled + estimates > quota.amount + window.topped:
            raise Wrong(f"{limit} after {by}: {window.settled + estimates} of {quota.amount}")

    # --- answers to callers

    def check_rejection(
        self, items: Sequence[Item], config: Config, ask: Ask, stamp_ms: int, retry_at: float
    ) -> None:
        """Check a rejection on the items that it was decided on, and its moment to retry."""
        if fits(items, config, ask, stamp_ms):
            raise Wrong(f"{ask} is rejected, and fits at {stamp_ms}")
        if len(items) > 1:  # it waits for the next window, although holds may expire before
            return
        if math.isinf(retry_at):
            if all(ask.amounts.get(name, 0) <= each.amount for name, each in config.limits.items()):
                raise Wrong(f"{ask} is rejected for ever")
            return
        if not fits(items, config, ask, int(retry_at)):
            raise Wrong(f"{ask} does not fit at {retry_at}, when it is to try again")
        if fits(items, config, ask, int(retry_at) - 1):
            raise Wrong(f"{ask} fits before {retry_at}, when it is to try again")

    # --- items that are forgotten

    def forget(self, key: Key, item: Item, now_ms: int) -> None:
        """Check an item that its time to live removes."""
        for limit in limits_of(item):
            quota, window = self.quota(limit, item), window_of(item[f"t_{limit}"])
            if quota.calendar is None:
                end = window + quota.length_ms
            else:
                end = quota.calendar.edge_ms(window + 1)
            if now_ms < end + self.skew_ms and window:
                raise Wrong(f"{limit}: an item is forgotten {end - now_ms} ms before its edge")
            self.usage[key.bucket, limit] = self.of_children[key.bucket, limit] = 0
        for place in [place for place in self.places if place[0] == key.bucket]:
            del self.places[place]


def limits_of(item: Item) -> list[str]:
    return [name[2:] for name in item if type(name) is str and name.startswith("t_")]


def held_in(item: Item, limit: str, number: int, window: int) -> int:
    """Return the held amounts of one window."""
    return sum(
        amount
        for name, amount in holds_of(item, limit).items()
        if name.number == number and name.window in (window, NO_WINDOW)
    )


def name_of(hold: Hold) -> HoldName:
    return HoldName(hold.limit, hold.number, hold.window, hold.expires_s, hold.of_child)


def fits(items: Sequence[Item], config: Config, ask: Ask, t_ms: int) -> bool:
    """Tell by hand whether the shards of a bucket hold a charge at a moment."""
    for limit, quota in config.limits.items():
        amount, room = ask.amounts.get(limit, 0), 0
        if quota.soft:
            continue
        windows = [window_of(item[f"t_{limit}"]) for item in items]
        if quota.calendar is not None:
            at = max(*windows, quota.calendar.number(t_ms))
        else:
            at = windows[0] if t_ms < windows[0] + quota.length_ms else t_ms
        for shard, item in enumerate(items):
            if windows[shard] < at:
                level = quota.share(shard, len(items))
            else:
                level = item[f"t_{limit}"] + at * SPAN
                for name, held in holds_of(item, limit).items():
                    is_own = (name.number, name.window) == (quota.number, at)
                    if is_own and 0 < name.expires_s * 1000 <= t_ms:
                        level += held
            room += level
            if level < 0 and (not amount or len(items) > 1):  # a debt is to be repaid first
                return False
        if room < amount:
            return False
    return True

"""Top-ups, resets, other limits, marks of thresholds, splits, merges and gathers."""

from __future__ import annotations

from collections import defaultdict

from tests.support.quotas.rules import (
    HALF,
    SPAN,
    Ask,
    Config,
    GroupRules,
    HoldName,
    LimitPlan,
    Marked,
    Moved,
    Plan,
    Quota,
    Rebased,
    Swept,
    ToppedUp,
    WasReset,
    holds_of,
    window_of,
)
from tests.support.quotas.table import Below, Equals, Item, Key, Within, Write


def within(balance: str, window: int) -> Within:
    """Return the condition that a balance is in a window."""
    return Within(balance, -HALF - window * SPAN + 1, HALF - window * SPAN)


def reached(quota: Quota, level: int) -> int:
    """Return the position of the highest threshold that a level has reached, from 1; 0 is none."""
    return sum(
        level <= trigger(quota, position) for position in range(1, len(quota.thresholds) + 1)
    )


def trigger(quota: Quota, position: int) -> int:
    """Return the level at which a threshold is reached."""
    return quota.amount + (-quota.amount * quota.thresholds[position - 1] // 100)


class Rules(GroupRules):
    """All writes of the protocol."""

    # --- top-ups

    def top_up(
        self, key: Key, item: Item | None, config: Config, limit: str, amount: int, stamp_ms: int
    ) -> Write | None:
        """Plan a top-up; None outside of a window of a first-use quota."""
        quota = config.limits[limit]
        write = Write(key, by="top-up")
        if item is None:
            if quota.calendar is None:
                return None
            item = self.full(config, stamp_ms)
            write.creates = True
            write.sets.update(item)
            write.sets["ttl"] = 2**60
            for each in config.limits.values():
                write.conditions += self.first_conditions(LimitPlan(self, item, each, stamp_ms))
            for name in ("cv", "n", *(f"n_{name}" for name in config.limits)):
                write.conditions.append(Equals(name, item[name]))
            write.sets[f"t_{limit}"] += amount
        part = LimitPlan(self, item, quota, stamp_ms, key.shard)
        window = part.joined
        write.effects.append(ToppedUp(limit, amount, window))
        if not write.creates:
            if part.is_older and quota.calendar is None:
                return None
            self.write_top_up(write, part, amount)
            write.conditions += [Equals(name, item.get(name)) for name in ("cv", "n")]
        sum_name, seen = f"v|{quota.number}", item.get(f"v|{quota.number}")
        if seen is not None and window_of(seen) == window:
            write.conditions.append(within(sum_name, window))
            write.add(sum_name, amount)
        else:
            write.conditions.append(Equals(sum_name, seen))
            write.sets[sum_name] = amount - window * SPAN
        level = part.share if part.is_older else part.balance + window * SPAN
        self.mark_again(write, quota, window, level + amount)
        return write

    def write_top_up(self, write: Write, part: LimitPlan, amount: int) -> None:
        """Add to the balance of the window, or turn to the window."""
        balance = f"t_{part.quota.name}"
        if not part.is_older:
            write.conditions.append(within(balance, part.joined))
            write.add(balance, amount)
            return
        floor = self.turn_floor(part.quota, part.joined, part)
        write.conditions.append(Within(balance, floor, None))
        write.sets[balance] = part.share + amount - part.joined * SPAN
        self.remove_holds(write, part)

    def remove_holds(self, write: Write, part: LimitPlan) -> None:
        """Remove all holds of a limit, as they were seen."""
        for name, seen in part.seen.items():
            write.conditions.append(Equals(name, seen))
            write.removes.add(name)
            write.effects.append(Swept(part.quota.name, name, part.stamp_ms))
        if part.seen:
            write.add(f"c_{part.quota.name}", -sum(part.seen.values()))
        of_children = sum(self.swept_of_children(*held) for held in part.seen.items())
        if of_children:
            write.add(f"k_{part.quota.name}", -of_children)

    def mark_again(self, write: Write, quota: Quota, window: int, level: int) -> None:
        """Set the mark to the highest threshold that is still reached."""
        position = reached(quota, level)
        if position:
            write.sets[f"e|{quota.number}"] = window * 10 + position
        else:
            write.removes.add(f"e|{quota.number}")

    # --- resets

    def reset(
        self, key: Key, item: Item, config: Config, settled: dict[str, int], stamp_ms: int
    ) -> Write | None:
        """Plan a reset of all limits; None if no window has begun.

        ``settled`` is what the ledger says of the item that was read.
        """
        write = Write(key, by="reset")
        for name, quota in config.limits.items():
            part = LimitPlan(self, item, quota, stamp_ms)
            seen = window_of(part.balance)
            ahead = self.is_far_ahead(quota, seen, stamp_ms)
            if ahead:
                self.bring_back(write, part)
            elif part.is_older:
                continue
            else:
                self.forgive(write, part)
            write.effects.append(WasReset(name, settled[name], ahead))
            mark, topped = f"e|{quota.number}", f"v|{quota.number}"
            write.conditions.append(Equals(topped, item.get(topped)))
            write.removes |= {mark, topped}
        if not write.effects:
            return None
        write.conditions += [Equals(name, item.get(name)) for name in ("cv", "n", "g")]
        self.count_generation(write)
        return write

    def count_generation(self, write: Write) -> None:
        """Let another reset that was read before fail: it would forgive the same costs again."""
        write.add("g", 1)

    def is_far_ahead(self, quota: Quota, window: int, stamp_ms: int) -> bool:
        if quota.calendar is None:
            return window > stamp_ms + quota.length_ms
        return window > quota.calendar.number(stamp_ms) + 1

    def bring_back(self, write: Write, part: LimitPlan) -> None:
        """Set a balance that a wrong clock has moved ahead to the window of the stamp."""
        balance = f"t_{part.quota.name}"
        write.conditions.append(Equals(balance, part.balance))
        write.sets[balance] = part.share - self.begun(part.quota, part.stamp_ms) * SPAN
        self.remove_holds(write, part)

    def forgive(self, write: Write, part: LimitPlan) -> None:
        """Add the settled costs of the window to its level."""
        balance, window = f"t_{part.quota.name}", part.joined
        held = sum(amount for name, amount in part.seen.items() if part.is_in_window(name))
        write.conditions.append(within(balance, window))
        write.add(balance, part.share - (part.balance + window * SPAN) - held)

    # --- other limits

    def rebase(self, key: Key, item: Item, old: Config, new: Config, stamp_ms: int) -> Write:
        """Plan the change to other limits: what was used stays used."""
        write = Write(key, by="rebase", sets={"cv": new.version})
        write.conditions += [Equals(name, item.get(name)) for name in ("cv", "n")]
        for name, after in new.limits.items():
            before = old.limits[name]
            if after == before:
                continue
            part = LimitPlan(self, item, before, stamp_ms)
            write.effects.append(Rebased(name, before, after, part.is_older))
            write.sets[f"a_{name}"], write.sets[f"n_{name}"] = after.amount, after.number
            self.rebase_limit(write, part, after)
        return write

    def rebase_limit(self, write: Write, part: LimitPlan, after: Quota) -> None:
        before, balance, stamp_ms = part.quota, f"t_{part.quota.name}", part.stamp_ms
        is_same_kind = (before.calendar is None) == (after.calendar is None)
        window = self.begun(after, stamp_ms)
        if before.era == after.era:
            window = part.joined
        if part.is_older or not is_same_kind:
            floor = self.turn_floor(before, part.joined, part) if part.is_older else None
            write.conditions.append(Within(balance, floor, None))
            write.sets[balance] = after.amount - window * SPAN
            if before.era != after.era:
                write.removes |= {f"e|{before.number}", f"v|{before.number}"}
            return
        if before.calendar is None:  # its window began at the same moment
            window = part.joined
        write.conditions.append(within(balance, part.joined))
        self.shift(write, part, after, window)
        level = part.balance + part.joined * SPAN + after.amount - before.amount
        if before.era == after.era:
            self.mark_again(write, after, window, level)
            return
        topped = part.item.get(f"v|{before.number}")
        write.conditions.append(Equals(f"v|{before.number}", topped))
        write.removes |= {f"e|{before.number}", f"v|{before.number}"}
        if topped is not None and window_of(topped) == part.joined:
            write.removes.discard(f"v|{after.number}")
            write.sets[f"v|{after.number}"] = topped + (part.joined - window) * SPAN

    def shift(self, write: Write, part: LimitPlan, after: Quota, window: int) -> None:
        """Move a balance to another amount, and to the numbers of another calendar."""
        by = after.amount - part.quota.amount + (part.joined - window) * SPAN
        write.add(f"t_{part.quota.name}", by)

    # --- thresholds

    def mark(self, key: Key, item: Item, quota: Quota) -> Write | None:
        """Plan the mark of the lowest threshold that is reached and not marked."""
        window = window_of(item[f"t_{quota.name}"])
        level, name = item[f"t_{quota.name}"] + window * SPAN, f"e|{quota.number}"
        marked = item.get(name, 0)
        waiting = [
            position
            for position in range(1, reached(quota, level) + 1)
            if marked < window * 10 + position
        ]
        if not waiting:
            return None
        value = window * 10 + waiting[0]
        return Write(
            key,
            by="mark",
            conditions=[
                *self.mark_conditions(quota, window, waiting[0]),
                Below(name, value),
                Equals("cv", item["cv"]),
                Equals("n", 1),
            ],
            sets={name: value},
            effects=[Marked(quota.name, waiting[0])],
        )

    def mark_conditions(self, quota: Quota, window: int, position: int) -> list[Within]:
        """Return the condition that a threshold is reached in its window."""
        high = trigger(quota, position) - window * SPAN
        return [Within(f"t_{quota.name}", -HALF - window * SPAN + 1, high)]

    # --- shards

    def split(self, bucket: str, item: Item, config: Config) -> list[Write]:
        """Plan a split: the level is halved, and holds stay with the old shard."""
        generation = item.get("g", 0) + 1
        first = Write(Key(bucket, 0), by="split", effects=[Moved()])
        first.conditions = [*self.unchanged(item)]
        first.sets = {"n": 2, "g": generation}
        second = Write(Key(bucket, 1), by="split", creates=True, conditions=[Equals("n", None)])
        second.sets = {"n": 2, "g": generation, "cv": item["cv"], "ttl": item["ttl"]}
        for name in config.limits:
            balance = f"t_{name}"
            window = window_of(item[balance])
            half = (item[balance] + window * SPAN) // 2
            first.add(balance, -half)
            second.sets[balance] = half - window * SPAN
            for each in (f"n_{name}", f"a_{name}"):
                second.sets[each] = item[each]
        return [first, second]

    def merge(self, bucket: str, items: list[Item], config: Config) -> list[Write]:
        """Plan a merge: levels and holds of the later window, and full shares of the other."""
        first = Write(Key(bucket, 0), by="merge", effects=[Moved()])
        first.conditions = [*self.unchanged(items[0])]
        first.sets = {"n": 1, "g": items[0]["g"] + 1}
        second = Write(Key(bucket, 1), by="merge", deletes=True)
        second.conditions = [*self.unchanged(items[1])]
        for name, quota in config.limits.items():
            balance = f"t_{name}"
            windows = [window_of(item[balance]) for item in items]
            last, level, usage = max(windows), 0, items[1].get(f"c_{name}", 0)
            of_children = items[1].get(f"k_{name}", 0)
            held: dict[HoldName, int] = defaultdict(int)
            for shard, item in enumerate(items):
                holds = holds_of(item, name)
                if windows[shard] == last:
                    level += item[balance] + last * SPAN
                    for each, amount in holds.items():
                        held[each] += amount
                    continue
                level += quota.share(shard, 2)
                usage -= sum(holds.values())
                of_children -= sum(self.swept_of_children(*held) for held in holds.items())
                first.effects += [Swept(name, each, 0, shard) for each in holds]
            first.sets[balance] = level - last * SPAN
            first.sets.update(held)
            first.removes |= set(holds_of(items[0], name)) - held.keys()
            if usage:
                first.add(f"c_{name}", usage)
            if of_children:
                first.add(f"k_{name}", of_children)
        return [first, second]

    def unchanged(self, item: Item) -> list[Equals]:
        return [Equals("wc", item["wc"])]

    def gather(
        self, bucket: str, items: list[Item], config: Config, ask: Ask, stamp_ms: int
    ) -> Plan:
        """Plan a charge that takes from both shards, in the latest window of each limit."""
        shares: list[dict[str, int]] = [{}, {}]
        windows, late = {}, []
        for name, quota in config.limits.items():
            found = [LimitPlan(self, items[each], quota, stamp_ms, each) for each in (0, 1)]
            windows[name] = max(part.joined for part in found)
            found = [
                LimitPlan(self, items[each], quota, stamp_ms, each, windows[name])
                for each in (0, 1)
            ]
            amount = ask.amounts.get(name, 0)
            rooms = [part.room([]) for part in found]
            if quota.soft or ask.shadow:
                shares[0][name] = amount
                continue
            if sum(rooms) < amount or (min(rooms) < 0 and not amount):
                late.append(self.retry_over(found, amount))
                continue
            first = max(0, min(amount, rooms[0]))
            shares[0][name], shares[1][name] = first, amount - first
        if late:
            return Plan([], rejected=[(ask, max(late))])
        plan = Plan([])
        for shard in (0, 1):
            part = Ask(ask.call, shares[shard], ask.shadow, ask.of_child)
            key = Key(bucket, shard)
            own = self.plan(key, items[shard], config, stamp_ms, [part], at_least=windows)
            if not own.admitted:
                return Plan([], rejected=[(ask, own.rejected[0][1])])
            plan.writes += own.writes
            for call, holds in own.holds.items():
                plan.holds.setdefault(call, []).extend(holds)
        plan.admitted = [ask]
        return plan

    def retry_over(self, parts: list[LimitPlan], amount: int) -> float:
        """Return when a charge may fit into both shards: with the next window at the latest."""
        quota = parts[0].quota
        if amount > quota.amount:
            return float("inf")
        return self.end_ms(quota, parts[0].joined)

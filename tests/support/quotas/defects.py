"""Rules, clients and worlds that lack one guard: the histories must find each of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from tests.support.quotas.admin import Rules, reached, within
from tests.support.quotas.client import Call, Client
from tests.support.quotas.ledger import NO_WINDOW
from tests.support.quotas.rules import (
    SPAN,
    Ask,
    End,
    Hold,
    HoldName,
    LimitPlan,
    Quota,
    Settled,
    window_of,
)
from tests.support.quotas.table import Below, Equals, Item, Key, Within, Write
from tests.support.quotas.world import World

FAR_BELOW = -(10**40)  # any balance is higher


# --- windows


class CreditsLateRefunds(Rules):
    """A settlement changes the balance of the window that it finds."""

    def settle(self, limit: LimitPlan, call: int, hold: Hold, cost: int, window: int) -> None:
        used = limit.usage
        super().settle(limit, call, hold, cost, window)
        if hold.number == limit.quota.number and hold.window != window:
            limit.debts += max(limit.usage - used, 0)
            limit.credits += max(used - limit.usage, 0)


class DropsRefundsByItsClock(Rules):
    """The client decides by its own clock that the window of a call is over."""

    def settle(self, limit: LimitPlan, call: int, hold: Hold, cost: int, window: int) -> None:
        is_over = limit.stamp_ms >= self.end_ms(limit.quota, hold.window)
        super().settle(limit, call, hold, cost, NO_WINDOW if is_over else window)


class JoinsNoLaterWindow(Rules):
    """A client stays in the window of its own clock."""

    def joined(self, quota: Quota, balance: int, stamp_ms: int) -> int:
        if quota.calendar is None:
            return super().joined(quota, balance, stamp_ms)
        return quota.calendar.number(stamp_ms)


class MovesBack(Rules):
    """A balance that is far ahead is moved to the window of the client's clock."""

    def joined(self, quota: Quota, balance: int, stamp_ms: int) -> int:
        if quota.calendar is not None:
            number = quota.calendar.number(stamp_ms)
            if window_of(balance) > number + 1:
                return number
        return super().joined(quota, balance, stamp_ms)

    def is_older(self, seen: int, window: int) -> bool:
        return seen != window

    def turn_floor(self, quota: Quota, window: int, limit: LimitPlan) -> int:
        if window_of(limit.balance) > window:
            return FAR_BELOW
        return super().turn_floor(quota, window, limit)


class TurnsTwice(Rules):
    """A turn does not look whether another client has begun the window."""

    def turn_floor(self, quota: Quota, window: int, limit: LimitPlan) -> int:
        return FAR_BELOW


class TurnsFirstUseByNumber(Rules):
    """A window of first use counts as over as soon as another moment is its number."""

    def turn_floor(self, quota: Quota, window: int, limit: LimitPlan) -> int:
        return -SPAN // 2 - (window - 1) * SPAN + 1


class ChargesEarlierWindows(Rules):
    """A charge does not look whether its window has begun."""

    def most(self, base: int) -> int | None:
        return None


class AdmitsMore(Rules):
    """A charge does not look at the level that is stored."""

    def least(self, limit: LimitPlan) -> int:
        return -SPAN // 2 + 1


class OverwritesBuckets(Rules):
    """The first write of a bucket does not look whether there is one."""

    def first_conditions(self, part: LimitPlan) -> list[Within]:
        return []


class UnboundSettlements(Rules):
    """A settlement does not look at the window of the balance."""

    def bounds_settlements(self) -> bool:
        return False


# --- holds


class HoldsWithoutWindow(Rules):
    """Held amounts are counted by their expiry alone."""

    def hold_name(self, hold: Hold) -> HoldName:
        return HoldName(hold.limit, hold.number, NO_WINDOW, hold.expires_s, hold.of_child)

    def counts_for(self, named: int, window: int) -> bool:
        return True


class SettlesWithoutHold(Rules):
    """A settlement does not look whether its hold was returned."""

    def is_held(self, held: int, hold: Hold) -> bool:
        return True

    def requires_hold(self) -> bool:
        return False


class RenewsWithoutHold(Rules):
    """A renewal does not look whether its hold was returned."""

    def may_renew(self, held: int, hold: Hold) -> bool:
        return True

    def requires_hold(self) -> bool:
        return False


class SweepsTwice(Rules):
    """A sweep does not look whether the holds are as they were seen."""

    def sweeps_as_seen(self) -> bool:
        return False


class SweepsUnnamed(Rules):
    """Holds of limits are swept that the write does not charge, also before it turns them."""

    def sweeps_unnamed(self, limit: LimitPlan) -> bool:
        return True


class SweepsForNoChild(Rules):
    """What a dead call of a child held stays usage through children."""

    def swept_of_children(self, name: HoldName, amount: int) -> int:
        return 0


class NamesNoChild(Rules):
    """What calls of children hold is not held apart."""

    def hold_name(self, hold: Hold) -> HoldName:
        return super().hold_name(hold)._replace(of_child=False)


class SubtractsSweptHolds(Rules):
    """A late settlement subtracts its estimate from the usage, although the hold was swept."""

    def settle(self, limit: LimitPlan, call: int, hold: Hold, cost: int, window: int) -> None:
        is_late = not limit.is_own(hold, window)
        is_gone = limit.held.get(self.hold_name(hold), 0) < hold.amount
        super().settle(limit, call, hold, cost, window)
        if is_late and is_gone:
            limit.usage -= hold.amount


class HoldsNothingWithoutTtl(Rules):
    """A charge on a limit without a TTL of holds is not held."""

    def has_hold(self, quota: Quota) -> bool:
        return quota.hold_ttl is not None

    def settle(self, limit: LimitPlan, call: int, hold: Hold, cost: int, window: int) -> None:
        if hold.expires_s:
            super().settle(limit, call, hold, cost, window)
            return
        limit.usage += cost - hold.amount
        if limit.is_own(hold, window):
            limit.debts += max(cost - hold.amount, 0)
            limit.credits += max(hold.amount - cost, 0)
        limit.effects.append(Settled(call, hold, cost))


class ForgetsRenewals(Client):
    """The end of a call names the hold that it had when the call was admitted."""

    def begin(self, call: Call) -> None:
        self.first_holds: dict[tuple[int, str], list[Hold]] = getattr(self, "first_holds", {})
        super().begin(call)

    def end_of(self, bucket: str, call: Call) -> End:
        end = super().end_of(bucket, call)
        first = self.first_holds.get((call.number, bucket), [])
        return End(
            end.call, [(each, cost) for each, (_, cost) in zip(first, end.costs, strict=False)]
        )

    def _renewed(self, bucket, plan, renewal) -> None:
        holds = self.world.calls[renewal.call].holds[bucket]
        self.first_holds.setdefault((renewal.call, bucket), holds)
        super()._renewed(bucket, plan, renewal)


# --- groups, retries, expiry


class ChargesBeforeShadows(Rules):
    """Charges of a group are admitted before the debts of its shadow calls."""

    def in_order(self, asks: list[Ask]) -> list[Ask]:
        return sorted(asks, key=lambda ask: ask.shadow)

    def least(self, limit: LimitPlan) -> int:
        return limit.charges - limit.credits


class RetriesAtItsOwnEdge(Rules):
    """Rejected callers are told the next edge of the client's own clock."""

    def retry_end_ms(self, quota: Quota, window: int, stamp_ms: int) -> int:
        if quota.calendar is None:
            return self.end_ms(quota, window)
        return self.end_ms(quota, quota.calendar.number(stamp_ms))


class ForgetsAtTheEdge(Rules):
    """An item may be deleted as soon as its windows are over."""

    def ttl_s(self, quota: Quota, window: int) -> int:
        return self.end_ms(quota, window) // 1000


# --- administration


class TopsUpByAdding(Rules):
    """A top-up adds to the balance, of whatever window it is."""

    def write_top_up(self, write: Write, part: LimitPlan, amount: int) -> None:
        write.conditions.append(within(f"t_{part.quota.name}", window_of(part.balance)))
        write.add(f"t_{part.quota.name}", amount)


class ResetsBySetting(Rules):
    """A reset sets the level to the amount, less what was held when it was read."""

    def forgive(self, write: Write, part: LimitPlan) -> None:
        balance, window = f"t_{part.quota.name}", part.joined
        held = sum(amount for name, amount in part.seen.items() if part.is_in_window(name))
        write.conditions.append(within(balance, window))
        write.sets[balance] = part.share - held - window * SPAN


class ResetsOverTopUps(Rules):
    """A reset does not look whether the top-ups are as they were read."""

    def reset(self, *arguments: object) -> Write | None:
        write = super().reset(*arguments)
        if write is not None:
            write.conditions = [
                each for each in write.conditions if not str(each.name).startswith("v|")
            ]
        return write


class ResetsTwice(Rules):
    """A reset leaves the generation, so another one forgives the same costs again."""

    def count_generation(self, write: Write) -> None:
        pass


class BringsBackMovedHolds(Rules):
    """A reset of a balance far ahead looks at the balance, and not at the holds."""

    def remove_holds(self, write: Write, part: LimitPlan) -> None:
        super().remove_holds(write, part)
        if write.by == "reset":
            write.conditions = [
                each for each in write.conditions if not isinstance(each.name, HoldName)
            ]


class SetsOtherAmounts(Rules):
    """Another amount sets the balance that was read."""

    def shift(self, write: Write, part: LimitPlan, after: Quota, window: int) -> None:
        by = after.amount - part.quota.amount + (part.joined - window) * SPAN
        write.sets[f"t_{part.quota.name}"] = part.balance + by


class KeepsNumbers(World):
    """A limit keeps its number with another calendar."""

    def next_number(self, name: str) -> int:
        if not self.configs:
            return super().next_number(name)
        return self.configs[1].limits[name].number


class ReusesNumbers(World):
    """A limit with another calendar gets the lowest number that is free."""

    def next_number(self, name: str) -> int:
        if not self.configs:
            return super().next_number(name)
        taken = {quota.number for quota in self.configs[max(self.configs)].limits.values()}
        return next(number for number in count(1) if number not in taken)


class ForgetsTopUps(Rules):
    """The sum of top-ups does not move along to another calendar."""

    def rebase(self, *arguments: object) -> Write:
        write = super().rebase(*arguments)
        for name in [name for name in write.sets if str(name).startswith("v|")]:
            del write.sets[name]
        return write


# --- thresholds


class RaisesWhatItSees(Client):
    """The client that sees a threshold crossed raises the event."""

    def watch(self, bucket: str) -> None:
        item = self.images.get(Key(bucket, 0))
        if item is None or item["n"] == 2 or item["cv"] != self.config.version:
            return
        self.reached = getattr(self, "reached", {})
        for quota in self.config.limits.values():
            balance = item[f"t_{quota.name}"]
            level, window = balance + window_of(balance) * SPAN, window_of(balance)
            place = (bucket, quota.name, quota.era, window)
            position = reached(quota, level)
            for each in range(self.reached.get(place, 0) + 1, position + 1):
                self.world.ledger.raise_event(bucket, quota.name, item, each)
            self.reached[place] = position


class MarksOnOldImages(Rules):
    """A mark does not look whether its threshold is still reached."""

    def mark_conditions(self, quota: Quota, window: int, position: int) -> list[Within]:
        return [within(f"t_{quota.name}", window)]


class MarksTwice(Rules):
    """A mark does not look whether another client has marked the threshold before."""

    def mark(self, key: Key, item: Item, quota: Quota) -> Write | None:
        write = super().mark(key, item, quota)
        if write is not None:
            write.conditions = [each for each in write.conditions if not isinstance(each, Below)]
        return write


class KeepsMarks(Rules):
    """A top-up or another amount leaves the mark where it is."""

    def mark_again(self, write: Write, quota: Quota, window: int, level: int) -> None:
        pass


# --- shards


class MergesOverWrites(Rules):
    """A merge does not look whether the shards are as they were seen."""

    def unchanged(self, item: dict) -> list[Equals]:
        return []


class SplitsByAdding(Rules):
    """Each shard has the whole amount in the next window."""

    def plan(self, key, item, config, *arguments, **named):
        if item is not None and item["n"] == 2:
            limits = {
                name: replace(quota, amount=2 * quota.amount)
                for name, quota in config.limits.items()
            }
            config = replace(config, limits=limits)
        return super().plan(key, item, config, *arguments, **named)

"""Client processes: calls that charge, hold, renew and settle, in groups of one write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.schedule import Process
from tests.support.quotas.rules import Ask, End, Hold, Plan, Renewal
from tests.support.quotas.table import Item, Key, Write

if TYPE_CHECKING:
    from tests.support.quotas.world import World

TRIES = 6
TIMEOUT_MS = 2000


@dataclass
class Call:
    """One call: its amounts for each bucket, its true cost, and its holds."""

    number: int
    amounts: dict[str, dict[str, int]]
    shadow: bool
    costs: dict[str, dict[str, int]]
    lasts_ms: int
    holds: dict[str, list[Hold]] = field(default_factory=dict)
    is_over: bool = False

    @property
    def of_child(self) -> bool:
        """Whether a child of the entities makes the call."""
        return self.number % 3 == 0


@dataclass
class Group:
    """Changes of one bucket that wait for the next write."""

    asks: list[tuple[Ask, Callable[[str], None]]] = field(default_factory=list)
    over: list[Call] = field(default_factory=list)  # to be settled
    ends: list[End] = field(default_factory=list)
    renewals: list[Renewal] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.asks or self.over or self.ends or self.renewals)


class Client(Process):
    """One process. ``skew_ms`` is how far its clock is ahead."""

    def __init__(self, world: World, number: int, skew_ms: int, shift_ms: int = 0) -> None:
        super().__init__(world)
        self.world, self.number, self.skew_ms = world, number, skew_ms
        self.rules, self.random = world.rules, world.random
        self.shift_ms = shift_ms  # of its time zone data
        self.images: dict[Key, Item | None] = {}
        self.seen_ms: dict[str, int] = {}
        self.groups: dict[str, Group] = {bucket: Group() for bucket in world.buckets}
        self.busy: set[str] = set()
        self.calls: dict[int, Call] = {}
        self.config = world.config_for(self)

    def clock(self) -> int:
        return self.world.now_ms + self.skew_ms

    # --- calls

    def begin(self, call: Call) -> None:
        """Charge the buckets of a call one after the other, in the order of their keys."""
        self._charge(call, sorted(call.amounts))

    def _charge(self, call: Call, buckets: list[str]) -> None:
        if not buckets:
            self.calls[call.number] = call
            self.world.admitted += 1
            self.after(call.lasts_ms, lambda: self.settle(call))
            return
        bucket, *others = buckets
        ask = Ask(call.number, call.amounts[bucket], call.shadow, call.of_child)

        def answer(outcome: str) -> None:
            if outcome == "admitted":
                self._charge(call, others)
            else:
                self.refund(call)

        self.groups[bucket].asks.append((ask, answer))
        call.holds.setdefault(bucket, [])
        self.flush(bucket)

    def refund(self, call: Call) -> None:
        """Give back what was charged before another bucket has refused."""
        call.costs = {}
        self.settle(call)

    def settle(self, call: Call) -> None:
        call.is_over = True
        for bucket, holds in call.holds.items():
            if holds:
                self.groups[bucket].over.append(call)
                self.flush(bucket)

    def end_of(self, bucket: str, call: Call) -> End:
        """Return the settlement of a call: the cost of each hold."""
        holds, left = call.holds[bucket], dict(call.costs.get(bucket, {}))
        costs: list[tuple[Hold, int]] = []
        for place, hold in enumerate(holds):
            is_last = all(other.limit != hold.limit for other in holds[place + 1 :])
            cost = left.get(hold.limit, 0)
            cost = cost if is_last else min(cost, hold.amount)
            left[hold.limit] = left.get(hold.limit, 0) - cost
            costs.append((hold, cost))
        return End(call.number, costs)

    def renew(self) -> None:
        """Renew the holds of all calls of the process together."""
        self.after(self.renewal_ms(), self.renew)
        for call in self.calls.values():
            if call.is_over:
                continue
            for bucket, holds in call.holds.items():
                found = [hold for hold in holds if self.is_to_renew(hold)]
                self.groups[bucket].renewals += [Renewal(call.number, hold) for hold in found]
        for bucket in self.groups:
            self.flush(bucket)

    def renewal_ms(self) -> int:
        ttls = [quota.hold_ttl for quota in self.config.limits.values() if quota.hold_ttl]
        return min(ttls, default=20) // 2 * 1000

    def is_to_renew(self, hold: Hold) -> bool:
        """Tell whether a hold may expire, and its window goes on."""
        quota = self.config.limits[hold.limit]
        if not hold.expires_s or hold.era != quota.era:
            return False
        return self.clock() < self.rules.end_ms(quota, hold.window)

    # --- groups

    def flush(self, bucket: str) -> None:
        """Send what waits for a bucket, unless a write is under way."""
        if bucket in self.busy or not self.groups[bucket]:
            return
        group, self.groups[bucket] = self.groups[bucket], Group()
        self.resolve(bucket, group)
        if not group:
            return
        self.busy.add(bucket)
        if Key(bucket, 0) in self.images:
            self.send(bucket, group, self.clock(), TRIES)
        else:
            self.read(bucket, lambda: self.send(bucket, group, self.clock(), TRIES))

    def resolve(self, bucket: str, group: Group) -> None:
        """Name the holds of the changes: no other write that names them is under way."""
        group.ends += [self.end_of(bucket, call) for call in group.over]
        group.over = []
        group.renewals = [
            renewal
            for renewal in group.renewals
            if not self.calls[renewal.call].is_over
            and renewal.hold in self.calls[renewal.call].holds[bucket]
        ]

    def read(self, bucket: str, done: Callable[[], None]) -> None:
        def arrive() -> None:
            seen, at = self.world.table.shards(bucket), self.world.now_ms
            self.after(self.world.latency(), lambda: answer(seen, at))

        def answer(seen: list[Item | None], at_ms: int) -> None:
            self.see(bucket, seen, at_ms)
            done()

        self.world.after(self.world.latency(), arrive)

    def see(self, bucket: str, seen: list[Item | None], at_ms: int) -> None:
        """Keep the items of an answer, unless a later state was seen already."""
        if at_ms >= self.seen_ms.get(bucket, 0):
            self.seen_ms[bucket] = at_ms
            for shard, item in enumerate(seen):
                self.images[Key(bucket, shard)] = item

    def shard_of(self, bucket: str, hold: Hold) -> int:
        """Return the shard that has a hold: the first, unless the second of that split is there."""
        second = self.images.get(Key(bucket, 1))
        is_there = second is not None and second["g"] == hold.generation
        return 1 if hold.shard and is_there else 0

    def send(self, bucket: str, group: Group, stamp_ms: int, tries: int) -> None:
        """Plan on what was seen, and write; a refusal brings the item to plan on again."""
        item = self.images.get(Key(bucket, 0))
        if item is not None and item["cv"] != self.config.version:
            self.adapt(bucket, item, lambda: self.send(bucket, group, stamp_ms, tries - 1))
            return
        if tries <= 0:
            self.give_up(bucket, group)
            return
        shard, group, rest = self.part_of(bucket, group)
        if rest:
            waiting = self.groups[bucket]
            waiting.asks[:0], waiting.ends[:0] = rest.asks, rest.ends
            waiting.renewals[:0] = rest.renewals
        image = self.images.get(Key(bucket, shard))
        if image is None and shard == 0 and not group.asks:
            self.give_up(bucket, group)  # the bucket is forgotten
            return
        asks = [ask for ask, _ in group.asks]
        key = Key(bucket, shard)
        plan = self.rules.plan(key, image, self.config, stamp_ms, asks, group.ends, group.renewals)
        if item is not None and item["n"] == 2 and plan.rejected:
            plan = self.gather(bucket, group, asks, stamp_ms) or plan
        if self.is_doubtful(plan) and tries == TRIES:  # decide on what is there now
            self.read(bucket, lambda: self.send(bucket, group, stamp_ms, tries - 1))
            return
        self.decide(bucket, group, plan, stamp_ms)
        if not plan.writes:
            self.finish(bucket, group, plan)
            return
        self.write(
            plan.writes, lambda applied: self.learn(bucket, group, plan, applied, stamp_ms, tries)
        )

    def is_doubtful(self, plan: Plan) -> bool:
        """Tell whether an outdated image may be the reason for a rejection or a lost hold."""
        return bool(plan.rejected) or None in plan.renewed.values()

    def part_of(self, bucket: str, group: Group) -> tuple[int, Group, Group]:
        """Return the shard of the next write, the changes for it, and those for the other."""
        first = self.images.get(Key(bucket, 0))
        if first is None or first["n"] == 1 or self.images.get(Key(bucket, 1)) is None:
            return 0, group, Group()
        shard = self.random.randint(0, 1) if group.asks else self._busiest(bucket, group)
        own, rest = Group(), Group()
        if len(group.asks) > 1:  # one by one, as any of them may have to be gathered
            rest.asks = group.asks[1:]
        own.asks = group.asks[:1]
        for end in group.ends:
            here = [each for each in end.costs if self.shard_of(bucket, each[0]) == shard]
            there = [each for each in end.costs if self.shard_of(bucket, each[0]) != shard]
            if here:
                own.ends.append(End(end.call, here))
            if there:
                rest.ends.append(End(end.call, there))
        for renewal in group.renewals:
            is_here = self.shard_of(bucket, renewal.hold) == shard
            (own if is_here else rest).renewals.append(renewal)
        return shard, own, rest

    def _busiest(self, bucket: str, group: Group) -> int:
        holds = [hold for end in group.ends for hold, _ in end.costs]
        holds += [renewal.hold for renewal in group.renewals]
        return self.shard_of(bucket, holds[0])

    def gather(self, bucket: str, group: Group, asks: list[Ask], stamp_ms: int) -> Plan | None:
        """Take a charge from both shards that neither of them holds; others wait meanwhile."""
        if len(asks) != 1:
            return None
        self.groups[bucket].ends[:0], group.ends = group.ends, []
        self.groups[bucket].renewals[:0], group.renewals = group.renewals, []
        items = [self.images[Key(bucket, shard)] for shard in (0, 1)]
        return self.rules.gather(bucket, items, self.config, asks[0], stamp_ms)

    def decide(self, bucket: str, group: Group, plan: Plan, stamp_ms: int) -> None:
        """Tell the callers that are rejected."""
        items = [self.images.get(Key(bucket, shard)) for shard in (0, 1)]
        if items[0] is None:
            items[0] = self.rules.full(self.config, stamp_ms)
        there = [item for item in items[: items[0]["n"]] if item is not None]
        answers = {ask.call: answer for ask, answer in group.asks}
        for ask, retry_at in plan.rejected:
            self.world.rejected += 1
            if len(group.asks) == 1 and not group.ends and len(there) == there[0]["n"]:
                check = self.world.ledger.check_rejection
                check(there, self.config, ask, stamp_ms, retry_at)
            answers[ask.call]("rejected")
        group.asks = [
            (ask, answer)
            for ask, answer in group.asks
            if ask.call not in {rejected.call for rejected, _ in plan.rejected}
        ]

    def write(self, writes: list[Write], done: Callable[[bool | None], None]) -> None:
        """Send writes; ``done`` hears whether they were applied, or None if nobody knows."""

        bucket = writes[0].key.bucket
        fate = self.world.fate()

        def arrive() -> None:
            applied = self.world.apply(writes)
            seen, at = self.world.table.shards(bucket), self.world.now_ms
            if fate == "delivered":
                self.after(self.world.latency(), lambda: answer(applied, seen, at))

        def answer(applied: bool, seen: list[Item | None], at_ms: int) -> None:
            self.see(bucket, seen, at_ms)
            done(applied)

        if fate != "request lost":
            self.world.after(self.world.latency() + self.world.lateness_ms(fate), arrive)
        if fate != "delivered":
            self.after(TIMEOUT_MS, lambda: done(None))

    def learn(
        self,
        bucket: str,
        group: Group,
        plan: Plan,
        applied: bool | None,
        stamp_ms: int,
        tries: int,
    ) -> None:
        if applied:
            self.finish(bucket, group, plan)
        elif applied is None:
            self.images.pop(Key(bucket, 0), None)
            for renewal in group.renewals:  # counts as done: `y >= c` decides later
                self._renewed(bucket, plan, renewal)
            for _, answer in group.asks:
                answer("unknown")
            self.busy.discard(bucket)
            self.flush(bucket)
        else:
            self.send(bucket, group, stamp_ms, tries - 1)

    def finish(self, bucket: str, group: Group, plan: Plan) -> None:
        for renewal in group.renewals:
            self._renewed(bucket, plan, renewal)
        self.busy.discard(bucket)
        for ask, answer in group.asks:
            self.world.calls[ask.call].holds[bucket] = plan.holds.get(ask.call, [])
            answer("admitted")
        self.watch(bucket)
        self.flush(bucket)

    def _renewed(self, bucket: str, plan: Plan, renewal: Renewal) -> None:
        after = plan.renewed.get((renewal.call, renewal.hold))
        call = self.world.calls[renewal.call]
        if after is not None:
            call.holds[bucket] = [
                after if hold == renewal.hold else hold for hold in call.holds[bucket]
            ]

    def give_up(self, bucket: str, group: Group) -> None:
        for _, answer in group.asks:
            answer("unknown")
        self.images.pop(Key(bucket, 0), None)
        self.busy.discard(bucket)
        if self.world.table.item(Key(bucket, 0)) is not None:
            waiting = self.groups[bucket]
            waiting.ends[:0] = group.ends
        self.after(50, lambda: self.flush(bucket))

    def adapt(self, bucket: str, item: Item, done: Callable[[], None]) -> None:
        """Learn of newer limits, or bring the bucket to them."""
        if item["cv"] > self.config.version or item["n"] == 2:
            self.config = self.world.config_for(self, item["cv"])
            self.after(0, done)
            return
        old = self.world.config_for(self, item["cv"])
        write = self.rules.rebase(Key(bucket, 0), item, old, self.config, self.clock())
        self.write([write], lambda applied: self.after_adapting(bucket, applied, done))

    def after_adapting(self, bucket: str, applied: bool | None, done: Callable[[], None]) -> None:
        if applied is None:
            self.read(bucket, done)
        else:
            done()

    # --- thresholds

    def watch(self, bucket: str) -> None:
        """Mark a threshold that the last answer shows to be reached."""
        item = self.images.get(Key(bucket, 0))
        if item is None or item["n"] == 2 or item["cv"] != self.config.version:
            return
        for quota in self.config.limits.values():
            write = self.rules.mark(Key(bucket, 0), item, quota)
            if write is not None:
                self.write([write], lambda applied: self.watch(bucket) if applied else None)
                return

    # --- administration

    def administer(self, bucket: str, plan: Callable[[Item | None], list[Write] | None]) -> None:
        """Read a bucket, and write what is planned on it; a refusal is the end of it."""

        def arrive() -> None:
            item = self.world.table.item(Key(bucket, 0))
            if item is not None and item["cv"] != self.config.version:
                return
            writes = plan(item)
            if writes:
                self.write(writes, lambda applied: None)

        self.world.after(self.world.latency(), arrive)

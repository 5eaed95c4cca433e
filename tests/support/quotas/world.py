"""Random histories: clients, faults and administration around one table, in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from random import Random

from sim.schedule import Schedule
from tests.support.quotas.admin import Rules
from tests.support.quotas.client import Call, Client
from tests.support.quotas.ledger import Ledger, Wrong, limits_of
from tests.support.quotas.rules import CalendarLike, Config, Quota, holds_of, window_of
from tests.support.quotas.table import Key, Table, Write
from zae_limiter.models.calendar import Calendar

START_MS = 1_800_000_000_000  # an edge of windows of a minute
MINUTE_MS, DAY_MS = 60_000, 86_400_000


@dataclass(frozen=True)
class Profile:
    """What may happen in a history. Shares are of all calls, or of all messages."""

    clients: int = 4
    horizon_ms: int = 200_000
    pause_ms: int = 5000  # between the calls of a client, on average
    skew_ms: int = 400
    far_skew_ms: int = 0  # of one client
    shift_ms: int = 0  # between the time zone data of clients
    losses: float = 0.0
    stops: bool = False
    crashes: bool = False
    shadows: float = 0.0
    buckets: tuple[str, ...] = ("api",)
    limits: int = 2
    kinds: tuple[str, ...] = ("minute", "two minutes", "first use")
    soft: bool = False
    hold_ttls: tuple[int | None, ...] = (4, 10, 20, None)
    overruns: bool = True  # calls may cost more than their estimates
    tops_up: bool = False
    resets: bool = False
    amounts: bool = False  # other amounts
    calendars: bool = False  # other calendars and kinds
    returns: bool = False  # changes of calendars and kinds are taken back
    shards: bool = False
    forgets: bool = False  # items are deleted as soon as their time to live allows it
    largest: int = 30

    @property
    def is_exact(self) -> bool:
        """Whether no call may lose its hold."""
        calm = not (self.losses or self.stops or self.crashes or self.far_skew_ms)
        return calm and self.skew_ms <= 400 and not self.calendars and not self.shift_ms

    @property
    def is_strict(self) -> bool:
        """Whether in addition no window may admit more than its amount and top-ups."""
        changes = self.resets or self.amounts or self.shadows or self.soft or self.shards
        return self.is_exact and not self.overruns and not changes


@dataclass(frozen=True)
class OtherData:
    """A calendar on a host whose time zone data is another: its edges come later."""

    calendar: CalendarLike
    shift_ms: int

    def number(self, t_ms: int) -> int:
        return self.calendar.number(t_ms - self.shift_ms)

    def edge_ms(self, k: int) -> int:
        return self.calendar.edge_ms(k) + self.shift_ms


class World(Schedule):
    """Clients, the table and the time between them."""

    def __init__(
        self,
        seed: int,
        profile: Profile,
        *,
        rules: type[Rules] = Rules,
        client: type[Client] = Client,
        table: type[Table] = Table,
    ) -> None:
        super().__init__(START_MS)
        self.random, self.profile, self.rules = Random(f"{seed} {profile}"), profile, rules()
        self.table = table()
        far_ms = max(profile.skew_ms, abs(profile.far_skew_ms))
        strict = profile.is_strict
        self.ledger = Ledger(self.table, skew_ms=far_ms, exact=profile.is_exact, strict=strict)
        self.buckets = profile.buckets
        self.configs: dict[int, Config] = {}
        self._numbers, self._eras = count(1), count(1)
        self._calls = count(1)
        self.calls: dict[int, Call] = {}
        self.admitted = self.rejected = 0
        self.change_limits()
        self._client_class = client
        self.clients = [self.new_client(number) for number in range(profile.clients)]

    # --- time and messages

    def latency(self) -> int:
        return self.random.choice((1, 2, 5, 7, 30, 30, 200))

    def fate(self) -> str:
        if self.random.random() >= self.profile.losses:
            return "delivered"
        return self.random.choice(("request lost", "answer lost", "late", "late"))

    def lateness_ms(self, fate: str) -> int:
        """Return how much later than usual an original arrives, whose client has given up."""
        return self.random.choice((0, 3000, 20_000, 70_000)) if fate == "late" else 0

    def apply(self, writes: list[Write]) -> bool:
        applied = self.table.apply(writes)
        if applied is None:
            return False
        self.ledger.follow(applied, self.now_ms)
        return True

    def run(self) -> World:
        """Run the history, let it come to rest, and check what readers see then."""
        profile = self.profile
        for client in self.clients:
            self.start(client)
        if profile.stops or profile.crashes:
            self.after(2000, self.disturb)
        if profile.tops_up or profile.resets or profile.amounts or profile.calendars:
            self.after(1500, self.administer)
        if profile.shards:
            self.after(1000, self.reshape)
        self.run_until(START_MS + profile.horizon_ms)
        for client in self.clients:
            client.stopped_until_ms = 0
        self.run_until(self.now_ms + 100_000)  # calls end, and late originals arrive
        self.check_rest()
        return self

    def after_each_call(self) -> None:
        if self.profile.forgets:
            self.expire()

    def is_over(self) -> bool:
        return self.now_ms >= START_MS + self.profile.horizon_ms

    # --- clients

    def new_client(self, number: int) -> Client:
        skew_ms = self.random.randint(-self.profile.skew_ms, self.profile.skew_ms)
        if number == 0 and self.profile.far_skew_ms:
            skew_ms = self.profile.far_skew_ms
        shift_ms = self.profile.shift_ms if number % 2 else 0
        return self._client_class(self, number, skew_ms, shift_ms)

    def start(self, client: Client) -> None:
        client.after(self.random.randint(0, self.profile.pause_ms), lambda: self.call(client))
        client.after(client.renewal_ms(), client.renew)

    def call(self, client: Client) -> None:
        """Let a client begin a call, and another one later."""
        if self.is_over():
            return
        pause_ms = self.random.choice((0, 10, self.profile.pause_ms, 2 * self.profile.pause_ms))
        client.after(pause_ms, lambda: self.call(client))
        call = self.new_call(client.config)
        self.calls[call.number] = call
        client.begin(call)

    def new_call(self, config: Config) -> Call:
        chance, profile = self.random, self.profile
        several = len(self.buckets) > 1 and chance.random() < 0.5
        buckets = self.buckets if several else (chance.choice(self.buckets),)
        amounts: dict[str, dict[str, int]] = {}
        costs: dict[str, dict[str, int]] = {}
        for bucket in buckets:
            named = [name for name in config.limits if chance.random() < 0.7]
            named = named or [chance.choice(list(config.limits))]
            amounts[bucket] = {name: chance.randint(1, profile.largest) for name in named}
            costs[bucket] = {
                name: chance.choice((0, amount, chance.randint(0, self.dearest(amount))))
                for name, amount in amounts[bucket].items()
            }
        lasts_ms = chance.choice((5, 300, 2000, 2000, 15_000, 40_000))
        shadow = chance.random() < profile.shadows
        return Call(next(self._calls), amounts, shadow, costs, lasts_ms)

    def dearest(self, amount: int) -> int:
        return amount * 3 // 2 if self.profile.overruns else amount

    def disturb(self) -> None:
        """Stop a client for a while, or kill it and start another."""
        if self.is_over():
            return
        self.after(self.random.randint(2000, 15_000), self.disturb)
        client = self.random.choice(self.clients)
        if self.profile.crashes and (not self.profile.stops or self.random.random() < 0.4):
            client.is_alive = False
            self.clients.remove(client)
            self.clients.append(self.new_client(client.number))
            self.start(self.clients[-1])
        else:
            client.stopped_until_ms = self.now_ms + self.random.choice((500, 5000, 30_000, 90_000))

    # --- limits

    def config_for(self, client: Client, version: int | None = None) -> Config:
        """Return limits as a client knows them, with its own time zone data."""
        config = self.configs[max(self.configs) if version is None else version]
        if not client.shift_ms:
            return config
        limits = {
            name: replace(quota, calendar=OtherData(quota.calendar, client.shift_ms))
            if quota.calendar is not None
            else quota
            for name, quota in config.limits.items()
        }
        return Config(config.version, limits)

    def change_limits(self) -> None:
        """Make the first limits, or other ones."""
        version = max(self.configs, default=0) + 1
        if version == 1:
            limits = {
                name: self.new_quota(name)
                for name in ("usd", "tokens", "calls")[: self.profile.limits]
            }
        else:
            limits = dict(self.configs[version - 1].limits)
            name = self.random.choice(list(limits))
            if self.profile.calendars and (not self.profile.amounts or self.random.random() < 0.5):
                limits[name] = self.other_quota(name)
            else:
                amount = self.random.choice((40, 60, 100, 150))
                limits[name] = replace(limits[name], amount=amount)
        self.configs[version] = Config(version, limits)
        self.ledger.know(self.configs[version])

    def other_quota(self, name: str) -> Quota:
        """Return a limit with another calendar or kind, or one that it had before."""
        if not self.profile.returns or self.random.random() < 0.3:
            return self.new_quota(name)
        before = self.random.choice([config.limits[name] for config in self.configs.values()])
        return replace(before, number=self.next_number(name), era=next(self._eras))

    def next_number(self, name: str) -> int:
        """Return the number of a limit with another calendar."""
        return next(self._numbers)

    def new_quota(self, name: str) -> Quota:
        chance, profile = self.random, self.profile
        kind = chance.choice(profile.kinds)
        calendars = {"minute": 1, "two minutes": 2, "three minutes": 3}
        calendar = Calendar("minute", calendars[kind]) if kind in calendars else None
        return Quota(
            name,
            chance.choice((40, 60, 100, 150)),
            self.next_number(name),
            calendar,
            0 if calendar else chance.choice((30_000, 45_000)),
            profile.soft and chance.random() < 0.3,
            chance.choice(profile.hold_ttls),
            chance.choice(((50, 80, 100), (90,), ())),
            next(self._eras),
        )

    # --- administration

    def administer(self) -> None:
        if self.is_over():
            return
        self.after(self.random.randint(2000, 12_000), self.administer)
        profile = self.profile
        kinds = ["top up"] * profile.tops_up + ["reset"] * profile.resets
        kinds += ["limits"] * (profile.amounts or profile.calendars)
        kind = self.random.choice(kinds)
        client, bucket = self.random.choice(self.clients), self.random.choice(self.buckets)
        if kind == "limits":
            if not any(self.table.item(Key(each, 1)) for each in self.buckets):
                self.change_limits()
                client.config = self.config_for(client)
        elif kind == "reset":
            self.reset(client, bucket)
        else:
            self.top_up(client, bucket)

    def reset(self, client: Client, bucket: str) -> None:
        def plan(item: dict | None) -> list[Write] | None:
            if item is None or item["n"] == 2:
                return None
            settled = self.ledger.settled(bucket, item)
            key, now_ms = Key(bucket, 0), client.clock()
            write = client.rules.reset(key, item, client.config, settled, now_ms)
            return None if write is None else [write]

        client.administer(bucket, plan)

    def top_up(self, client: Client, bucket: str) -> None:
        limit = self.random.choice(list(client.config.limits))
        amount = self.random.randint(1, 40)

        def plan(item: dict | None) -> list[Write] | None:
            key, now_ms = Key(bucket, 0), client.clock()
            write = client.rules.top_up(key, item, client.config, limit, amount, now_ms)
            return None if write is None else [write]

        client.administer(bucket, plan)

    def reshape(self) -> None:
        """Split a bucket, or merge its shards."""
        if self.is_over():
            return
        self.after(self.random.randint(1000, 10_000), self.reshape)
        bucket, client = self.random.choice(self.buckets), self.random.choice(self.clients)

        def plan(item: dict | None) -> list[Write] | None:
            if item is None or "ttl" not in item:
                return None
            if item["n"] == 1:
                return client.rules.split(bucket, item, client.config)
            items = [each for each in self.table.shards(bucket) if each is not None]
            return client.rules.merge(bucket, items, client.config)

        client.administer(bucket, plan)

    def expire(self) -> None:
        """Delete the items whose time to live is over."""
        for key, item in list(self.table.items.items()):
            if item.get("ttl", 2**60) * 1000 < self.now_ms and item["n"] == 1:
                self.ledger.forget(key, item, self.now_ms)
                del self.table.items[key]

    # --- the end

    def check_rest(self) -> None:
        """Check what readers see when no call is in flight: the settled costs, and nothing held."""
        for bucket in self.buckets:
            item = self.table.item(Key(bucket, 0))
            if item is None:
                continue
            for limit in limits_of(item):
                amount, level, held, window = self.ledger.position(bucket, limit)
                number = item[f"n_{limit}"]
                at = window_of(item[f"t_{limit}"])
                endless = sum(
                    held
                    for each in self.table.shards(bucket)
                    for name, held in holds_of(each or {}, limit).items()
                    if (name.number, name.window) == (number, at) and not name.expires_s
                )
                live = self.live_holds(bucket, limit)
                used = amount + window.topped - level - held
                if used != window.settled:
                    raise Wrong(f"{limit}: {used} used, and really {window.settled}")
                if self.profile.is_exact and (live or endless):
                    raise Wrong(f"{limit}: {live} and {endless} held, and no call is in flight")

    def live_holds(self, bucket: str, limit: str) -> int:
        return sum(
            held
            for item in self.table.shards(bucket)
            for name, held in holds_of(item or {}, limit).items()
            if name.expires_s * 1000 > self.now_ms
        )

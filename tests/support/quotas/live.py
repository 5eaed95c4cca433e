"""Random histories of real limiters on a real store, beside a ledger that knows no store.

Two clients with different clocks charge one entity and its parent, settle, fail and abandon calls;
windows are topped up and reset, amounts change, and a fake clock moves over edges. After every step
the store must show what the ledger has: the settled costs of the running window, and the estimates
of the calls whose holds have not expired. A call is admitted if and only if it fits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, ValidationError
from zae_limiter.models.limit import FirstUse
from zae_limiter.testing.clock import FakeClock

ENTITY, PARENT, RESOURCE = "key-1", "team", "api"
HOUR_MS = 3_600_000
START_MS = 1_800_000_000_000  # an edge of windows of an hour
HOLD_TTL = 60
CENT = Decimal("0.01")
SKEWS_MS = (0, -2500)


class Wrong(AssertionError):
    """The store and the ledger differ."""


@dataclass
class Book:
    """One limit of one bucket: its window, the settled costs, top-ups and estimates in flight."""

    limit: Limit
    number: int | None = None  # of the running window: its number, or the moment of its first use
    settled: Decimal = Decimal(0)
    topped: Decimal = Decimal(0)
    counted: Decimal = Decimal(0)  # settled costs of all windows
    held: dict[int, tuple[Decimal, int]] = field(default_factory=dict)  # by call, with the expiry

    def joined(self, now_ms: int) -> int | None:
        """Return the window that a charge would use; None if it would be the first of its own."""
        if isinstance(self.limit.window, FirstUse):
            runs = self.number is not None and now_ms < self.number + self.limit.window.length_ms
            return self.number if runs else None
        number = self.limit.window.number(now_ms)
        return number if self.number is None else max(number, self.number)

    def is_over(self, now_ms: int) -> bool:
        return self.number is None or self.joined(now_ms) != self.number

    def turn(self, now_ms: int) -> None:
        """Begin the window of a charge or top-up, if another one is stored."""
        if self.is_over(now_ms):
            joined = self.joined(now_ms)
            self.number = now_ms if joined is None else joined
            self.settled = self.topped = Decimal(0)
            self.held = {}

    def held_at(self, now_ms: int) -> Decimal:
        if self.is_over(now_ms):
            return Decimal(0)
        return sum((units for units, end_ms in self.held.values() if end_ms > now_ms), Decimal(0))

    def level(self, now_ms: int) -> Decimal:
        """Return the amount that a charge finds."""
        if self.is_over(now_ms):
            return Decimal(self.limit.amount)
        return self.limit.amount + self.topped - self.settled - self.held_at(now_ms)

    def admits(self, amount: Decimal, now_ms: int) -> bool:
        """Tell whether a charge fits."""
        return self.level(now_ms) >= amount

    def charge(self, call: int, amount: Decimal, now_ms: int) -> None:
        """Hold an amount, and return what has expired."""
        self.turn(now_ms)
        self.held = {each: hold for each, hold in self.held.items() if hold[1] > now_ms}
        self.held[call] = amount, expiry_ms(now_ms)

    def used(self, now_ms: int) -> Decimal:
        return Decimal(0) if self.is_over(now_ms) else self.settled


@dataclass
class Call:
    """A call in flight: its block, lease, estimates, and the window of each limit in each book."""

    block: object
    lease: object
    amounts: dict[str, Decimal]
    windows: dict[tuple[str, str], int | None]


def expiry_ms(now_ms: int) -> int:
    """Return the moment at which a hold expires: whole steps of half its TTL, rounded up."""
    step_ms = HOLD_TTL // 2 * 1000
    return -(-(now_ms + HOLD_TTL * 1000) // step_ms) * step_ms


class LiveWorld:
    """Clients, the store and the ledger."""

    def __init__(self, seed: int, url: str) -> None:
        self.random, self.url = Random(seed), url
        self.clock = FakeClock(START_MS + 10 * 60_000)
        self.repos: list[Repository] = []
        self.calls: dict[int, Call] = {}
        self.books: dict[tuple[str, str], Book] = {}
        self.begun = self.admitted = self.rejected = self.steps = 0

    # --- opening

    async def open(self) -> LiveWorld:
        namespace = f"n{self.random.randrange(10**9)}"
        for skew_ms in SKEWS_MS:
            builder = Repository.builder().url(self.url).namespace(namespace)
            builder.clock(lambda skew_ms=skew_ms: self.clock() + skew_ms).config_cache_ttl(0)
            builder.rejection_cache_ttl(0).request_timeout(30).provision("table")
            self.repos.append(await builder.register_missing_namespace().build())
        self.limiters = [RateLimiter(repo) for repo in self.repos]
        repo = self.repos[0]
        await repo.create_entity(PARENT)
        await repo.create_entity(ENTITY, parent_id=PARENT, cascade=True)
        for entity in (ENTITY, PARENT):
            await self.set_limits(
                entity,
                [
                    self.quota("tokens", per="hour"),
                    Limit.budget("usd", "2.00", per="day", zone="Europe/Berlin", hold_ttl=HOLD_TTL),
                    Limit.quota("session", 90, after_first_use="40m", hold_ttl=HOLD_TTL),
                ],
            )
        return self

    @property
    def is_atomic(self) -> bool:
        """Whether an entity and its parent are charged in one transaction."""
        return self.repos[0].capabilities.atomic_cascade

    async def close(self) -> None:
        for repo in self.repos:
            await repo.close()

    def quota(self, name: str, **window: object) -> Limit:
        amount = self.random.choice((60, 100, 150))
        return Limit.quota(name, amount, hold_ttl=HOLD_TTL, **window)

    async def set_limits(self, entity: str, limits: list[Limit]) -> None:
        await self.repos[0].set_limits(entity, limits, RESOURCE)
        for limit in limits:
            if (entity, limit.name) in self.books:
                self.books[entity, limit.name].limit = limit
            else:
                self.books[entity, limit.name] = Book(limit)

    # --- steps

    async def run(self, steps: int) -> LiveWorld:
        kinds = [self.begin] * 6 + [self.end] * 5 + [self.burst] * 2 + [self.move] * 4
        kinds += [self.abandon, self.fail, self.top_up, self.reset, self.change_amount]
        for _ in range(steps):
            await self.random.choice(kinds)()
            self.steps += 1
            await self.check()
        for number in list(self.calls):
            await self.finish(number)
            await self.check()
        await self.check_usage()
        return self

    def some_amounts(self) -> dict[str, Decimal]:
        names = [name for name in ("tokens", "usd", "session") if self.random.random() < 0.5]
        return {name: self.some_amount(name) for name in names or ["tokens"]}

    def some_amount(self, name: str) -> Decimal:
        amount = self.random.randint(1, 35)
        return amount * CENT if name == "usd" else Decimal(amount)

    async def begin(self) -> None:
        client = self.random.randrange(2)
        amounts, now_ms = self.some_amounts(), self.clock() + SKEWS_MS[client]
        fits = self.fits(amounts, now_ms)
        is_granted = await self.ask(client, amounts)
        if is_granted != fits:
            raise Wrong(f"{amounts} is {'admitted' if is_granted else 'rejected'}: {self.levels()}")

    def fits(self, amounts: dict[str, Decimal], now_ms: int) -> bool:
        return all(
            book.admits(amounts.get(name, Decimal(0)), now_ms)
            for (_, name), book in self.books.items()
        )

    async def ask(self, client: int, amounts: dict[str, Decimal]) -> bool:
        """Begin a call; note it if it is admitted."""
        consume = {name: each if name == "usd" else int(each) for name, each in amounts.items()}
        block = self.limiters[client].acquire(ENTITY, RESOURCE, consume)
        now_ms = self.clock() + SKEWS_MS[client]
        try:
            lease = await block.__aenter__()
        except RateLimitExceeded:
            self.rejected += 1
            await self.check_windows(now_ms)
            return False
        self.admitted += 1
        self.begun += 1
        windows = {}
        for (entity, name), book in self.books.items():
            if amounts.get(name):
                book.charge(self.begun, amounts[name], now_ms)
            windows[entity, name] = book.joined(now_ms)
        self.calls[self.begun] = Call(block, lease, amounts, windows)
        return True

    async def check_windows(self, now_ms: int) -> None:
        """Check that a rejected call has begun no window of first use.

        If a cascade is no transaction, one bucket may be charged and refunded since the other
        rejects.
        """
        for (entity, name), book in self.books.items():
            if isinstance(book.limit.window, FirstUse) and book.is_over(now_ms):
                state = await self.repos[0].get_bucket(entity, RESOURCE, name)
                start = None if state is None else state.window_start
                if start is not None and start.timestamp() * 1000 > now_ms - 1:
                    raise Wrong(f"a rejected call has begun the window of {start}")

    async def end(self) -> None:
        if self.calls:
            await self.finish(self.random.choice(list(self.calls)))

    async def finish(self, number: int) -> None:
        """Settle a call, for more or less than its estimate."""
        call = self.calls.pop(number)
        costs = {}
        for name, amount in call.amounts.items():
            cost = self.random.choice((Decimal(0), amount, self.some_amount(name)))
            if name == "usd":
                cost += self.random.choice((0, Decimal("0.000000001")))
            costs[name] = cost
        spent = {name: each if name == "usd" else int(each) for name, each in costs.items()}
        await call.lease.settle(spent)
        await call.block.__aexit__(None, None, None)
        self.settle(number, call, costs)

    def settle(self, number: int, call: Call, costs: dict[str, Decimal]) -> None:
        for (entity, name), book in self.books.items():
            if name in costs:
                book.counted += costs[name]
                if book.number == call.windows[entity, name]:
                    book.settled += costs[name]
            book.held.pop(number, None)

    async def fail(self) -> None:
        """Let the block of a call raise: it costs nothing."""
        if not self.calls:
            return
        number = self.random.choice(list(self.calls))
        call = self.calls.pop(number)
        error = RuntimeError("the call has failed")
        await call.block.__aexit__(RuntimeError, error, None)
        self.settle(number, call, {})

    async def abandon(self) -> None:
        """Let a process die with its call: nobody renews or settles it."""
        if self.calls:
            del self.calls[self.random.choice(list(self.calls))]

    async def burst(self) -> None:
        """Let both clients ask and settle at once: what is admitted was there."""
        moments = [self.clock() + skew_ms for skew_ms in SKEWS_MS]
        books = [book for (_, name), book in self.books.items() if name == "tokens"]
        if any(len({book.joined(now_ms) for now_ms in moments}) > 1 for book in books):
            return  # the ledger does not know which of them writes first
        amounts = {"tokens": self.some_amount("tokens")}
        ends = self.random.sample(list(self.calls), min(2, len(self.calls)))
        asked = [self.ask(at % 2, amounts) for at in range(6)]
        answers = await asyncio.gather(*asked, *[self.finish(number) for number in ends])
        is_admitted, is_refused = True in answers[:6], False in answers[:6]
        # Otherwise a charge that the parent rejects is taken for a moment and given back.
        is_exact = self.is_atomic and not ends
        if is_refused and is_exact and all(self.fits(amounts, now_ms) for now_ms in moments):
            raise Wrong(f"{amounts} is rejected, and would fit: {self.levels()}")
        if is_admitted and not ends and any(book.level(max(moments)) < 0 for book in books):
            raise Wrong(f"{amounts} is admitted too often: {self.levels()}")

    async def move(self) -> None:
        """Move the clock by some seconds, past the expiry of holds, or to an edge."""
        to_edge_ms = HOUR_MS - self.clock() % HOUR_MS
        by_ms = self.random.choice((500, 20_000, 100_000, to_edge_ms - 1, to_edge_ms, 1_500_000))
        self.clock.advance(ms=by_ms)

    async def top_up(self) -> None:
        entity, name = self.random.choice(list(self.books))
        book, amount, now_ms = self.books[entity, name], self.some_amount(name), self.clock()
        sent = amount if name == "usd" else int(amount)
        begins_later = isinstance(book.limit.window, FirstUse) and book.is_over(now_ms)
        try:
            await self.repos[0].top_up(entity, RESOURCE, {name: sent})
        except ValidationError:
            if not begins_later:
                raise
            return
        if begins_later:
            raise Wrong("a window that has not begun was topped up")
        book.turn(now_ms)
        book.topped += amount

    async def reset(self) -> None:
        entity = self.random.choice((ENTITY, PARENT))
        await self.repos[0].reset_bucket(entity, RESOURCE)
        for (owner, _), book in self.books.items():
            if owner == entity and not book.is_over(self.clock()):
                book.settled = book.topped = Decimal(0)

    async def change_amount(self) -> None:
        entity = self.random.choice((ENTITY, PARENT))
        limits = [book.limit for (owner, _), book in self.books.items() if owner == entity]
        limits[0] = self.quota("tokens", per="hour")
        await self.set_limits(entity, limits)
        await self.begin()  # brings the bucket to its limits

    # --- checks

    def levels(self) -> dict[tuple[str, str], str]:
        now_ms = self.clock()
        return {place: str(book.level(now_ms)) for place, book in self.books.items()}

    async def check(self) -> None:
        """Compare the store with the ledger."""
        now_ms = self.clock()
        for (entity, name), book in self.books.items():
            state = await self.repos[0].get_bucket(entity, RESOURCE, name)
            if state is None or state.limit != book.limit:
                continue  # no charge has brought its limits yet
            seen = Decimal(state.used), Decimal(state.held), Decimal(state.available)
            known = book.used(now_ms), book.held_at(now_ms), book.level(now_ms)
            if seen != known:
                raise Wrong(f"{entity} {name}: used, held, left {seen}, and really {known}")

    async def check_usage(self) -> None:
        """Let all holds expire and be swept: the usage is that of the settled calls alone."""
        self.clock.advance(hours=30)
        if not await self.ask(0, {"tokens": Decimal(1), "usd": CENT, "session": Decimal(1)}):
            raise Wrong("windows that have just begun reject a call")
        await self.finish(max(self.calls))
        for (entity, name), book in self.books.items():
            state = await self.repos[0].get_bucket(entity, RESOURCE, name)
            unit = 10**9 if name == "usd" else 1000
            if Decimal(state.total_consumed_milli) / unit != book.counted:
                raise Wrong(f"{entity} {name}: {state.total_consumed_milli}, not {book.counted}")

"""Random histories of real limiters on a real store, beside a ledger that knows no store.

Clients with different clocks charge one entity and its parent, adjust, settle, fail and abandon
calls; windows are topped up and reset, limits change there and back, and a fake clock moves over
edges. After every step the store must show what the ledger has: the settled costs of the running
window, and the estimates of the calls whose holds have not expired. A call is admitted if and only
if it fits, and a rejection says which limit it was and for how long.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random

from tests.support.quotas.book import HOLD_TTL, NOTHING, Account, Book
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, ValidationError
from zae_limiter.testing.clock import FakeClock

ENTITY, PARENT, RESOURCE = "key-1", "team", "api"
HOUR_MS = 3_600_000
START_MS = 1_800_000_000_000  # an edge of windows of an hour
CENT = Decimal("0.01")
SKEWS_MS = (0, -2500)
AMOUNTS = (60, 100, 150)
NAMES = ("tokens", "usd", "session")
Place = tuple[str, str]  # an entity and the name of a limit


class Wrong(AssertionError):
    """The store and the ledger differ."""


@dataclass
class Client:
    """One process. It has one call at a time, so that no other call renews what one holds."""

    repo: Repository
    limiter: RateLimiter
    skew_ms: int


@dataclass
class Call:
    """A call in flight: its block, lease, client, and the costs of its limits.

    ``success`` is the cost if the block succeeds, ``failure`` the cost if it fails.
    """

    block: object
    lease: object
    client: Client
    success: dict[str, Decimal]
    accounts: dict[Place, Account]
    failure: dict[str, Decimal] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Return the limits that the lease covers."""
        return sorted({name for _, name in self.accounts})

    @property
    def has_spent(self) -> bool:
        return any(account.spent for account in self.accounts.values())

    def settle(self, costs: dict[str, Decimal]) -> None:
        self.success |= costs
        self.failure |= costs

    def adjust(self, name: str, amount: Decimal) -> None:
        cost = self.success[name] = self.success.get(name, NOTHING) + amount
        if name in self.failure:
            self.failure[name] = min(self.failure[name], cost)


class LiveWorld:
    """Clients, the store and the ledger."""

    def __init__(self, seed: int, url: str, *, book: type[Book] = Book) -> None:
        self.random, self.url, self.book = Random(seed), url, book
        self.clock = FakeClock(START_MS + 10 * 60_000)
        self.namespace = f"n{self.random.randrange(10**9)}"
        self.repos: list[Repository] = []
        self.idle: list[Client] = []
        self.calls: dict[int, Call] = {}
        self.books: dict[Place, Book] = {}  # with the limits that the bucket has
        self.limits: dict[Place, Limit] = {}  # in force; the next charge brings the bucket to them
        self.begun = self.admitted = self.rejected = self.steps = 0

    # --- opening

    async def open(self) -> LiveWorld:
        self.admin = repo = await self.open_repo(0)
        await repo.create_entity(PARENT)
        await repo.create_entity(ENTITY, parent_id=PARENT, cascade=True)
        for entity in (ENTITY, PARENT):
            await self.set_limits(entity, {name: self.forms(name)[0] for name in NAMES})
            for name in NAMES:
                self.books[entity, name] = self.book(self.limits[entity, name])
        return self

    async def open_repo(self, skew_ms: int) -> Repository:
        builder = Repository.builder().url(self.url).namespace(self.namespace)
        builder.clock(lambda: self.clock() + skew_ms).config_cache_ttl(0)
        builder.rejection_cache_ttl(0).request_timeout(30).provision("table")
        self.repos.append(await builder.register_missing_namespace().build())
        return self.repos[-1]

    async def client(self, skew_ms: int) -> Client:
        """Return a client that has no call."""
        for client in self.idle:
            if client.skew_ms == skew_ms:
                self.idle.remove(client)
                return client
        repo = await self.open_repo(skew_ms)
        return Client(repo, RateLimiter(repo), skew_ms)

    @property
    def is_atomic(self) -> bool:
        """Whether an entity and its parent are charged in one transaction."""
        return self.admin.capabilities.atomic_cascade

    async def close(self) -> None:
        for repo in self.repos:
            await repo.close()

    def forms(self, name: str) -> list[Limit]:
        """Return the forms that a limit changes between, the first of them the usual one."""
        amount = self.random.choice(AMOUNTS)
        if name == "usd":
            zone, usd = "Europe/Berlin", amount * 2 * CENT
            return [
                Limit.budget("usd", usd, per=per, zone=zone, hold_ttl=HOLD_TTL)
                for per in ("day", "month")
            ]
        if name == "tokens":
            return [
                Limit.quota("tokens", amount, per="hour", hold_ttl=HOLD_TTL),
                Limit.quota("tokens", amount, per="day", hold_ttl=HOLD_TTL),
                Limit.per_hour("tokens", 1_000_000),
            ]
        return [
            Limit.quota("session", amount, after_first_use="40m", hold_ttl=HOLD_TTL),
            Limit.quota("session", amount, per="hour", hold_ttl=HOLD_TTL),
        ]

    async def set_limits(self, entity: str, limits: dict[str, Limit]) -> None:
        await self.admin.set_limits(entity, list(limits.values()), RESOURCE)
        for name in NAMES:
            self.limits.pop((entity, name), None)
        self.limits |= {(entity, name): limit for name, limit in limits.items()}

    # --- steps

    async def run(self, steps: int) -> LiveWorld:
        kinds = [self.begin] * 6 + [self.end] * 5 + [self.burst] * 2 + [self.move] * 4
        kinds += [self.adjust, self.settle] * 2 + [self.settle_now] * 2 + [self.hurry]
        kinds += [self.abandon, self.fail, self.top_up, self.reset]
        kinds += [self.change_amount] + [self.change_form] * 2
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
        known = sorted({name for _, name in self.limits})
        names = [name for name in known if self.random.random() < 0.5]
        return {name: self.some_amount(name) for name in names or ["tokens"]}

    def some_amount(self, name: str) -> Decimal:
        amount = self.random.randint(1, 35)
        return amount * CENT if name == "usd" else Decimal(amount)

    def some_call(self) -> int | None:
        return self.random.choice(list(self.calls)) if self.calls else None

    # --- begins

    async def begin(self) -> None:
        client = await self.client(self.random.choice(SKEWS_MS))
        amounts = self.some_amounts()
        fits = self.fits(amounts, self.now_ms(client))
        is_granted = await self.ask(client, amounts)
        if is_granted != fits:
            raise Wrong(f"{amounts} is {'admitted' if is_granted else 'rejected'}: {self.levels()}")

    def now_ms(self, client: Client) -> int:
        return self.clock() + client.skew_ms

    def in_force(self, now_ms: int) -> dict[Place, Book]:
        """Return the books under the limits in force, as a charge would find them."""
        return {
            place: self.books[place].brought_to(limit, now_ms)
            if self.books[place].limit != limit
            else self.books[place]
            for place, limit in self.limits.items()
        }

    def fits(self, amounts: dict[str, Decimal], now_ms: int) -> bool:
        return all(
            book.admits(amounts.get(name, NOTHING), now_ms)
            for (_, name), book in self.in_force(now_ms).items()
        )

    async def ask(self, client: Client, amounts: dict[str, Decimal], *, alone: bool = True) -> bool:
        """Begin a call; note it if it is admitted. ``alone``: nothing else happens meanwhile."""
        block = client.limiter.acquire(ENTITY, RESOURCE, written(amounts))
        now_ms = self.now_ms(client)
        try:
            lease = await block.__aenter__()
        except RateLimitExceeded as rejected:
            self.rejected += 1
            self.idle.append(client)
            await self.look_for_limits(now_ms)
            await self.look_for_windows(now_ms)
            self.check_rejection(rejected, amounts, now_ms, alone=alone)
            return False
        self.admitted += 1
        self.begun += 1
        self.books |= self.in_force(now_ms)
        accounts = {
            place: self.books[place].admit(self.begun, amounts.get(place[1], NOTHING), now_ms)
            for place in self.limits
        }
        self.calls[self.begun] = Call(block, lease, client, dict(amounts), accounts)
        return True

    async def look_for_limits(self, now_ms: int) -> None:
        """Note the limits that a rejected call has brought a bucket to, or has not."""
        for place, book in self.in_force(now_ms).items():
            if book is not self.books[place]:
                state = await self.admin.get_bucket(place[0], RESOURCE, place[1])
                if state is not None and state.limit == book.limit:
                    self.books[place] = book

    async def look_for_windows(self, now_ms: int) -> None:
        """Note windows of first use that a rejected call has begun.

        If a cascade is no transaction, one bucket may be charged and refunded since the other
        rejects; its window goes on.
        """
        if self.is_atomic:
            return
        for (entity, name), book in self.books.items():
            if book.is_first_use and book.is_over(now_ms):
                state = await self.admin.get_bucket(entity, RESOURCE, name)
                if state is not None and state.window_start is not None:
                    book.turn(round(state.window_start.timestamp() * 1000))

    def check_rejection(
        self, rejected: RateLimitExceeded, amounts: dict[str, Decimal], now_ms: int, *, alone: bool
    ) -> None:
        """Compare a rejection with its statuses, and these with the ledger."""
        if not rejected.violations or rejected.retry_after_seconds <= 0:
            raise Wrong(f"{amounts} is rejected without a reason: {rejected.statuses}")
        if not alone:
            return
        books, reasons = self.in_force(now_ms), 0
        for status in rejected.statuses:
            book = books[status.entity_id, status.limit_name]
            amount = amounts.get(status.limit_name, NOTHING)
            is_right = status.exceeded != book.admits(amount, now_ms)
            reasons += status.exceeded and is_right
            # Otherwise one of the buckets was not asked, since the other one rejects.
            if self.is_atomic and not is_right:
                raise Wrong(f"{status} says that it {'refuses' if status.exceeded else 'admits'}")
            known = book.level(now_ms), book.held_at(now_ms)
            if status.exceeded and is_right and (status.available, status.held) == known:
                check_wait(status.retry_after_seconds, book, amount, now_ms)
        if not reasons:
            raise Wrong(f"{amounts} is rejected for a wrong reason: {rejected.statuses}")

    # --- blocks

    async def adjust(self) -> None:
        """Add to the cost of a call, or subtract: never more than it costs."""
        number = self.some_call()
        if number is None:
            return
        call = self.calls[number]
        name = self.random.choice(call.names)
        amount = self.random.choice((1, -1, -1)) * self.some_amount(name)
        is_allowed = self.may_adjust(call.success.get(name, NOTHING) + amount)
        try:
            await call.lease.adjust(written({name: amount}))
        except ValidationError:
            if is_allowed:
                raise
            return
        if not is_allowed:
            raise Wrong(f"{name}: {amount} of {call.success} were given back")
        call.adjust(name, amount)

    def may_adjust(self, cost: Decimal) -> bool:
        """Tell whether a call may cost this much after it was adjusted."""
        return cost >= 0

    async def settle(self) -> None:
        """Say what a call has cost so far; it is written at its end."""
        number = self.some_call()
        if number is not None:
            costs = self.some_costs(self.calls[number])
            await self.calls[number].lease.settle(written(costs))
            self.calls[number].settle(costs)

    async def settle_now(self) -> None:
        """Write what a call has cost so far: it is used, whatever becomes of the call."""
        number = self.some_call()
        if number is not None:
            call, costs = self.calls[number], self.some_costs(self.calls[number])
            await call.lease.settle(written(costs), now=True)
            self.write(call, costs, goes_on=True)

    async def hurry(self) -> None:
        """Settle a call several times at once, in this order, and perhaps end it."""
        number = self.some_call()
        if number is None:
            return
        call = self.calls[number]
        costs = [self.some_costs(call) for _ in range(self.random.choice((2, 3)))]
        steps = [call.lease.settle(written(each), now=True) for each in costs]
        ends = self.random.random() < 0.5
        if ends:
            steps.append(call.block.__aexit__(None, None, None))
        await asyncio.gather(*steps)
        for each in self.in_order(costs):
            self.write(call, each, goes_on=True)
        if ends:
            self.write(self.calls.pop(number), call.success)
            self.idle.append(call.client)

    def in_order(self, costs: list[dict[str, Decimal]]) -> list[dict[str, Decimal]]:
        """Return settlements that were asked for at once in the order in which they are made."""
        return costs

    def some_costs(self, call: Call) -> dict[str, Decimal]:
        """Return costs of the limits that a call names, and perhaps of others."""
        others = [name for name in call.names if name not in call.success]
        names = [*call.success, *(name for name in others if self.random.random() < 0.1)]
        costs = {}
        for name in names:
            estimate = call.success.get(name, NOTHING)
            cost = self.random.choice((NOTHING, estimate, self.some_amount(name)))
            if name == "usd":
                cost += self.random.choice((0, Decimal("0.000000001")))
            costs[name] = cost
        return costs

    def write(self, call: Call, costs: dict[str, Decimal], *, goes_on: bool = False) -> None:
        """Note costs that the store has."""
        call.settle(costs)
        for place, account in call.accounts.items():
            if place[1] in costs:
                book = self.books[place]
                settle = book.settle_at_once if goes_on else book.settle
                settle(account, costs[place[1]], self.now_ms(call.client))

    # --- ends

    async def end(self) -> None:
        number = self.some_call()
        if number is not None:
            await self.finish(number)

    async def finish(self, number: int) -> None:
        """Settle a call, for more or less than its estimate."""
        call = self.calls.pop(number)
        if self.random.random() < 0.8:
            costs = self.some_costs(call)
            await call.lease.settle(written(costs))
            call.settle(costs)
        await call.block.__aexit__(None, None, None)
        self.write(call, call.success)
        self.idle.append(call.client)

    async def fail(self) -> None:
        """Let the block of a call raise: it costs what was settled."""
        number = self.some_call()
        if number is None:
            return
        call = self.calls.pop(number)
        error = RuntimeError("the call has failed")
        await call.block.__aexit__(RuntimeError, error, None)
        self.write(call, {**dict.fromkeys(call.success, NOTHING), **call.failure})
        self.idle.append(call.client)

    async def abandon(self) -> None:
        """Let a process die with its call: nobody renews or settles it."""
        if self.calls:
            del self.calls[self.random.choice(list(self.calls))]

    async def burst(self) -> None:
        """Let both clients ask and settle at once: what is admitted was there."""
        if any(book.limit != self.limits.get(at, book.limit) for at, book in self.books.items()):
            return  # the ledger does not know which of them brings the bucket to its limits
        clients = [await self.client(SKEWS_MS[at % 2]) for at in range(6)]
        moments = [self.now_ms(client) for client in clients]
        books = [self.books[at] for at in self.limits if at[1] == "tokens"]
        books = [book for book in books if book.is_quota]
        if any(len({book.joined(now_ms) for now_ms in moments}) > 1 for book in books):
            self.idle += clients
            return  # the ledger does not know which of them writes first
        amounts = {"tokens": self.some_amount("tokens")}
        # What comes back without a hold depends on the order of the ends, if there was a reset.
        held = [number for number, call in self.calls.items() if not call.has_spent]
        ends = self.random.sample(held, min(2, len(held)))
        asked = [self.ask(client, amounts, alone=False) for client in clients]
        answers = await asyncio.gather(*asked, *[self.finish(number) for number in ends])
        is_admitted, is_refused = True in answers[:6], False in answers[:6]
        # Otherwise a charge that the parent rejects is taken for a moment and given back.
        is_exact = self.is_atomic and not ends
        if is_refused and is_exact and all(self.fits(amounts, now_ms) for now_ms in moments):
            raise Wrong(f"{amounts} is rejected, and would fit: {self.levels()}")
        if is_admitted and not ends and any(book.level(max(moments)) < 0 for book in books):
            raise Wrong(f"{amounts} is admitted too often: {self.levels()}")

    # --- time and administration

    async def move(self) -> None:
        """Move the clock by some seconds, past the expiry of holds, or to an edge."""
        to_edge_ms = HOUR_MS - self.clock() % HOUR_MS
        by_ms = self.random.choice((500, 20_000, 100_000, to_edge_ms - 1, to_edge_ms, 1_500_000))
        self.clock.advance(ms=by_ms)

    async def top_up(self) -> None:
        entity, name = place = self.random.choice(list(self.limits))
        amount, now_ms = self.some_amount(name), self.clock()
        book = self.in_force(now_ms)[place]
        if not book.is_quota:
            return
        begins_later = book.is_first_use and book.is_over(now_ms)
        try:
            await self.admin.top_up(entity, RESOURCE, written({name: amount}))
        except ValidationError:
            if not begins_later:
                raise
            await self.look_for_limits(now_ms)
            return
        if begins_later:
            raise Wrong("a window that has not begun was topped up")
        self.books |= {at: each for at, each in self.in_force(now_ms).items() if at[0] == entity}
        for at, each in self.books.items():
            if at[0] == entity:
                each.create(now_ms)
        self.books[place].turn(now_ms)
        self.books[place].topped += amount

    async def reset(self) -> None:
        entity = self.random.choice((ENTITY, PARENT))
        await self.admin.reset_bucket(entity, RESOURCE)
        for (owner, _), book in self.books.items():
            if owner == entity and book.is_quota and not book.is_over(self.clock()):
                book.settled = book.topped = NOTHING

    async def change_amount(self) -> None:
        """Change an amount, up or down."""
        entity, name = place = self.random.choice(list(self.limits))
        forms = {form.window: form for form in self.forms(name)}
        await self.change(entity, name, forms[self.limits[place].window])

    async def change_form(self) -> None:
        """Change a limit to another kind or calendar, remove it, or change it back."""
        entity, name = self.random.choice((ENTITY, PARENT)), self.random.choice(NAMES)
        now = self.limits.get((entity, name))
        forms: list[Limit | None] = [*self.forms(name)]
        if name == "session":  # the others are there for the calls that name nothing else
            forms.append(None)
        if now is not None:
            forms = [form for form in forms if form is None or form.window != now.window]
        await self.change(entity, name, self.random.choice(forms))

    async def change(self, entity: str, name: str, form: Limit | None) -> None:
        limits = {at[1]: limit for at, limit in self.limits.items() if at[0] == entity}
        limits.pop(name, None)
        await self.set_limits(entity, limits if form is None else {**limits, name: form})
        if self.random.random() < 0.7:
            await self.begin()  # brings the bucket to its limits

    # --- checks

    def levels(self) -> dict[Place, str]:
        now_ms = self.clock()
        books = self.in_force(now_ms).items()
        return {place: str(book.level(now_ms)) for place, book in books if book.is_quota}

    async def check(self) -> None:
        """Compare the store with the ledger."""
        now_ms = self.clock()
        for (entity, name), book in self.books.items():
            state = await self.admin.get_bucket(entity, RESOURCE, name)
            if state is None or not book.is_quota or state.limit != book.limit:
                continue  # no charge has brought its limits yet
            seen = Decimal(state.used), Decimal(state.held), Decimal(state.available)
            known = book.used(now_ms), book.held_at(now_ms), book.level(now_ms)
            if seen != known:
                raise Wrong(
                    f"{entity} {name}: used, held, left {[*map(str, seen)]}, "
                    f"and really {[*map(str, known)]}"
                )

    async def check_usage(self) -> None:
        """Let all holds expire and be swept: the usage is that of the settled calls alone."""
        for entity in (ENTITY, PARENT):
            await self.set_limits(entity, {name: self.forms(name)[0] for name in NAMES})
        self.clock.advance(hours=24 * 40)
        client = await self.client(0)
        if not await self.ask(client, {"tokens": Decimal(1), "usd": CENT, "session": Decimal(1)}):
            raise Wrong("windows that have just begun reject a call")
        await self.finish(max(self.calls))
        for entity in (ENTITY, PARENT):
            usage = (await self.admin.get_usage_summary(entity, RESOURCE)).total
            for name in NAMES:
                counted, really = Decimal(usage[name]), self.books[entity, name].counted
                if counted != really:
                    raise Wrong(f"{entity} {name}: {counted} are counted, and really {really}")


def check_wait(seconds: float, book: Book, amount: Decimal, now_ms: int) -> None:
    """Check that a charge fits after exactly these seconds if nothing else happens."""
    if seconds == float("inf"):
        if amount <= book.limit.amount:
            raise Wrong(f"{amount} never fits, says the store, and it fits {book}")
        return
    after_ms = now_ms + round(seconds * 1000)
    if not book.admits(amount, after_ms) or book.admits(amount, after_ms - 1):
        raise Wrong(f"{amount} fits after {seconds} s, says the store, and not by {book}")


def written(amounts: dict[str, Decimal]) -> dict[str, Decimal | int]:
    """Return amounts as callers write them."""
    return {name: each if name == "usd" else int(each) for name, each in amounts.items()}

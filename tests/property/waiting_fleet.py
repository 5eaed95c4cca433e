"""Clients that wait for one bucket, in simulated time: latency, cancels, stops and crashes.

The bucket is a model of a store that takes conditional writes. The functions and the waiting line
of the package decide what the clients send, and when their callers go on.

The methods under "guards" are replaced by the planted defects of ``test_waiting``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sim.schedule import Process, Schedule
from tests.support.changes import carried, charge_of, sent_moves, settlement_of
from zae_limiter.admission.fit import admits
from zae_limiter.admission.image import BucketImage, is_paused
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Move, after
from zae_limiter.admission.request import BucketChange, Charge
from zae_limiter.admission.reservation import (
    Reservation,
    Waking,
    bound_ms,
    next_try_ms,
    on_waking,
)
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.admission.statuses import statuses, under_limits
from zae_limiter.items.buckets.outcomes import applied_outcomes
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.limit import Limit
from zae_limiter.waiting.line import Sleeper, WaitingLine

START_MS = 1_800_000_000_000
STOP_MS = 20_000
NOTED_MS = (0, 0, 1, 20)  # until a caller that has left notes its credit
MOVING_MS = (0, 0, 0, 5, 300)  # until a caller comes to the next step of moving dues


class Setting(NamedTuple):
    """What a fleet is like. Shares are of all callers, or of all clients."""

    capacity: int = 10
    per_second: int = 10
    clients: int = 4
    callers: int = 60
    largest: int = 1
    spread_ms: int = 2000  # callers arrive within that time
    shortest_wait_ms: int = 1
    longest_wait_ms: int = 30_000
    latency_ms: int = 20
    cancels: float = 0.0
    stops: float = 0.0
    crashes: float = 0.0
    reads: bool = True
    pauses: tuple[tuple[int, int], ...] = ()  # when each begins, and how long it lasts


class Shown(NamedTuple):
    """The bucket item, as far as the package asks for it."""

    image: BucketImage
    shard: Shard = WHOLE


class Caller:
    """One acquire that waits, and what became of it."""

    def __init__(self, number: int, client: Client, amount: int, at_ms: int, wait_ms: int) -> None:
        self.number, self.client = number, client
        self.amount_milli, self.at_ms, self.deadline_ms = amount * 1000, at_ms, at_ms + wait_ms
        self.reservation: Reservation | None = None
        self.sleeper: Sleeper | None = None
        self.stamp_ms = self.answered_ms = self.decided_ms = self.entered_ms = 0
        self.due_ms = 0  # when it has entered
        self.outcome: str | None = None  # entered, rejected, cancelled, late
        self.is_cancelled = False
        self.credit = 0  # the number of its credit among those of its client
        self.lapses = 0
        self.turned_away_ms = 0  # when it has learned of a pause that it waits for

    def wake(self) -> bool:
        """Be woken by the waiting line: the due has moved."""
        assert self.sleeper is not None
        self.client.at(self.sleeper.due_ms, lambda: self.client.on_due(self))
        return True


class Sent(NamedTuple):
    """A write on its way: the callers whose charges it carries, those left out, and the credits."""

    stamp_ms: int
    callers: list[Caller]
    left_out: list[Caller]
    credits: list[Caller]
    moves: list[Move]
    paused_until_ms: int | None  # as the client knows it: part of the digest


class Client(Process):
    """One process: a write queue with one write in flight, and a waiting line."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.fleet = fleet
        self.queue: list[Caller] = []
        self.credits: list[Caller] = []
        self.held_back: list[Caller] = []
        self.cached: BucketImage | None = None
        self.line = WaitingLine(now_s=lambda: fleet.now_ms / 1000, step=3)
        self.is_writing = self.moves_dues = False
        self.sent_credits = 0

    # --- writing

    def ask(self, caller: Caller) -> None:
        self.queue.append(caller)
        self.write()

    def write(self) -> None:
        if self.is_writing or not (self.queue or self.credits):
            return
        callers, given = self.queue, self.credits
        self.queue, self.credits, self.is_writing = [], [], True
        stamp_ms, cached = self.fleet.now_ms, self.cached
        if cached is not None and callers and is_paused(cached, stamp_ms):
            self.fleet.at(self.fleet.later(), lambda: self._read_first(stamp_ms, callers, given))
        else:
            self._send(stamp_ms, callers, given, cached, is_fresh=False)

    def _read_first(self, stamp_ms: int, callers: list[Caller], given: list[Caller]) -> None:
        image = self.cached = self.fleet.image
        send = partial(self._send, stamp_ms, callers, given, image, is_fresh=True)
        self.at(self.fleet.later(), send)

    def _send(
        self,
        stamp_ms: int,
        callers: list[Caller],
        given: list[Caller],
        image: BucketImage | None,
        *,
        is_fresh: bool,
    ) -> None:
        image = under_limits(image, self.fleet.in_force, stamp_ms)
        changes = [self.fleet.credit(each) for each in given]
        changes += [self.fleet.charge(each) for each in callers]
        taken = carried(changes, image, stamp_ms)
        if not taken and not is_fresh:
            taken = [0]  # what is cached may be outdated: the store decides
        if not taken:
            self._judge(callers, image, stamp_ms)
            return
        selected = [changes[at] for at in taken]
        moves = sent_moves(selected, image, stamp_ms)
        taken_along = [callers[at - len(given)] for at in taken if at >= len(given)]
        left_out = [caller for caller in callers if caller not in taken_along]
        sent = Sent(stamp_ms, taken_along, left_out, given, moves, image.paused_until_ms)
        self.fleet.at(self.fleet.later(), lambda: self.fleet.arrive(self, sent))

    def _judge(self, callers: list[Caller], image: BucketImage, stamp_ms: int) -> None:
        """Reject what does not fit into a bucket that was just seen; ask for the rest again."""
        fitting = []
        for caller in callers:
            again_ms = self._again_ms(caller, image, stamp_ms)
            if admits(image, self.fleet.charge(caller), stamp_ms):
                fitting.append(caller)
            elif again_ms is not None and not caller.is_cancelled:
                caller.turned_away_ms = self.fleet.now_ms
                self.held_back.append(caller)
                self.at(again_ms, self.resume)
            else:
                self.fleet.decide(caller, "cancelled" if caller.is_cancelled else "rejected")
        if fitting:
            self._send(stamp_ms, fitting, [], image, is_fresh=True)
        else:
            self.is_writing = False
            self.write()

    def _again_ms(self, caller: Caller, image: BucketImage, stamp_ms: int) -> int | None:
        """When a caller may ask again that a pause has turned away; None if it is too late then."""
        if not is_paused(image, stamp_ms):
            return None
        charge = Charge("user", "api", self.fleet.in_force, {"x": caller.amount_milli})
        bound = bound_ms(caller.deadline_ms, stamp_ms)
        seen = statuses(charge, image, stamp_ms)
        return next_try_ms(seen, stamp_ms, bound, caller.deadline_ms)

    def resume(self) -> None:
        """Ask for the callers that a pause has held back, before those that come later."""
        self.queue = sorted(self.held_back, key=lambda each: each.number) + self.queue
        self.held_back = []
        self.write()

    def on_refused(self, sent: Sent, image: BucketImage) -> None:
        self.cached = image
        callers = sorted(sent.callers + sent.left_out, key=lambda each: each.number)
        self._send(sent.stamp_ms, callers, sent.credits, image, is_fresh=True)

    def on_applied(self, sent: Sent, image: BucketImage) -> None:
        self.cached = image
        changes = [self.fleet.credit(each) for each in sent.credits]
        changes += [self.fleet.charge(each) for each in sent.callers]
        outcomes = applied_outcomes(changes, Shown(image), sent.stamp_ms)  # type: ignore[arg-type]
        for caller in sent.credits:
            self.at(self.fleet.now_ms + self.fleet.chance.choice(NOTED_MS), self._noting(caller))
        for caller, outcome in zip(sent.callers, outcomes[len(sent.credits) :], strict=True):
            assert outcome.reservation is not None
            caller.reservation = self.placed(outcome.reservation)
            caller.stamp_ms, caller.answered_ms = sent.stamp_ms, self.fleet.now_ms
            if caller.is_cancelled:
                self._withdraw(caller, "cancelled")
                continue
            caller.sleeper = Sleeper("bucket", caller.reservation)
            caller.sleeper.waiter = caller
            caller.sleeper.after_credit = self.after_credit()
            self.line.add(caller.sleeper)
            caller.wake()
        self.move_dues()
        self._judge(sent.left_out, image, sent.stamp_ms)

    # --- waiting

    def move_dues(self) -> None:
        """Move the dues of the line a little later, in steps between which anything may happen."""
        if self.line.has_news and not self.moves_dues:
            self.moves_dues = True
            self.at(self.fleet.now_ms + self.fleet.chance.choice(MOVING_MS), self._move_dues)

    def _move_dues(self) -> None:
        self.moves_dues = False
        self.line.move_up(self.fleet.now_ms)
        self.move_dues()

    def on_due(self, caller: Caller) -> None:
        """Go on, unless the due has moved away or passed long ago."""
        sleeper, now_ms = caller.sleeper, self.fleet.now_ms
        if sleeper is None or caller.outcome is not None or now_ms < sleeper.due_ms:
            return
        caller.due_ms, waking = self.due_of(sleeper), Waking.ENTER
        if sleeper.due_ms > caller.stamp_ms:  # else the tokens were there at once
            waking = self.on_waking(now_ms - sleeper.due_ms, now_ms - caller.deadline_ms)
        if waking is Waking.LATE:
            self._withdraw(caller, "late")
            return
        self.line.remove(sleeper)
        caller.sleeper = None
        if waking is Waking.LAPSED:
            caller.lapses += 1
            if now_ms < caller.deadline_ms:
                self.ask(caller)
            else:
                self.fleet.decide(caller, "late")
            return
        caller.entered_ms = now_ms
        self.fleet.decide(caller, "entered")

    def cancel(self, caller: Caller) -> None:
        if caller.outcome is not None:
            return
        caller.is_cancelled = True
        for waiting in (self.queue, self.held_back):
            if caller in waiting:
                waiting.remove(caller)
                self.fleet.decide(caller, "cancelled")
                return
        if caller.sleeper is not None:
            self._withdraw(caller, "cancelled")

    def _withdraw(self, caller: Caller, outcome: str) -> None:
        """Leave the line first, then send the credit."""
        if caller.sleeper is not None:
            self.line.remove(caller.sleeper)
            caller.sleeper = None
        self.fleet.decide(caller, outcome)
        self.sent_credits += 1
        caller.credit = self.sent_credits
        self.credits.append(caller)
        self.write()

    def _noting(self, caller: Caller) -> Callable[[], None]:
        """Return the note of a credit, which is made a little after its answer."""

        def note() -> None:
            assert caller.reservation is not None
            self.credited(caller.reservation, caller.credit)
            self.move_dues()

        return note

    # --- guards

    def credited(self, withdrawn: Reservation, number: int) -> None:
        """Tell the line of a credit, once."""
        self.line.note_credit(withdrawn, number)

    def after_credit(self) -> int:
        """Return the number of the last credit that was sent."""
        return self.sent_credits

    def placed(self, reservation: Reservation) -> Reservation:
        """Return the reservation of a caller, without the charges behind it in its write."""
        return reservation

    def due_of(self, sleeper: Sleeper) -> int:
        """Return the due of a caller; it is never moved into the past."""
        return sleeper.due_ms

    def on_waking(self, after_due_ms: int, after_deadline_ms: int) -> Waking:
        """Decide whether a caller that wakes may use its reservation."""
        return on_waking(after_due_ms, after_deadline_ms)

    # --- reading

    def look(self) -> None:
        """Read the bucket while callers wait for more than a second."""
        if any(each.due_ms > self.fleet.now_ms + 1000 for each in self.line.reserved):
            self.fleet.at(self.fleet.later(), lambda: self.fleet.show(self))
        if not self.fleet.is_over():
            self.at(self.fleet.now_ms + 1000, self.look)


class Fleet(Schedule):
    """All clients, the bucket between them, and the time."""

    def __init__(self, seed: int, setting: Setting, client: type[Client] = Client) -> None:
        super().__init__(START_MS)
        self.setting, self.chance = setting, random.Random(seed)
        limit = Limit.custom("x", setting.capacity, setting.per_second, 1)
        self.in_force = InForce((limit,), ConfigSource.SYSTEM, 1)
        self.image: BucketImage = under_limits(None, self.in_force, START_MS)
        self.writes = self.refused = self.admitted_in_pause = 0
        self.applied_ms: list[int] = []
        self.given_back: list[tuple[int, int]] = []  # moment and amount
        self.clients = [client(self) for _ in range(setting.clients)]
        self.callers = [self._caller(number) for number in range(setting.callers)]

    def run(self) -> Fleet:
        for client in self.clients:
            if self.setting.reads:
                client.at(self.now_ms + self.chance.randrange(1000), client.look)
            if self.chance.random() < self.setting.stops:
                self.at(START_MS + self.chance.randrange(10_000), lambda c=client: self._stop(c))
            elif self.chance.random() < self.setting.crashes:
                self.at(START_MS + self.chance.randrange(10_000), lambda c=client: self._crash(c))
        for begins_ms, lasts_ms in self.setting.pauses:
            self.at(START_MS + begins_ms, partial(self._pause, begins_ms + lasts_ms))
        self.run_until()
        return self

    def later(self) -> int:
        """When a message arrives that is sent now."""
        return self.now_ms + self.chance.randint(1, self.setting.latency_ms)

    def is_over(self) -> bool:
        return all(each.outcome is not None or not each.client.is_alive for each in self.callers)

    def charge(self, caller: Caller) -> BucketChange:
        amounts = {"x": caller.amount_milli}
        return charge_of(self.in_force, amounts, until_ms=self.until_ms(caller))

    def credit(self, caller: Caller) -> BucketChange:
        return settlement_of(self.in_force, {"x": -caller.amount_milli}, admitted=-1)

    def decide(self, caller: Caller, outcome: str) -> None:
        assert caller.outcome is None
        caller.outcome, caller.decided_ms = outcome, self.now_ms

    # --- guards

    def until_ms(self, caller: Caller) -> int | None:
        """Return the moment by which the tokens of a caller must have accrued."""
        return caller.deadline_ms

    def knows_the_pause(self, sent: Sent) -> bool:
        return sent.paused_until_ms == self.image.paused_until_ms

    def lets_through(self, move: Move) -> bool:
        balance = self.image.limits[move.key].balance_milli
        is_enough = move.low is None or balance >= move.low
        return is_enough and (move.high is None or balance <= move.high)

    # --- the bucket

    def arrive(self, client: Client, sent: Sent) -> None:
        """Apply a write if its conditions hold, and answer with the item."""
        before = self.image
        if not (self.knows_the_pause(sent) and all(map(self.lets_through, sent.moves))):
            self.refused += 1
            client.at(self.later(), lambda: client.on_refused(sent, before))
            return
        self.writes += 1
        self.applied_ms.append(self.now_ms)
        if is_paused(before, sent.stamp_ms):
            self.admitted_in_pause += len(sent.callers)
        elif sent.callers:
            before = before._replace(paused_until_ms=None)
        self.image = after(before, sent.moves)._replace(writes=self.writes)
        given = sum(caller.amount_milli for caller in sent.credits)
        if given:
            self.given_back.append((self.now_ms, given))
        image = self.image
        client.at(self.later(), lambda: client.on_applied(sent, image))

    def show(self, client: Client) -> None:
        image = self.image

        def see() -> None:
            client.line.note_image(image)
            client.move_dues()

        client.at(self.later(), see)

    # --- what happens

    def _caller(self, number: int) -> Caller:
        setting, chance = self.setting, self.chance
        client = chance.choice(self.clients)
        at_ms = START_MS + number * setting.spread_ms // setting.callers
        amount = chance.randint(1, setting.largest)
        wait_ms = chance.randint(setting.shortest_wait_ms, setting.longest_wait_ms)
        caller = Caller(number, client, amount, at_ms, wait_ms)
        client.at(at_ms, lambda: client.ask(caller))
        if chance.random() < setting.cancels:
            moment_ms = at_ms + chance.randrange(setting.longest_wait_ms // 2)
            client.at(moment_ms, lambda: client.cancel(caller))
        return caller

    def _pause(self, until_ms: int) -> None:
        until_ms = max(START_MS + until_ms, self.image.paused_until_ms or 0)
        self.image = self.image._replace(paused_until_ms=until_ms)

    def _stop(self, client: Client) -> None:
        client.stopped_until_ms = self.now_ms + STOP_MS

    def _crash(self, client: Client) -> None:
        client.is_alive = False

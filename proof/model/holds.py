"""Every history of two clients whose calls hold amounts of a quota, up to the bounds.

**Rules.** In no window do calls cost more than its amount, with the estimates of those that are
alive. A charge is carried out once, and a call is settled once, also if a request is delivered
twice. The amount of an expired hold is returned once. Level, held amounts and costs add up to the
amount of the window, and the counted use is that of the costs and the held amounts. No client asks
again for what was carried out, and none is told of a write that was not made.

A defect is a subclass with one method of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from proof.model import calls as ledger
from proof.model import quota
from proof.model.calls import Calls, Wrong
from proof.model.delivery import Faults, Heard, Way, ways
from proof.model.quota import Held, Item, Planned, Wish, Write, at_ms, units
from proof.model.search import Search
from zae_limiter.admission.windows import window_of
from zae_limiter.items.buckets.planning import ReadFirst

IDLE, WAITING = "idle", "waiting"


class Message(NamedTuple):
    """A write on its way. ``first_op`` is the id under which its client has asked first."""

    op: int
    first_op: int
    client: int
    wish: Wish
    now_ms: int
    write: Write


class Client(NamedTuple):
    """What one client knows and waits for; ``left`` counts the operations it may still begin."""

    left: int
    seen: Item
    held: Held | None = None  # its call in flight
    phase: str = IDLE  # or in what way its request was lost
    message: Message | None = None
    tries: int = 0


class State(NamedTuple):
    """Everything: two states that are equal have the same future.

    ``made`` are the writes that were carried out, each with the id under which its client has
    asked first. ``in_doubt`` is the sum of the amounts whose renewal has an unknown outcome.
    ``broken`` is the rule that a step has broken.
    """

    moment: int
    item: Item
    clients: tuple[Client, Client]
    messages: tuple[Message, ...] = ()
    calls: Calls = ()
    next_op: int = 1
    made: frozenset[tuple[int, int]] = frozenset()
    faults: Faults = Faults()
    in_doubt: int = 0
    broken: str | None = None


@dataclass(slots=True)
class Bounds:
    """How far the exploration goes; the window ends at the moment ``edge``.

    With ``copies``, both clients make four writes at most: then no more than three others come
    between two deliveries. The same is required of ``losses`` with several ``tries``, since an
    original that is late may come after its repetition.
    """

    moments: int = 3
    edge: int = 9
    operations: tuple[int, int] = (2, 2)  # of each client
    tries: int = 2
    estimates: tuple[int, ...] = (2,)  # of the three tokens in a window
    costs: tuple[int, ...] = (0, 1, 3)  # a release, a refund and a debt
    groups: bool = False  # whether a call may end and another begin in one write
    losses: int = 0  # answers that may be lost in one history
    copies: int = 0  # requests that may be delivered twice in one history


class Explorer(Search[State]):
    """The write protocol of holds: charges, settlements, releases, renewals, sweeps and turns."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self.bounds = bounds

    def first_state(self) -> State:
        item = quota.full_item(at_ms(0, self.bounds.edge))
        one, other = (Client(count, item) for count in self.bounds.operations)
        return State(0, item, (one, other))

    # --- steps

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.moment < self.bounds.moments:
            yield "time passes", state._replace(moment=state.moment + 1)
        for number, client in enumerate(state.clients):
            if client.phase == IDLE and client.left:
                yield from self._begin(state, number, client)
            elif client.phase not in (IDLE, WAITING):
                yield from self.resolve(state, number, client)
        for index, message in enumerate(state.messages):
            yield from self._deliver(state, index, message)

    def _begin(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        """Begin an operation, with the item as the client has seen it, or as it is."""
        now_ms = at_ms(state.moment, self.bounds.edge)
        for seen in {client.seen, state.item}:
            fresh = client._replace(left=client.left - 1, seen=seen, tries=1)
            for wish in self._wishes(client.held, now_ms):
                yield from self._ask(state, number, fresh, wish, now_ms)

    def _wishes(self, held: Held | None, now_ms: int) -> Iterator[Wish]:
        """Yield what a client may want: a call, or the end or renewal of its call."""
        estimates = [units(each) for each in self.bounds.estimates]
        if held is None:
            for estimate in estimates:
                yield Wish(estimate)
            return
        for cost in self.bounds.costs:
            yield Wish(held=held, cost=units(cost))
            if self.bounds.groups:
                for estimate in estimates:
                    yield Wish(estimate, held, units(cost))
        if quota.is_due(held.hold, now_ms):
            yield Wish(held=held)

    def _ask(
        self,
        state: State,
        number: int,
        client: Client,
        wish: Wish,
        now_ms: int,
        before: Message | None = None,
        *,
        is_fresh: bool = False,
    ) -> Iterator[tuple[str, State]]:
        """Plan a write and send it, after a look at the item if the plan requires one.

        ``before`` is the refused message for which the client asks again.
        """
        step = self.planned(client.seen, wish, now_ms, is_fresh=is_fresh)
        if isinstance(step, ReadFirst):
            client = client._replace(seen=state.item)
            step = self.planned(client.seen, wish, now_ms, is_fresh=True)
        if step is None:
            yield f"client {number} has nothing to write", self.given_up(state, number, client)
            return
        assert isinstance(step, Write), "a bucket that was read just now is not read again"
        op = state.next_op
        message = Message(op, before.first_op if before else op, number, wish, now_ms, step)
        yield self._send(state, client, message)

    def planned(self, item: Item, wish: Wish, now_ms: int, *, is_fresh: bool) -> Planned:
        """Return the write that the library plans; the ids are no part of its plan."""
        return quota.planned(item._replace(ids=quota.NO_IDS), wish, now_ms, is_fresh=is_fresh)

    def _send(self, state: State, client: Client, message: Message) -> tuple[str, State]:
        waiting = client._replace(phase=WAITING, message=message)
        after = state._replace(
            messages=(*state.messages, message), next_op=max(state.next_op, message.op + 1)
        )
        if message.first_op in {first_op for op, first_op in state.made if op != message.op}:
            after = after._replace(broken="a client asked again for what was carried out")
        said = f"client {message.client} sends op {message.op}: {message.wish} {message.write}"
        return said, with_client(after, message.client, waiting)

    def _deliver(self, state: State, index: int, message: Message) -> Iterator[tuple[str, State]]:
        """The store gets a request, or does not yet; the client hears the answer, or another end.

        A copy that comes later changes nothing for a client that has heard the first answer.
        """
        client = state.clients[message.client]
        is_awaited = client.phase == WAITING and client.message == message
        most = Faults(self.bounds.losses, self.bounds.copies)
        is_made, arrived = self._arrive(state, message)
        told = "made" if is_made else "refused"
        for way in ways(state.faults, most, is_awaited=is_awaited):
            after = arrived if way.arrives else state
            if not way.stays:
                others = state.messages[:index] + state.messages[index + 1 :]
                after = after._replace(messages=others)
            after = after._replace(faults=state.faults.after(way))
            said = f"op {message.op} is {told if way.arrives else 'on its way'}, {way}"
            if is_awaited and way.heard is Heard.ANSWER:
                yield from self._hear(after, message, said, is_made=is_made)
            elif is_awaited and way.is_lost:
                yield said, _lost(after, message, way)
            else:
                yield said, after

    def _arrive(self, state: State, message: Message) -> tuple[bool, State]:
        """Return whether the store carries a request out, and the state after it."""
        write, op, now_ms = message.write, message.op, message.now_ms
        if not self.allows(state.item, write, op):
            return False, state
        item = quota.carried_out(state.item, write, op)
        state = state._replace(made=state.made | {(op, message.first_op)})
        window = window_of(item.balance)
        try:
            calls = ledger.after(state.calls, message.wish, write, op, window, now_ms)
        except Wrong as wrong:
            return True, state._replace(item=item, broken=str(wrong))
        broken, arrived_ms = state.broken, at_ms(state.moment, self.bounds.edge)
        if write.taken is not None:
            if write.taken.window != window:
                broken = "a charge was counted in another window"
            elif ledger.is_overfull(calls, window, arrived_ms, state.in_doubt):
                broken = "more was admitted than the amount of the window"
        return True, state._replace(item=item, calls=calls, broken=broken)

    def allows(self, item: Item, write: Write, op: int) -> bool:
        return quota.allows(item, write, op)

    # --- a client that hears an answer, or none

    def _hear(
        self, state: State, message: Message, said: str, *, is_made: bool
    ) -> Iterator[tuple[str, State]]:
        number, client = message.client, state.clients[message.client]
        if is_made or self.shows(state, message):
            yield from self.finished(state, number, client, said)
        elif message.write.last_op not in (None, state.item.ids.last):
            yield f"{said}, in doubt", self.given_up(state, number, client)
        elif client.tries < self.bounds.tries:  # the refusal has brought the item with it
            again = client._replace(seen=state.item, tries=client.tries + 1)
            wish, now_ms = message.wish, message.now_ms
            asks = self._ask(state, number, again, wish, now_ms, message, is_fresh=True)
            for step, after in asks:
                yield f"{said}: {step}", after
        else:
            yield f"{said}, gives up", self.given_up(state, number, client)

    def resolve(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        """Find out about a write of unknown outcome, by the ids on the item."""
        message = client.message
        assert message is not None
        may_repeat = message.write.may_repeat and client.tries < self.bounds.tries
        if client.phase == Heard.ERROR.value and may_repeat:
            yield self.repeat(state, client, message)
        elif self.shows(state, message):
            yield from self.finished(state, number, client, "finds its op")
        elif (
            client.phase == Heard.CLOSED.value
            and may_repeat
            and state.item.ids.last == client.seen.ids.last
        ):
            yield self.repeat(state, client, message)
        else:
            yield "gives up", self.unknown(state, number, client)

    def repeat(self, state: State, client: Client, message: Message) -> tuple[str, State]:
        """Send a charge again under its id, if nobody has written since the client has looked."""
        guarded = message.write._replace(last_op=client.seen.ids.last)
        again = client._replace(tries=client.tries + 1)
        return self._send(state, again, message._replace(write=guarded))

    def shows(self, state: State, message: Message) -> bool:
        """Tell whether the item shows that a request was carried out."""
        return state.item.ids.shows(message.op)

    def finished(
        self, state: State, number: int, client: Client, said: str
    ) -> Iterator[tuple[str, State]]:
        """A client learns that its write was made; a charge that was left out comes next."""
        message = client.message
        assert message is not None
        wish, write = message.wish, message.write
        if (message.op, message.first_op) not in state.made:
            state = state._replace(broken="a client was told of a write that was not made")
        held = _held_after(client.held, message)
        idle = Client(client.left, state.item, held)
        after = with_client(state, number, idle)
        if not wish.charge or write.taken is not None:
            yield said, after
            return
        rest = idle._replace(tries=client.tries)
        asks = self._ask(after, number, rest, Wish(wish.charge), message.now_ms, is_fresh=True)
        for step, later in asks:
            yield f"{said}: {step}", later

    def given_up(self, state: State, number: int, client: Client) -> State:
        """Return the state after an operation that was not made; a call that ends expires then."""
        message = client.message
        ends = message is not None and message.wish.cost is not None
        idle = Client(client.left, state.item, None if ends else client.held)
        return with_client(state, number, idle)

    def unknown(self, state: State, number: int, client: Client) -> State:
        """Return the state after an operation of unknown outcome; a renewal counts as made."""
        message = client.message
        assert message is not None
        held = message.wish.held
        if held is None or message.wish.cost is not None:
            return self.given_up(state, number, client)
        hold = quota.renewed_in_doubt(held.hold, message.now_ms)
        idle = Client(client.left, state.item, held._replace(hold=hold))
        after = state._replace(in_doubt=state.in_doubt + hold.units)
        return with_client(after, number, idle)

    # --- rules

    def broken_rule(self, state: State) -> str | None:
        if state.broken is not None:
            return state.broken
        return ledger.broken_rule(state.item, state.calls, in_doubt=state.faults.lost > 0)


def _held_after(held: Held | None, message: Message) -> Held | None:
    """Return the call in flight of a client whose write was carried out."""
    wish, write = message.wish, message.write
    if write.taken is not None:
        return Held(message.op, write.taken)
    if wish.held is None or wish.cost is not None:
        return None
    if held is None or write.renewed_s is None:
        return held
    return held._replace(hold=held.hold._replace(expires_s=write.renewed_s))


def _lost(state: State, message: Message, way: Way) -> State:
    client = state.clients[message.client]._replace(phase=way.heard.value)
    return with_client(state, message.client, client)


def with_client(state: State, number: int, client: Client) -> State:
    clients = (client, state.clients[1]) if number == 0 else (state.clients[0], client)
    return state._replace(clients=clients)

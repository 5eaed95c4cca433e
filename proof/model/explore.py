"""Every history of the model, up to its bounds, and the rules that all of them keep.

**Rules.** In no window is more admitted than capacity + refill + refunds in it. No charge is made
twice and no refund is credited twice, also if a request is delivered twice. No client asks again
for what was carried out, and none is admitted whose charge was not. The counted use is that of the
charges that were carried out, less their refunds.

A defect is a subclass with one method of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from proof.model import world
from proof.model.delivery import Faults, Heard, Way, ways
from proof.model.search import Search
from proof.model.world import CHARGES, RATES, Item, Items, Message, Part

IDLE, WAITING = "idle", "waiting"


class Client(NamedTuple):
    """What one client knows and waits for; ``left`` counts the operations it may still begin."""

    left: int
    seen: Items
    phase: str = IDLE  # or in what way its request was lost
    message: Message | None = None
    tries: int = 0
    last_op: int = 0  # of the shard that it writes to, as it was seen
    holds: tuple[int, int] | None = None  # shard and amount of a grant, to be refunded


class Done(NamedTuple):
    """A charge or credit that was carried out: between its stamp and that moment."""

    op: int
    first_op: int
    stamp: int
    moment: int
    amount: int


class State(NamedTuple):
    """Everything: two states that are equal have the same future."""

    moment: int
    items: Items
    clients: tuple[Client, Client]
    messages: tuple[Message, ...] = ()
    done: tuple[Done, ...] = ()
    admitted: tuple[int, ...] = ()
    rebased: int | None = None  # the moment of the first change of limits
    next_op: int = 1
    faults: Faults = Faults()
    asked_again: bool = False  # for what was carried out


@dataclass(slots=True)
class Bounds:
    """How far the exploration goes.

    With ``copies``, the operations of both clients are four at most: then no more than three other
    writes come between two deliveries. The same is required of ``losses`` with several ``tries``,
    since an original that is late may come after its repetition. With copies, merges are left out
    as well: a shard that is created anew shows none of the ids of the one before. Transactions are
    not copied, since DynamoDB knows them by a token for ten minutes.
    """

    moments: int = 2
    operations: tuple[int, int] = (2, 1)  # of each client
    tries: int = 2
    kinds: tuple[str, ...] = ("charge", "credit", "rebase", "split", "merge", "gather")
    losses: int = 1  # answers that may be lost in one history
    copies: int = 0  # requests that may be delivered twice in one history


class Explorer(Search[State]):
    """The write protocol of rates: charges, refunds, changes of limits, splits, merges, gathers."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self.bounds = bounds

    def first_state(self) -> State:
        items = world.full_items()
        one, other = (Client(count, items) for count in self.bounds.operations)
        return State(0, items, (one, other))

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
        """Begin an operation, with what the client has seen, or with a fresh reading."""
        for seen in {client.seen, state.items}:
            for kind, amount, parts in _requests(seen, client, state.moment, self.bounds.kinds):
                fresh = client._replace(left=client.left - 1, seen=seen, tries=1)
                if kind == "credit":
                    fresh = fresh._replace(holds=None)
                op = state.next_op
                message = Message(op, op, number, kind, state.moment, amount, parts)
                yield self._send(state, fresh, message)

    def _send(self, state: State, client: Client, message: Message) -> tuple[str, State]:
        written = client.seen[message.parts[0].number]
        waiting = client._replace(
            phase=WAITING, message=message, last_op=0 if written is None else written.ids.last
        )
        after = state._replace(
            messages=(*state.messages, message),
            next_op=max(state.next_op, message.op + 1),
            asked_again=state.asked_again or _is_done_under_another_id(state, message),
        )
        said = f"client {message.client} sends {message.kind} {message.amount} op {message.op}"
        return f"{said} {message.parts}", _with_client(after, message.client, waiting)

    def _deliver(self, state: State, index: int, message: Message) -> Iterator[tuple[str, State]]:
        """The store gets a request, or does not yet; the client hears the answer, or another end.

        A copy that comes later changes nothing for a client that has heard the first answer.
        """
        client = state.clients[message.client]
        is_awaited = client.phase == WAITING and client.message == message
        copies = 0 if message.is_transaction else self.bounds.copies
        told, arrived = self._arrive(state, message)
        for way in ways(state.faults, Faults(self.bounds.losses, copies), is_awaited=is_awaited):
            after = arrived if way.arrives else state
            if not way.stays:
                others = state.messages[:index] + state.messages[index + 1 :]
                after = after._replace(messages=others)
            after = after._replace(faults=state.faults.after(way))
            said = f"op {message.op} is {told if way.arrives else 'on its way'}, {way}"
            if is_awaited and way.heard is Heard.ANSWER:
                yield from self._hear(after, message.client, told, said)
            elif is_awaited and way.is_lost:
                yield said, _lost(after, message, way)
            else:
                yield said, after

    def _arrive(self, state: State, message: Message) -> tuple[str, State]:
        """Return what the store tells, and the state after it."""
        items = world.carried_out(state.items, message, self.allows)
        if items is None:
            return "refused", state
        after = state._replace(items=items)
        sign = {"charge": 1, "gather": 1, "credit": -1}.get(message.kind, 0)
        if sign:
            op, first_op, stamp = message.op, message.first_op, message.stamp
            done = Done(op, first_op, stamp, state.moment, sign * message.amount)
            after = after._replace(done=(*state.done, done))
        if message.kind == "rebase" and state.rebased is None:
            after = after._replace(rebased=state.moment)
        return "ok", after

    def resolve(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        """Find out about a write of unknown outcome, by the ids on the item."""
        assert client.message is not None
        may_repeat = client.message.kind == "charge" and client.tries < self.bounds.tries
        if client.phase == Heard.ERROR.value and may_repeat:
            yield from self.repeat(state, number, client)
        elif self.shows(state, client.message):
            yield "finds its op", self.finished(state, number, client)
        elif (
            client.phase == Heard.CLOSED.value
            and may_repeat
            and self._is_unchanged(state, client, client.message)
        ):
            yield from self.repeat(state, number, client)
        else:
            yield "gives up", self.given_up(state, number, client)

    def repeat(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        """Send a charge again under its id, if nobody has written since the client has looked."""
        assert client.message is not None
        (part,) = client.message.parts
        guarded = (part._replace(last_op=client.last_op),)
        again = client._replace(tries=client.tries + 1)
        yield self._send(state, again, client.message._replace(parts=guarded))

    def _hear(self, state: State, number: int, told: str, said: str) -> Iterator[tuple[str, State]]:
        client = state.clients[number]
        message = client.message
        assert message is not None
        is_made = told == "ok" or (not message.is_transaction and self.shows(state, message))
        is_retried = message.kind in ("charge", "credit") and client.tries < self.bounds.tries
        if is_made:
            yield said, self.finished(state, number, client)
        elif message.is_guarded and not self._is_unchanged(state, client, message):
            yield f"{said}, in doubt", self.given_up(state, number, client)
        elif is_retried:
            yield from self._retry(state, number, client, message)
        else:
            yield said, self.given_up(state, number, client)

    def _retry(
        self, state: State, number: int, client: Client, message: Message
    ) -> Iterator[tuple[str, State]]:
        """A refused write has brought the item with it: once more, at the same stamp."""
        fresh = client._replace(seen=state.items, tries=client.tries + 1)
        amount, stamp = message.amount, message.stamp
        if message.kind == "charge":
            planned = list(world.charges(state.items, amount, stamp))
        else:
            back = world.credit(state.items, message.parts[0].number, amount)
            planned = [] if back is None else [back]
        for parts in planned:
            again = message._replace(op=state.next_op, parts=parts)
            step, after = self._send(state, fresh, again)
            yield f"op {message.op} is refused: {step}", after
        yield "rejected", self.given_up(state, number, client)

    def shows(self, state: State, message: Message) -> bool:
        """Tell whether the item shows that a request was carried out."""
        item = state.items[message.parts[0].number]
        return item is not None and item.ids.shows(message.op)

    def _is_unchanged(self, state: State, client: Client, message: Message) -> bool:
        """Tell whether nobody has written to the shard since the client has looked."""
        item = state.items[message.parts[0].number]
        return item is not None and item.ids.last == client.last_op

    def finished(self, state: State, number: int, client: Client) -> State:
        """Return the state after a client has learned that its request was carried out."""
        message = client.message
        assert message is not None
        idle = self._idle(client, state.items)
        if message.kind not in ("charge", "gather"):
            return _with_client(state, number, idle)
        idle = idle._replace(holds=(message.parts[0].number, message.amount))
        return _with_client(state, number, idle)._replace(admitted=(*state.admitted, message.op))

    def given_up(self, state: State, number: int, client: Client) -> State:
        """Return the state after a client has ended an operation, not knowing that it was made."""
        return _with_client(state, number, self._idle(client, state.items))

    def _idle(self, client: Client, seen: Items) -> Client:
        return Client(client.left, seen, holds=client.holds)

    def allows(self, item: Item, part: Part, op: int) -> bool:
        return world.allows(item, part, op)

    # --- rules

    def broken_rule(self, state: State) -> str | None:
        charged = [each for each in state.done if each.amount > 0]
        ops = [each.op for each in charged]
        credited = [each.op for each in state.done if each.amount < 0]
        if len(set(ops)) < len(ops):
            return "a charge was carried out twice"
        if len(set(credited)) < len(credited):
            return "a refund was credited twice"
        if state.asked_again:
            return "a client asked again for what was carried out"
        if not set(state.admitted) <= set(ops):
            return "a charge was admitted that was not carried out"
        if world.consumed(state.items) != sum(each.amount for each in state.done):
            return "the counted use is wrong"
        return self._overfull_window(state, charged)

    def _overfull_window(self, state: State, charged: list[Done]) -> str | None:
        admitted = [each for each in charged if each.op in state.admitted]
        back = [each for each in state.done if each.amount < 0]
        for begin in {each.stamp for each in admitted}:
            for end in {each.moment for each in admitted}:
                taken = sum(
                    each.amount for each in admitted if begin <= each.stamp and each.moment <= end
                )
                returned = -sum(each.amount for each in back if begin <= each.moment <= end)
                allowed = self._capacity(state, begin) + end - begin + returned
                if taken > allowed:
                    return f"{taken} admitted from {begin} to {end}, {allowed} allowed"
        return None

    def _capacity(self, state: State, begin: int) -> int:
        whole, changed = RATES
        is_changed = state.rebased is not None and begin > state.rebased
        # Each shard is changed by itself: until all are, the larger capacity may be in force.
        all_changed = all(item is None or item.terms for item in state.items)
        return changed.capacity_milli if is_changed and all_changed else whole.capacity_milli


def _requests(
    seen: Items, client: Client, stamp: int, kinds: tuple[str, ...]
) -> Iterator[tuple[str, int, tuple[Part, ...]]]:
    if "charge" in kinds:
        for amount in CHARGES:
            for parts in world.charges(seen, amount, stamp):
                yield "charge", amount, parts
    if "gather" in kinds:
        for parts in world.gathers(seen, CHARGES[-1], stamp):
            yield "gather", CHARGES[-1], parts
    if "credit" in kinds and client.holds is not None:
        back = world.credit(seen, *client.holds)
        if back is not None:
            yield "credit", client.holds[1], back
    others = {"rebase": world.rebases, "split": world.splits, "merge": world.merges}
    for kind, plan in others.items():
        if kind in kinds:
            for parts in plan(seen, stamp):
                yield kind, 0, parts


def _is_done_under_another_id(state: State, message: Message) -> bool:
    return any(each.first_op == message.first_op and each.op != message.op for each in state.done)


def _lost(state: State, message: Message, way: Way) -> State:
    client = state.clients[message.client]._replace(phase=way.heard.value)
    return _with_client(state, message.client, client)


def _with_client(state: State, number: int, client: Client) -> State:
    clients = (client, state.clients[1]) if number == 0 else (state.clients[0], client)
    return state._replace(clients=clients)

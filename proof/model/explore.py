"""Every history of the model, up to its bounds, and the rules that all of them keep.

**Rules.** In no window is more admitted than capacity + refill + refunds in it. No charge is made
twice, and none is admitted that was not carried out. The counted use is that of the charges
that were carried out, less their refunds.

A defect is a subclass with one method of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from proof.model import world
from proof.model.world import CHARGES, RATES, Item, Items, Message, Part

IDLE, WAITING, UNSURE = "idle", "waiting", "unsure"


class Client(NamedTuple):
    """What one client knows and waits for; ``left`` counts the operations it may still begin."""

    left: int
    seen: Items
    phase: str = IDLE
    op: int = 0
    kind: str = ""
    amount: int = 0
    stamp: int = 0
    tries: int = 0
    holds: tuple[int, int] | None = None  # shard and amount of a grant, to be refunded
    last_op: int = 0  # of the shard that it writes to, as it was seen
    message: Message | None = None


class Done(NamedTuple):
    """A charge or credit that was carried out: between its stamp and that moment."""

    op: int
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


class Broken(AssertionError):
    """A rule does not hold; the history that leads there is in ``steps``."""

    def __init__(self, rule: str, steps: list[str]) -> None:
        super().__init__("\n".join([rule, *steps]))
        self.rule, self.steps = rule, steps


@dataclass(slots=True)
class Bounds:
    """How far the exploration goes."""

    moments: int = 2
    operations: tuple[int, int] = (2, 1)  # of each client
    tries: int = 2
    kinds: tuple[str, ...] = ("charge", "credit", "rebase", "split", "merge", "gather")
    losses: int = 1  # answers that may be lost in one history


@dataclass(slots=True)
class Explorer:
    """Depth-first search over all states."""

    bounds: Bounds = field(default_factory=Bounds)
    states: int = 0
    transitions: int = 0

    def explore(self) -> None:
        """Visit every state; raises Broken with the history that breaks a rule."""
        items = world.full_items()
        one, other = (Client(count, items) for count in self.bounds.operations)
        first = State(0, items, (one, other))
        seen, stack = {first}, [first]
        came: dict[State, tuple[State, str]] = {}
        while stack:
            state = stack.pop()
            self.states += 1
            for step, after in self.steps(state):
                self.transitions += 1
                if after in seen:
                    continue
                seen.add(after)
                came[after] = (state, step)
                rule = self.broken_rule(after)
                if rule is not None:
                    raise Broken(rule, _path(came, after))
                stack.append(after)

    # --- steps

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.moment < self.bounds.moments:
            yield "time passes", state._replace(moment=state.moment + 1)
        for number, client in enumerate(state.clients):
            if client.phase == IDLE and client.left:
                yield from self._begin(state, number, client)
            elif client.phase == UNSURE:
                yield from self.look(state, number, client)
        for index, message in enumerate(state.messages):
            yield from self._deliver(state, index, message)

    def _begin(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        """Begin an operation, with what the client has seen, or with a fresh reading."""
        kinds = self.bounds.kinds
        for seen in {client.seen, state.items}:
            for kind, amount, parts in _requests(seen, client, state.moment, kinds):
                fresh = client._replace(left=client.left - 1, seen=seen, tries=1)
                if kind == "credit":
                    fresh = fresh._replace(holds=None)
                yield self._send(state, number, fresh, kind, amount, parts, state.moment)

    def _send(
        self,
        state: State,
        number: int,
        client: Client,
        kind: str,
        amount: int,
        parts: tuple[Part, ...],
        stamp: int,
        op: int | None = None,
    ) -> tuple[str, State]:
        written = client.seen[parts[0].number]
        message = Message(state.next_op if op is None else op, number, kind, stamp, amount, parts)
        waiting = client._replace(
            phase=WAITING,
            op=message.op,
            kind=kind,
            amount=amount,
            stamp=stamp,
            last_op=0 if written is None else written.op,
            message=message,
        )
        after = _with_client(state, number, waiting)
        return (
            f"client {number} sends {kind} {amount} op {message.op} {parts}",
            after._replace(
                messages=(*state.messages, message),
                next_op=state.next_op + (op is None),
            ),
        )

    def _deliver(self, state: State, index: int, message: Message) -> Iterator[tuple[str, State]]:
        """The store gets a request; the answer arrives, or is lost."""
        items = world.carried_out(state.items, message, self.allows)
        rest = state.messages[:index] + state.messages[index + 1 :]
        after = state._replace(messages=rest)
        told = "refused"
        if items is not None:
            told = "ok"
            sign = {"charge": 1, "gather": 1, "credit": -1}.get(message.kind, 0)
            done = Done(message.op, message.stamp, state.moment, sign * message.amount)
            after = after._replace(items=items, done=(*after.done, done) if sign else after.done)
            if message.kind == "rebase" and after.rebased is None:
                after = after._replace(rebased=state.moment)
        client = state.clients[message.client]
        if client.op != message.op or client.phase != WAITING:
            yield f"late op {message.op} is {told}", after
            return
        # That an answer takes time changes nothing: its client does nothing meanwhile.
        yield from self._hear(after, message.client, told)
        if self._may_lose(state):
            yield f"op {message.op} is {told}, unheard", self._unsure(after, message, "?")
            yield f"op {message.op} is {told}, but 500", self._unsure(after, message, "?!")
            yield f"op {message.op} is late", self._unsure(state, message, "?")

    def _may_lose(self, state: State) -> bool:
        lost = sum(client.phase == UNSURE or client.kind.endswith("?") for client in state.clients)
        return lost < self.bounds.losses

    def _unsure(self, state: State, message: Message, doubt: str) -> State:
        client = state.clients[message.client]
        marked = client._replace(phase=UNSURE, kind=client.kind.rstrip("?!") + doubt)
        return _with_client(state, message.client, marked)

    def look(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        """Find out about a write of unknown outcome, by the id of the last write."""
        assert client.message is not None
        item = state.items[client.message.parts[0].number]
        is_ours = item is not None and item.op == client.op
        kind = client.kind.rstrip("?!")
        if kind != "charge":  # credits and transactions are not repeated
            yield "gives up", _with_client(state, number, self._idle(client, state.items))
        elif is_ours:
            yield "finds its op", self.granted(state, number, client)
        elif client.kind.endswith("!") and client.tries < self.bounds.tries:
            yield from self.repeat(state, number, client)
        else:
            yield "gives up", _with_client(state, number, self._idle(client, state.items))

    def repeat(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        """After a 500 the original is not on its way: send it again, if nobody wrote meanwhile."""
        assert client.message is not None
        (part,) = client.message.parts
        guarded = (part._replace(last_op=client.last_op),)
        again = client._replace(tries=client.tries + 1)
        yield self._send(
            state, number, again, "charge", client.amount, guarded, client.stamp, client.op
        )

    def _hear(self, state: State, number: int, told: str) -> Iterator[tuple[str, State]]:
        client = state.clients[number]
        if told == "ok" and client.kind in ("charge", "gather"):
            yield f"op {client.op} is granted", self.granted(state, number, client)
        elif told == "refused" and client.kind == "charge" and client.tries < self.bounds.tries:
            yield from self._retry(state, number, client)
        else:
            idle = self._idle(client, state.items)
            yield f"op {client.op} is {told}", _with_client(state, number, idle)

    def _retry(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        """A refused write has brought the item with it: once more, at the same stamp."""
        fresh = client._replace(seen=state.items, tries=client.tries + 1)
        for parts in world.charges(state.items, client.amount, client.stamp):
            yield self._send(state, number, fresh, "charge", client.amount, parts, client.stamp)
        yield "rejected", _with_client(state, number, self._idle(client, state.items))

    def granted(self, state: State, number: int, client: Client) -> State:
        assert client.message is not None
        holds = (client.message.parts[0].number, client.amount)
        idle = self._idle(client, state.items)._replace(holds=holds)
        return _with_client(state, number, idle)._replace(admitted=(*state.admitted, client.op))

    def _idle(self, client: Client, seen: Items) -> Client:
        return Client(client.left, seen, holds=client.holds)

    def allows(self, item: Item, part: Part) -> bool:
        return world.allows(item, part)

    # --- rules

    def broken_rule(self, state: State) -> str | None:
        charged = [each for each in state.done if each.amount > 0]
        ops = [each.op for each in charged]
        if len(set(ops)) < len(ops):
            return "a charge was carried out twice"
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


def _with_client(state: State, number: int, client: Client) -> State:
    clients = (client, state.clients[1]) if number == 0 else (state.clients[0], client)
    return state._replace(clients=clients)


def _path(came: dict[State, tuple[State, str]], state: State) -> list[str]:
    steps = []
    while state in came:
        state, step = came[state]
        steps.append(step)
    return steps[::-1]

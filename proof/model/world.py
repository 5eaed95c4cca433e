"""The world of the model: one bucket in one or two items, two clients, and messages on their way.

Arithmetic is that of the library (``zae_limiter.admission``): moves of charges with their bounds,
re-bases, splits, merges and gathers. The model has what surrounds it: images of any age, either
guess of the branch, messages that are lost, late or answered in vain, guarded repeats, and clocks
that go on meanwhile. A unit is a millitoken, a moment is a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from proof.model.delivery import WriteIds
from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    level_milli,
)
from zae_limiter.admission.moves import Move, RateLedger, rebase_move
from zae_limiter.admission.shards import spreading
from zae_limiter.admission.shards.split_merge import halved, merge, split
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.bucket import EPOCH_MS

KEY = "rpm"
RATES = (Rate(4, 1, 1), Rate(2, 1, 1))  # the limit before and after a change
CHARGES = (1, 3)  # the larger one does not fit into a half
GONE = None


class Item(NamedTuple):
    """One stored shard: one of ``n``, under the limits number ``terms``."""

    n: int
    terms: int
    balance: int
    generation: int = 0
    writes: int = 1
    ids: WriteIds = WriteIds()
    consumed: int = 0

    def rate(self, number: int) -> Rate:
        whole = RATES[self.terms]
        return whole if self.n == 1 else halved(whole)[number]

    def image(self, number: int) -> BucketImage:
        state = LimitState(self.balance, self.rate(number), self.consumed)
        return BucketImage({KEY: state}, 0, None, 0)


Items = tuple[Item | None, Item | None]


class Part(NamedTuple):
    """The write of one item, and its conditions; a condition that is None is not there."""

    number: int
    low: int | None = None
    high: int | None = None
    add: int = 0
    put: int | None = None
    same_n: int | None = None
    same_terms: int | None = None
    generation: int | None = None  # structural writes require it, and count it up
    last_op: int | None = None  # a guarded repeat requires it
    exactly: Item | None = None  # a removal requires the item as it was read
    is_new: bool = False
    sets_n: int | None = None
    sets_terms: int | None = None
    sets_generation: int | None = None
    consumed: int = 0
    removes: bool = False


Allows = Callable[[Item, Part, int], bool]


class Message(NamedTuple):
    """A request on its way: one write, or a transaction of several.

    ``op`` is the id of the write. A client that asks again after a refusal does so under another
    id; ``first_op`` is the id under which it has asked first.
    """

    op: int
    first_op: int
    client: int
    kind: str
    stamp: int
    amount: int
    parts: tuple[Part, ...]

    @property
    def is_transaction(self) -> bool:
        return len(self.parts) > 1

    @property
    def is_guarded(self) -> bool:
        """Whether this is a repetition that requires the last write to be the one that was seen."""
        return self.parts[0].last_op is not None


def carried_out(items: Items, message: Message, allows: Allows) -> Items | None:
    """Return the items after the request; None if ``allows`` says that a condition fails."""
    after = list(items)
    for part in message.parts:
        item = items[part.number]
        if part.is_new:
            if item is not None:
                return None
            after[part.number] = Item(
                part.sets_n or 1,
                part.sets_terms or 0,
                part.put or 0,
                part.sets_generation or 0,
                ids=WriteIds(message.op),
            )
            continue
        if item is None or not allows(item, part, message.op):
            return None
        after[part.number] = GONE if part.removes else _written(item, part, message.op)
    return after[0], after[1]


def allows(item: Item, part: Part, op: int) -> bool:
    """Return whether an item meets the conditions of a write, and does not show its id."""
    return (
        not item.ids.shows(op)
        and part.same_n in (None, item.n)
        and part.same_terms in (None, item.terms)
        and (part.low is None or item.balance >= part.low)
        and (part.high is None or item.balance <= part.high)
        and part.generation in (None, item.generation)
        and part.last_op in (None, item.ids.last)
        and part.exactly in (None, item)
    )


def _written(item: Item, part: Part, op: int) -> Item:
    return Item(
        item.n if part.sets_n is None else part.sets_n,
        item.terms if part.sets_terms is None else part.sets_terms,
        item.balance + part.add if part.put is None else part.put,
        item.generation if part.sets_generation is None else part.sets_generation,
        item.writes + 1,
        item.ids.after(op),
        item.consumed + part.consumed,
    )


def at_ms(moment: int) -> int:
    """Return a moment of the model as the library counts time."""
    return EPOCH_MS + 1000 + moment


def full_items() -> Items:
    """Return an unsharded bucket that is full at moment 0."""
    whole = RATES[0]
    return Item(1, 0, whole.capacity_milli - 1000), GONE


# --- requests, planned on an image that may be outdated


def charges(seen: Items, amount: int, stamp: int) -> Iterator[tuple[Part, ...]]:
    """Yield every form in which a client may ask for an amount: each shard, either branch."""
    for number, item in enumerate(seen):
        if item is None:
            continue
        rate = item.rate(number)
        if amount > rate.capacity_milli:
            continue
        ledger = RateLedger(KEY, item.image(number).limits[KEY], at_ms(stamp))
        ledger.charged, ledger.asked = amount, True
        for overflowing in (False, True):
            moved = ledger.branch(overflowing=overflowing)
            yield (_part(number, item, moved, consumed=amount),)


def gathers(seen: Items, amount: int, stamp: int) -> Iterator[tuple[Part, ...]]:
    """Yield a transaction that takes parts from both shards."""
    images = _images(seen)
    if len(images) < 2:
        return
    spread = spreading.gather(images, {KEY: amount}, at_ms(stamp))
    if spread is None:
        return
    parts = []
    for shard, amounts in spread.items():
        item = seen[shard.number]
        assert item is not None
        (moved,) = spreading.taking(images[shard], amounts, at_ms(stamp))
        parts.append(_part(shard.number, item, moved, consumed=amounts[KEY]))
    yield tuple(parts)


def credit(items: Items, number: int, amount: int) -> tuple[Part, ...] | None:
    """Return the refund of a charge; what was merged is refunded to the shard that survived.

    A refund has no conditions: it is right whatever the limits and the shards are by now.
    """
    target = number if items[number] is not None else 0
    item = items[target]
    if item is None:
        return None
    return (Part(target, add=amount, consumed=-amount),)


def rebases(seen: Items, stamp: int) -> Iterator[tuple[Part, ...]]:
    """Yield the change of a shard to the other limits."""
    for number, item in enumerate(seen):
        if item is not None and item.terms == 0:
            to = item._replace(terms=1).rate(number)
            state = LimitState(item.balance, item.rate(number))
            moved = rebase_move(KEY, state, to, at_ms(stamp))
            part = _part(number, item, moved)
            yield (
                part._replace(
                    generation=item.generation,
                    sets_terms=1,
                    sets_generation=item.generation + 1,
                ),
            )


def splits(seen: Items, stamp: int) -> Iterator[tuple[Part, ...]]:
    """Yield the split of an unsharded bucket."""
    item, sibling = seen
    if item is None or sibling is not None or item.n != 1:
        return
    halves = split(item.image(0), at_ms(stamp))
    (kept,) = halves.kept
    part = _part(0, item, kept)._replace(
        generation=item.generation, sets_n=2, sets_generation=item.generation + 1
    )
    new = Part(
        1,
        put=halves.given[KEY].balance_milli,
        is_new=True,
        sets_n=2,
        sets_terms=item.terms,
        sets_generation=item.generation + 1,
    )
    yield (part, new)


def merges(seen: Items, stamp: int) -> Iterator[tuple[Part, ...]]:
    """Yield the merge of both shards."""
    item, sibling = seen
    if item is None or sibling is None or item.terms != sibling.terms:
        return
    (moved,) = merge(item.image(0), sibling.image(1), at_ms(stamp))
    latest = max(item.generation, sibling.generation)
    kept = _part(0, item, moved, consumed=sibling.consumed)._replace(
        generation=item.generation, sets_n=1, sets_generation=latest + 1
    )
    gone = Part(1, same_n=2, same_terms=sibling.terms, exactly=sibling, removes=True)
    yield (kept, gone)


def _part(number: int, item: Item, moved: Move, consumed: int = 0) -> Part:
    return Part(
        number,
        moved.low,
        moved.high,
        moved.add,
        moved.put,
        same_n=item.n,
        same_terms=item.terms,
        consumed=consumed,
    )


def _images(seen: Items) -> dict[Shard, BucketImage]:
    return {
        Shard(number, item.n): item.image(number)
        for number, item in enumerate(seen)
        if item is not None
    }


def level(items: Items, moment: int) -> int:
    """Return the tokens of the whole bucket."""
    return sum(
        level_milli(LimitState(item.balance, item.rate(number)), at_ms(moment))
        for number, item in enumerate(items)
        if item is not None
    )


def consumed(items: Sequence[Item | None]) -> int:
    return sum(item.consumed for item in items if item is not None)

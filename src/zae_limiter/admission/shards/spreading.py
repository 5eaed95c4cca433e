"""Charges, debts and credits that are spread over several shards of a bucket.

Images of shards are at their own rates (``tree.of_shard``), all with the limits in force. Amounts
are spread so that all shards are equally full afterwards, in proportion to their shares: a shard
that is full before the others wastes what it accrues.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, is_paused, is_slots, level_milli
from zae_limiter.admission.moves import Move, Wanted, read_move
from zae_limiter.admission.shards.tree import Shard, heirs

Images = Mapping[Shard, BucketImage]
Amounts = Mapping[str, int]  # by stored name
Spread = dict[Shard, dict[str, int]]
Moves = dict[Shard, list[Move]]


class Debts(NamedTuple):
    """A debt over shards: ``covered`` by tokens that they hold, the rest ``owed`` below zero."""

    covered: Spread
    owed: Spread


def is_large(images: Images, amounts: Amounts) -> bool:
    """Whether a charge should be gathered: it is over half of every shard's share of a limit."""
    return any(
        amount and all(2 * amount > share for share in _shares(images, key).values())
        for key, amount in amounts.items()
    )


def gather(images: Images, amounts: Amounts, now_ms: int) -> Spread | None:
    """Return what to take from each of as few shards as possible; None if they hold too little.

    To be written in one transaction, with the moves of ``taking`` for each shard. A debt of one
    shard is subtracted from the whole. Limits with nothing to take are listed with 0. None, too,
    while the bucket is paused.
    """
    if any(is_paused(image, now_ms) for image in images.values()):
        return None
    levels = {key: _levels(images, key, now_ms) for key in amounts}
    if any(sum(levels[key].values()) < amount for key, amount in amounts.items()):
        return None
    chosen = _fewest(images, levels, amounts) or [min(images)]
    spread: Spread = {shard: dict.fromkeys(amounts, 0) for shard in chosen}
    for key, amount in amounts.items():
        held = {shard: level for shard in chosen if (level := levels[key][shard]) > 0}
        _add(spread, key, _taken(held, _shares(images, key), amount))
    return spread


def taking(image: BucketImage, amounts: Amounts, now_ms: int) -> list[Move]:
    """Return the moves of one shard for its part of a gathered charge; the shard was just read."""
    moves = []
    for key, amount in amounts.items():
        state = image.limits[key]
        in_debt = level_milli(state, now_ms) < 0  # allowed: other shards make up for it
        wanted = Wanted(amount, asked=amount > 0 or not in_debt)
        moves.append(read_move(key, state, wanted, now_ms))
    return moves


def place_debts(images: Images, amounts: Amounts, now_ms: int) -> Debts:
    """Return the shards that a debt is taken from: first all tokens, then all owe alike.

    Each amount of ``covered`` is written like a charge; what is refused is placed again, with what
    remains. ``owed`` is written without a lower bound, to shards that were just read.
    """
    debts = Debts({}, {})
    for key, amount in amounts.items():
        levels, rest = _levels(images, key, now_ms), amount
        for shard in sorted(levels, key=lambda shard: (-levels[shard], shard)):
            covered = min(rest, max(levels[shard], 0))
            if covered:
                _add(debts.covered, key, {shard: covered})
                levels[shard] -= covered
                rest -= covered
        _add(debts.owed, key, _taken(levels, _shares(images, key), rest))
    return debts


def place_credits(images: Images, number: int, amounts: Amounts, now_ms: int) -> Spread:
    """Return where credits go: to the shard that was charged, or the one it was merged into.

    What that shard has no room for spills to the others. What none of them has room for is given
    to it all the same, and cut off there: the bucket is full. A limit that no shard has is full,
    too. Amounts are positive.
    """
    home = heir(images, number)
    spread: Spread = {}
    for key, amount in amounts.items():
        shares = _shares(images, key)
        levels = _levels(images, key, now_ms)
        free = {shard: shares[shard] - level for shard, level in levels.items()}
        own = min(amount, free.pop(home, 0))
        others = min(amount - own, sum(free.values()))
        _add(spread, key, _taken(free, shares, others))
        if key in images[home].limits:
            _add(spread, key, {home: amount - others})
    return spread


class Placed(NamedTuple):
    """Credits by shard, and what is ``left`` because no shard has room for it."""

    spread: Spread
    left: dict[str, int]


def place_what_fits(images: Images, amounts: Amounts, now_ms: int) -> Placed:
    """Return where credits find room. Amounts are positive; a limit that no shard has is full."""
    placed = Placed({}, {})
    for key, amount in amounts.items():
        shares, levels = _shares(images, key), _levels(images, key, now_ms)
        free = {shard: shares[shard] - level for shard, level in levels.items()}
        fits = min(amount, sum(free.values()))
        _add(placed.spread, key, _taken(free, shares, fits))
        if levels and fits < amount:
            placed.left[key] = amount - fits
    return placed


def repayment(images: dict[Shard, BucketImage], number: int, now_ms: int) -> Moves:
    """Return the moves that spread the debt of one shard over all, for one transaction.

    The debt is repaid with tokens of the other shards, then all owe alike; the moves add up to
    zero. Empty if the shard has no debt or is the only one. A repayment that another client was
    faster with is refused, since the debt is smaller than it was read, and is planned again.
    """
    if len(images) < 2:
        return {}
    home = heir(images, number)
    owed = {
        key: -level
        for key, state in images[home].limits.items()
        if not is_slots(state.rate) and (level := level_milli(state, now_ms)) < 0
    }
    limits = dict(images[home].limits)
    for key, debt in owed.items():
        limits[key] = limits[key]._replace(balance_milli=limits[key].balance_milli + debt)
    without_debt = {**images, home: images[home]._replace(limits=limits)}
    debts = place_debts(without_debt, owed, now_ms)
    moves: Moves = {}
    for shard, image in images.items():
        covered, shared = debts.covered.get(shard, {}), debts.owed.get(shard, {})
        for key, debt in owed.items():
            taken, owes = covered.get(key, 0), shared.get(key, 0)
            if shard == home:
                if repaid := debt - taken - owes:
                    at_most = image.limits[key].balance_milli  # refused if another was faster
                    move = Move(key, None, at_most, repaid, None, -repaid)
                    moves.setdefault(shard, []).append(move)
            elif taken or owes:
                moves.setdefault(shard, []).append(_repaying(key, image, taken, owes, now_ms))
    return moves


def _repaying(key: str, image: BucketImage, taken: int, owes: int, now_ms: int) -> Move:
    """Return the move of a shard that pays with tokens, and with a debt of its own if it must."""
    state = image.limits[key]
    if not owes:
        return read_move(key, state, Wanted(taken, asked=True), now_ms)
    move = read_move(key, state, Wanted(owed_milli=taken + owes), now_ms)
    return move._replace(low=state.balance_milli)  # not if it holds less than it did when read


def heir(images: Images, number: int) -> Shard:
    """Return the shard of a number, or the one it was merged into; number 0 always exists."""
    by_number = {shard.number: shard for shard in images}
    return next(by_number[candidate] for candidate in heirs(number) if candidate in by_number)


def _fewest(
    images: Images, levels: Mapping[str, Mapping[Shard, int]], amounts: Amounts
) -> list[Shard]:
    """Choose shards that together hold enough of everything, those that hold most of it first."""

    def usefulness(shard: Shard) -> Fraction:
        return sum(
            (
                Fraction(max(0, min(levels[key][shard], amount)), amount)
                for key, amount in amounts.items()
                if amount
            ),
            Fraction(0),
        )

    missing, chosen = {key: amount for key, amount in amounts.items() if amount}, list[Shard]()
    for shard in sorted(images, key=lambda shard: (-usefulness(shard), shard)):
        if not missing:
            break
        if any(levels[key][shard] > 0 for key in missing):
            chosen.append(shard)
            for key in list(missing):
                missing[key] -= max(0, levels[key][shard])
                if missing[key] <= 0:
                    del missing[key]
    return chosen


def _taken(
    levels: Mapping[Shard, int], shares: Mapping[Shard, int], amount: int
) -> dict[Shard, int]:
    """Return the amounts that lower the fullest shards to one height, relative to their shares."""
    if amount <= 0:
        return {}
    width = {shard: max(1, shares[shard]) for shard in levels}
    order = sorted(levels, key=lambda shard: (-Fraction(levels[shard], width[shard]), shard))
    lowered, volume, base, height = list[Shard](), -amount, 0, Fraction(0)
    for shard in order:
        if lowered and height >= Fraction(levels[shard], width[shard]):
            break
        lowered.append(shard)
        volume += levels[shard]
        base += width[shard]
        height = Fraction(volume, base)
    left = {shard: height * width[shard] for shard in lowered}
    taken = {shard: levels[shard] - left[shard].__floor__() for shard in lowered}
    too_much = sum(taken.values()) - amount
    for shard in lowered:
        if too_much and left[shard].denominator > 1:
            taken[shard] -= 1
            too_much -= 1
    return {shard: amount for shard, amount in taken.items() if amount}


def _levels(images: Images, key: str, now_ms: int) -> dict[Shard, int]:
    return {
        shard: level_milli(image.limits[key], now_ms)
        for shard, image in images.items()
        if key in image.limits
    }


def _shares(images: Images, key: str) -> dict[Shard, int]:
    return {
        shard: image.limits[key].rate.capacity_milli
        for shard, image in images.items()
        if key in image.limits
    }


def _add(spread: Spread, key: str, amounts: Mapping[Shard, int]) -> None:
    for shard, amount in amounts.items():
        if amount:
            of_shard = spread.setdefault(shard, {})
            of_shard[key] = of_shard.get(key, 0) + amount

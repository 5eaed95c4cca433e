"""Charges, debts and credits that are spread over several shards of a bucket.

The image of a shard has the shard's own rates (``tree.of_shard``) and all limits in force. Amounts
are spread so that afterwards all shards are equally full, in proportion to their shares: a shard
that is full before the others wastes the tokens that accrue in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from zae_limiter.admission.image import (
    BucketImage,
    is_paused,
    is_slots,
    is_soft,
    is_split,
    level_milli,
)
from zae_limiter.admission.moves import Move, charged_move, owed_move
from zae_limiter.admission.shards.tree import Shard, heirs

Images = Mapping[Shard, BucketImage]
Amounts = Mapping[str, int]  # by stored name
Spread = dict[Shard, dict[str, int]]
Moves = dict[Shard, list[Move]]


class Debts(NamedTuple):
    """A debt by shard.

    ``covered`` is the part that is taken from tokens of the shards; the rest is ``owed``, and takes
    the shards below zero.
    """

    covered: Spread
    owed: Spread


def is_large(images: Images, amounts: Amounts) -> bool:
    """Tell whether a charge should be gathered from several shards.

    It should if, for some limit, it is more than half of the share of every shard.
    """
    return any(
        amount and all(2 * amount > share for share in _shares(images, key).values())
        for key, amount in amounts.items()
    )


def gather(images: Images, amounts: Amounts, now_ms: int) -> Spread | None:
    """Divide a charge among as few shards as possible; return None if they hold too little.

    The result is also None while the bucket is paused. The charge is written in one transaction,
    with the moves of ``taking`` for each shard. The debt of a shard is subtracted from the tokens
    of the whole bucket. A limit from which nothing is taken is listed with 0. A soft limit holds
    every amount: the shards that are chosen for the other limits owe it, or the first shard if the
    limit has slots.
    """
    if any(is_paused(image, now_ms) for image in images.values()):
        return None
    levels = {key: _levels(images, key, now_ms) for key in amounts}
    first = min(images)
    limits = images[first].limits
    checked = {key: amount for key, amount in amounts.items() if not is_soft(limits[key].rate)}
    if any(sum(levels[key].values()) < amount for key, amount in checked.items()):
        return None
    chosen = _fewest(images, levels, checked) or [first]
    soft_slots = [
        key for key in amounts if key not in checked and is_slots(limits[key].rate) and amounts[key]
    ]
    if soft_slots and first not in chosen:
        chosen.append(first)
    spread: Spread = {shard: dict.fromkeys(amounts, 0) for shard in chosen}
    for key, amount in amounts.items():
        if key in soft_slots:
            _add(spread, key, {first: amount})
            continue
        of_chosen = {shard: levels[key][shard] for shard in chosen}
        if key in checked:
            of_chosen = {shard: level for shard, level in of_chosen.items() if level > 0}
        _add(spread, key, _taken(of_chosen, _shares(images, key), amount))
    return spread


def taking(image: BucketImage, amounts: Amounts, now_ms: int) -> list[Move]:
    """Return the moves of a shard, which was just read, for its part of a gathered charge."""
    moves = []
    for key, amount in amounts.items():
        state = image.limits[key]
        if state.quota is not None:  # taken from the first shard, see quotas.WindowLedger
            continue
        if is_soft(state.rate):
            if amount:
                moves.append(owed_move(key, state, amount, now_ms))
            continue
        in_debt = level_milli(state, now_ms) < 0  # allowed: other shards make up for it
        asked = amount > 0 or not in_debt
        moves.append(charged_move(key, state, amount, now_ms, asked=asked))
    return moves


def place_debts(images: Images, amounts: Amounts, now_ms: int) -> Debts:
    """Divide a debt among the shards: first it takes all their tokens, then all shards owe alike.

    Each amount of ``covered`` is written like a charge; an amount that is refused is placed again,
    together with the rest. ``owed`` is written without a lower bound, to shards that were just
    read.
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
    """Divide credits among the shards. Amounts are positive.

    A credit goes to the shard that was charged, or to the one into which that shard was merged. The
    part that this shard has no room for spills to the other shards. If none of them has room, the
    rest is given to the first shard all the same, and cut off there: the bucket is full. A limit
    that no shard has is also full.
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
    """Credits by shard, and the amounts ``left`` for which no shard has room."""

    spread: Spread
    left: dict[str, int]


def place_what_fits(images: Images, amounts: Amounts, now_ms: int) -> Placed:
    """Divide credits among shards with room. Amounts are positive.

    A limit that no shard has is full: its credit is neither placed nor left.
    """
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
    """Return the moves that spread the debt of one shard over all shards, in one transaction.

    The debt is repaid with tokens of the other shards; if they do not suffice, all shards owe
    alike. The moves add up to zero. There are none if the shard has no debt or is the only one. If
    another client repays the debt first, the transaction is refused, since the debt is then smaller
    than it was when read, and the repayment is planned again.
    """
    if len(images) < 2:
        return {}
    home = heir(images, number)
    owed = {
        key: -level
        for key, state in images[home].limits.items()
        if is_split(state.rate) and (level := level_milli(state, now_ms)) < 0
    }
    limits = dict(images[home].limits)
    for key, debt in owed.items():
        limits[key] = replace(limits[key], balance_milli=limits[key].balance_milli + debt)
    without_debt = {**images, home: images[home]._replace(limits=limits)}
    debts = place_debts(without_debt, owed, now_ms)
    moves: Moves = {}
    for shard, image in images.items():
        covered, shared = debts.covered.get(shard, {}), debts.owed.get(shard, {})
        for key, debt in owed.items():
            taken, owes = covered.get(key, 0), shared.get(key, 0)
            if shard == home:
                if repaid := debt - taken - owes:
                    at_most = image.limits[key].balance_milli  # refused if it was repaid meanwhile
                    move = Move(key, None, at_most, repaid, None, -repaid)
                    moves.setdefault(shard, []).append(move)
            elif taken or owes:
                moves.setdefault(shard, []).append(_repaying(key, image, taken, owes, now_ms))
    return moves


def _repaying(key: str, image: BucketImage, taken: int, owes: int, now_ms: int) -> Move:
    """Return the move of a shard that repays a debt with its tokens and with a debt of its own."""
    state = image.limits[key]
    if not owes:
        return charged_move(key, state, taken, now_ms)
    move = owed_move(key, state, taken + owes, now_ms)
    return replace(move, low=state.balance_milli)  # refused if the shard holds less than when read


def heir(images: Images, number: int) -> Shard:
    """Return the shard with a number, or the one it was merged into. Number 0 always exists."""
    by_number = {shard.number: shard for shard in images}
    return next(by_number[candidate] for candidate in heirs(number) if candidate in by_number)


def _fewest(
    images: Images, levels: Mapping[str, Mapping[Shard, int]], amounts: Amounts
) -> list[Shard]:
    """Choose shards that together hold all amounts, beginning with those that hold the most."""

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
    """Divide an amount so that it lowers the fullest shards to one height.

    The height of a shard is its level relative to its share.
    """
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
            amounts_of_shard = spread.setdefault(shard, {})
            amounts_of_shard[key] = amounts_of_shard.get(key, 0) + amount

"""Amounts that go to several shards of a bucket: taken, owed or given back.

Images are those of shards at their own rates (``tree.of_shard``), all with the limits in force.
Whatever is spread aims at shards that are equally full, in proportion to their shares: the one
that is full first wastes what it can not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, level_milli
from zae_limiter.admission.moves import Move, Wanted, read_move
from zae_limiter.admission.shards.tree import Shard, heirs

Images = Mapping[Shard, BucketImage]
Amounts = Mapping[str, int]  # by stored name
Spread = dict[Shard, dict[str, int]]


class Debts(NamedTuple):
    """``covered`` is there to be taken, as by a charge; ``owed`` is not there at all."""

    covered: Spread
    owed: Spread


def is_large(images: Images, amounts: Amounts) -> bool:
    """Whether a charge is to be gathered: more than half of every shard's share of some limit."""
    return any(
        amount and all(2 * amount > share for share in _shares(images, key).values())
        for key, amount in amounts.items()
    )


def gather(images: Images, amounts: Amounts, now_ms: int) -> Spread | None:
    """What to take from which shards, as few as will do; None if all together hold too little.

    To be written at once or not at all, with ``taking`` for each shard. A debt anywhere counts
    against the whole. Limits with nothing to take are listed with 0.
    """
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
    """One shard's part of what was gathered, in the branches that were read."""
    moves = []
    for key, amount in amounts.items():
        state = image.limits[key]
        in_debt = level_milli(state, now_ms) < 0  # the others make up for it
        wanted = Wanted(amount, asked=amount > 0 or not in_debt)
        moves.append(read_move(key, state, wanted, now_ms))
    return moves


def place_debts(images: Images, amounts: Amounts, now_ms: int) -> Debts:
    """Which shards a debt is taken from: tokens as long as there are any, then all owe alike.

    Each part of ``covered`` is a write like a charge, and whatever is refused is planned anew with
    the parts that remain. ``owed`` is written without a lower bound, to shards just read.
    """
    planned = Debts({}, {})
    for key, amount in amounts.items():
        levels, rest = _levels(images, key, now_ms), amount
        for shard in sorted(levels, key=lambda each: (-levels[each], each)):
            part = min(rest, max(levels[shard], 0))
            if part:
                _add(planned.covered, key, {shard: part})
                levels[shard] -= part
                rest -= part
        _add(planned.owed, key, _taken(levels, _shares(images, key), rest))
    return planned


def place_credits(images: Images, number: int, amounts: Amounts, now_ms: int) -> Spread:
    """Where credits go: to the shard that was charged or what it was merged into.

    What that one can not hold goes to the others, and what none of them can hold is its own to
    cut off: the bucket is full. A limit that is nowhere is full, too. Amounts are positive.
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
    """Where credits go, and what is ``left`` because no shard has room for it."""

    spread: Spread
    left: dict[str, int]


def place_what_fits(images: Images, amounts: Amounts, now_ms: int) -> Placed:
    """Where credits find room. Amounts are positive; a limit that is nowhere is full."""
    placed = Placed({}, {})
    for key, amount in amounts.items():
        shares, levels = _shares(images, key), _levels(images, key, now_ms)
        free = {shard: shares[shard] - level for shard, level in levels.items()}
        fits = min(amount, sum(free.values()))
        _add(placed.spread, key, _taken(free, shares, fits))
        if levels and fits < amount:
            placed.left[key] = amount - fits
    return placed


def heir(images: Images, number: int) -> Shard:
    """The shard of that number, or the one it was merged into; the first one is always there."""
    by_number = {shard.number: shard for shard in images}
    return next(by_number[each] for each in heirs(number) if each in by_number)


def _fewest(
    images: Images, levels: Mapping[str, Mapping[Shard, int]], amounts: Amounts
) -> list[Shard]:
    """Shards that hold enough of everything, those first that hold most of what is wanted."""

    def part(shard: Shard) -> Fraction:
        return sum(
            (
                Fraction(max(0, min(levels[key][shard], amount)), amount)
                for key, amount in amounts.items()
                if amount
            ),
            Fraction(0),
        )

    missing, chosen = {key: amount for key, amount in amounts.items() if amount}, list[Shard]()
    for shard in sorted(images, key=lambda each: (-part(each), each)):
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
    """Amounts that lower the fullest to one height, in proportion to their shares."""
    if amount <= 0:
        return {}
    width = {shard: max(1, shares[shard]) for shard in levels}
    order = sorted(levels, key=lambda each: (-Fraction(levels[each], width[each]), each))
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
    return {shard: part for shard, part in taken.items() if part}


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


def _add(spread: Spread, key: str, parts: Mapping[Shard, int]) -> None:
    for shard, part in parts.items():
        if part:
            mine = spread.setdefault(shard, {})
            mine[key] = mine.get(key, 0) + part

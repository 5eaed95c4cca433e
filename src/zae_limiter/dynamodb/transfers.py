"""Making up in other shards for what one of them owes."""

from __future__ import annotations

from zae_limiter.admission.image import BucketImage, level_milli
from zae_limiter.admission.moves import Move, Wanted, read_move
from zae_limiter.admission.shards.spreading import heir, place_debts
from zae_limiter.admission.shards.tree import Shard

Moves = dict[Shard, list[Move]]


def repayment(images: dict[Shard, BucketImage], number: int, now_ms: int) -> Moves:
    """What to write to which shards, at once: tokens that there are, then all owe alike.

    Nothing if the shard owes nothing or is the only one. What is taken and what is given add up
    to nothing. Whoever comes second finds the debt smaller than it was read, and plans anew.
    """
    if len(images) < 2:
        return {}
    home = heir(images, number)
    owed = {
        key: -level
        for key, state in images[home].limits.items()
        if (level := level_milli(state, now_ms)) < 0
    }
    limits = dict(images[home].limits)
    for key, amount in owed.items():
        limits[key] = limits[key]._replace(balance_milli=limits[key].balance_milli + amount)
    lifted = {**images, home: images[home]._replace(limits=limits)}
    planned = place_debts(lifted, owed, now_ms)
    found: Moves = {}
    for shard, image in images.items():
        covered, alike = planned.covered.get(shard, {}), planned.owed.get(shard, {})
        for key, amount in owed.items():
            taken, shared = covered.get(key, 0), alike.get(key, 0)
            if shard == home:
                given = amount - taken - shared
                if given:
                    as_read = image.limits[key].balance_milli
                    moves = found.setdefault(shard, [])
                    moves.append(Move(key, None, as_read, given, None, -given))
            elif taken or shared:
                found.setdefault(shard, []).append(_taking(key, image, taken, shared, now_ms))
    return found


def _taking(key: str, image: BucketImage, taken: int, shared: int, now_ms: int) -> Move:
    state = image.limits[key]
    wanted = Wanted(owed_milli=taken + shared) if shared else Wanted(taken, asked=True)
    made = read_move(key, state, wanted, now_ms)
    return made._replace(low=state.balance_milli) if shared else made

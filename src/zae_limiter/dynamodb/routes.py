"""Which shard of a bucket is asked, by one process that shares its writes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Mapping

from zae_limiter.admission.image import BucketImage, level_milli
from zae_limiter.admission.shards.choice import draw
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.dynamodb.part import Part
from zae_limiter.dynamodb.view import Place

STAY_S = 0.05
MOST_PLACES = 10_000


class Favourites:
    """Stays with a shard for a moment: those who come together travel together.

    Without that, a crowd would be spread over all shards and each of them written to as often
    as one bucket before. Over a second or more, all shards are used by their weight.
    """

    def __init__(self) -> None:
        self._favourites: dict[Place, tuple[int, float]] = {}
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers

    def current(self, place: Place) -> int | None:
        """The shard that this process stays with for the moment, if any."""
        number, until_s = self._favourites.get(place, (-1, 0.0))
        return number if time.monotonic() < until_s else None

    def choose(self, place: Place, fitting: Collection[Shard]) -> Shard | None:
        """One of those that fit; None if there is none."""
        if not fitting:
            return None
        now_s = time.monotonic()
        with self._lock:
            number, until_s = self._favourites.get(place, (-1, 0.0))
            if now_s < until_s:
                for shard in fitting:
                    if shard.number == number:
                        return shard
            shard = draw(fitting, random.random())
            if len(self._favourites) >= MOST_PLACES:
                self._favourites.clear()
            self._favourites[place] = (shard.number, now_s + STAY_S)
            return shard

    def for_settlement(
        self, place: Place, images: Mapping[Shard, BucketImage], part: Part, now_ms: int
    ) -> Shard:
        """Where credits have room and debts find tokens; the favourite if it will do."""
        good = [shard for shard, image in images.items() if _takes(image, part, now_ms)]
        chosen = self.choose(place, good)
        if chosen is not None:
            return chosen
        return max(images, key=lambda shard: (_suitability(images[shard], part, now_ms), shard))


def _takes(image: BucketImage, part: Part, now_ms: int) -> bool:
    for key, amount in part.amounts_milli.items():
        state = image.limits[key]
        left = level_milli(state, now_ms) - amount
        if not 0 <= left <= state.rate.capacity_milli:
            return False
    return True


def _suitability(image: BucketImage, part: Part, now_ms: int) -> float:
    """How far the limit that suits least is from where it would waste or owe something."""
    found = []
    for key, amount in part.amounts_milli.items():
        state = image.limits[key]
        capacity = max(1, state.rate.capacity_milli)
        left = level_milli(state, now_ms) - amount
        found.append((left if amount > 0 else capacity - left) / capacity)
    return min(found, default=0.0)

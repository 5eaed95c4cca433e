"""Requests are limited to entities that are registered, so that no client can make up ids."""

from __future__ import annotations

from time import monotonic
from typing import Any, Final

from zae_limiter.concurrency.bounded import BoundedDict
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.web.keys import RefusedKey

REMEMBERED_S: Final = 60.0  # as long as a client keeps configuration by default
MOST_REMEMBERED: Final = 10_000
SILENCE_S: Final = 1.0  # a breaker asks a store that does not answer as often


class KnownEntities:
    """Refuses keys whose entity is not registered; remembers those that are, for a minute.

    An unknown key costs a read of the store each time and stores nothing. If the store does not
    answer, the key passes: the outage policy of the acquire decides then.
    """

    def __init__(self) -> None:
        self._known: BoundedDict[str, float] = BoundedDict(MOST_REMEMBERED)
        self._silent_until_s = 0.0

    def check(self, limiter: Any, entity_id: str) -> None:
        """Raise RefusedKey if the entity is not registered."""
        if not self._must_ask(entity_id, monotonic()):
            return
        try:
            entity = limiter.get_entity(entity_id)
        except RateLimiterUnavailable:
            self._silent_until_s = monotonic() + SILENCE_S
        else:
            self._learn(entity_id, entity, monotonic())

    async def check_async(self, limiter: Any, entity_id: str) -> None:
        """Do the same for an async limiter."""
        if not self._must_ask(entity_id, monotonic()):
            return
        try:
            entity = await limiter.get_entity(entity_id)
        except RateLimiterUnavailable:
            self._silent_until_s = monotonic() + SILENCE_S
        else:
            self._learn(entity_id, entity, monotonic())

    def _must_ask(self, entity_id: str, now_s: float) -> bool:
        return self._known.get(entity_id, 0.0) <= now_s and self._silent_until_s <= now_s

    def _learn(self, entity_id: str, entity: object, now_s: float) -> None:
        if entity is None:
            raise RefusedKey(401, "key_unknown", "the key is not known")
        self._known.put(entity_id, now_s + REMEMBERED_S)

"""The check that the entity of a key is registered, so that clients cannot make up keys."""

from __future__ import annotations

from time import monotonic
from typing import Any, Final

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.web.keys import RefusedKey

REMEMBERED_S: Final = 60.0  # the same as the default TTL of the configuration cache
MOST_REMEMBERED: Final = 10_000
UNREADABLE_S: Final = 1.0  # the same as the interval at which a breaker probes the store


class KnownEntities:
    """Refuses keys whose entity is not registered, and remembers registered ones for a minute.

    An unknown key costs a read of the store each time and stores nothing. If the read of an entity
    fails, its key passes this check for a second. While the breaker of the store is open, all keys
    pass it. Then the outage policy of the acquire decides about them.
    """

    def __init__(self) -> None:
        self._passes_until_s: BoundedDict[str, float] = BoundedDict(MOST_REMEMBERED)

    def check(self, limiter: Any, entity_id: str) -> None:
        """Raise RefusedKey if the entity is not registered."""
        if not self._must_ask(limiter, entity_id):
            return
        try:
            entity = limiter.get_entity(entity_id)
        except RateLimiterUnavailable:
            self._let_pass(entity_id, UNREADABLE_S)
        else:
            self._learn(entity_id, entity)

    async def check_async(self, limiter: Any, entity_id: str) -> None:
        """Do the same for an async limiter."""
        if not self._must_ask(limiter, entity_id):
            return
        try:
            entity = await limiter.get_entity(entity_id)
        except RateLimiterUnavailable:
            self._let_pass(entity_id, UNREADABLE_S)
        else:
            self._learn(entity_id, entity)

    def _must_ask(self, limiter: Any, entity_id: str) -> bool:
        if monotonic() < self._passes_until_s.get(entity_id, 0.0):
            return False
        repository = limiter.repository  # None until the first call has opened it
        return repository is None or not repository.get_stats().breaker_open

    def _learn(self, entity_id: str, entity: object) -> None:
        if entity is None:
            raise RefusedKey(401, "key_unknown", "the key is not known")
        self._let_pass(entity_id, REMEMBERED_S)

    def _let_pass(self, entity_id: str, seconds: float) -> None:
        self._passes_until_s.put(entity_id, monotonic() + seconds)

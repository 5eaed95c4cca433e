"""Pauses that a provider asks for. They stop the calls of all workers to a bucket."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from zae_limiter.exceptions import ValidationError, ZAELimiterError
from zae_limiter.models.bucket import MAX_PAUSE_S
from zae_limiter.naming import check_entity_id
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.runtime.locks import SignalSafeLock

if TYPE_CHECKING:
    from zae_limiter._async.limiter import RateLimiter

PRINCIPAL = "provider feedback"  # the author in the audit log
# A pause is not requested if it would end less than this time after an earlier one of this process:
# a provider refuses many calls in flight one shortly after the other.
TOLERANCE_S = 1.0
MAX_REMEMBERED = 1000  # buckets; forgetting one costs a read


def paused_entity(pause: object, entity_id: str) -> str | None:
    """Return the entity whose bucket is paused: the entity of the call, another one, or None."""
    if isinstance(pause, str):
        return check_entity_id(pause, "pause")
    if not isinstance(pause, bool):
        raise ValidationError(
            "pause", pause, "must be True, False, or the id of the entity whose bucket is paused"
        )
    return entity_id if pause else None


class ProviderPause:
    """Pauses one bucket after its provider has refused a call and asked to wait. It never raises.

    ``entity_id`` is the entity of the bucket; with None nothing is paused.
    """

    def __init__(self, limiter: RateLimiter, entity_id: str | None, resource: str) -> None:
        self._limiter = limiter
        self._entity_id = entity_id
        self._resource = resource

    async def pause(self, seconds: float | None) -> None:
        """Pause as long as the provider asks, at most 10 minutes. In an outage, do nothing."""
        repository, entity_id = self._limiter.repository, self._entity_id
        if not seconds or entity_id is None or repository is None:
            return
        seconds, bucket = min(seconds, MAX_PAUSE_S), (entity_id, self._resource)
        recent = _recent_pauses(self._limiter)
        end_s = monotonic() + seconds
        if repository.charging.breaker.is_open or end_s < recent.get(bucket, 0.0) + TOLERANCE_S:
            return
        recent.put(bucket, end_s)
        try:
            await self._limiter.pause(*bucket, seconds, PRINCIPAL)
        except ZAELimiterError as error:
            recent.pop(bucket, None)
            # Not before it is needed: `import zae_limiter` does without logging.
            from zae_limiter.quiet_logging import quiet_logger

            quiet_logger(__name__).warning(
                "the provider asks to wait %g s, but the bucket of %r on %r could not be paused; "
                "other workers go on calling it: %s",
                seconds,
                *bucket,
                error,
            )


Ends = BoundedDict[tuple[str, str], float]
_recent: WeakKeyDictionary[RateLimiter, Ends] = WeakKeyDictionary()
_recent_guard = SignalSafeLock()


def _recent_pauses(limiter: RateLimiter) -> Ends:
    """Return the ends of the pauses of this process, by entity and resource."""
    with _recent_guard:
        return _recent.setdefault(limiter, BoundedDict(MAX_REMEMBERED))

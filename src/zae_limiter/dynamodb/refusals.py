"""Refusing without a call what was seen not to fit a moment ago.

A failed condition is billed like a write, so asking an empty bucket again and again is dear. Until
its level can have come back by itself it is not asked, for a short time only: somebody else may
have given tokens back, which this client has not seen.
"""

from __future__ import annotations

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.rebase import governs
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.member import Member, Refused
from zae_limiter.dynamodb.part import choose


class Refusals:
    """Own credits, resets and changes of limits show at once: they change what is known."""

    def __init__(self, known: Known, counters: Counters, ttl_seconds: float) -> None:
        self._known = known
        self._counters = counters
        self._ttl_ms = int(ttl_seconds * 1000)

    def refuses(self, member: Member, now_ms: int) -> bool:
        """Decide a charge that cannot fit, if that was seen recently."""
        if not self._ttl_ms or member.look_first:
            return False
        image = self._seen(member, now_ms)
        if image is None or choose([member.part], image, now_ms).taken:
            return False
        member.outcome = Refused(image, now_ms)
        self._counters.add(charges=1, rejected=1, cached_rejections=1)
        return True

    def _seen(self, member: Member, now_ms: int) -> BucketImage | None:
        seen = self._known.get(member.place)
        if seen is None or not 0 <= now_ms - seen.at_ms < self._ttl_ms:
            return None
        image = seen.bucket.image
        return image if governs(image, member.part.in_force) else None

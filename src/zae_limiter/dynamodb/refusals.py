"""Refusing without a call what was seen not to fit a moment ago.

A failed condition is billed like a write, so asking an empty bucket again and again is dear. Until
its level can have come back by itself it is not asked, for a short time only: somebody else may
have given tokens back, which this client has not seen.
"""

from __future__ import annotations

from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.member import Member, Refused
from zae_limiter.dynamodb.part import Part, fits_alone
from zae_limiter.dynamodb.sights import Images, Sights, fits_together, refused
from zae_limiter.dynamodb.view import is_governed
from zae_limiter.records.dynamodb.bucket_item import StoredBucket


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
        if self._known.layout(member.place) is not None:
            outcome = self._refused_by_all(member, now_ms)
        else:
            seen = self._known.get(member.spot)
            if seen is None or not 0 <= now_ms - seen.at_ms < self._ttl_ms:
                return False
            outcome = _refused_by(seen.bucket, member.part, now_ms)
        if outcome is None:
            return False
        member.outcome = outcome
        self._counters.add(charges=1, rejected=1, cached_rejections=1)
        return True

    def _refused_by_all(self, member: Member, now_ms: int) -> Refused | None:
        """Every shard was seen, and neither one alone nor all together hold it."""
        part, sights = member.part, Sights.of(self._known, member.place)
        images: Images = {}
        for shard, seen in sights.shards.items():
            if seen is None or not 0 <= now_ms - seen.at_ms < self._ttl_ms:
                return None
            bucket, in_force = seen.bucket, part.in_force.at(shard)
            images[shard] = bucket.image
            if not is_governed(bucket, in_force) or fits_alone(part, bucket.image, now_ms):
                return None
        gathers = sights.gathers(images, part)
        if gathers and fits_together(images, part, now_ms):
            return None
        return refused(images, part, now_ms, gathers=gathers)


def _refused_by(bucket: StoredBucket, part: Part, now_ms: int) -> Refused | None:
    if not is_governed(bucket, part.in_force) or fits_alone(part, bucket.image, now_ms):
        return None
    return Refused(bucket.image, now_ms)

"""All shards of a bucket, as far as this client has seen them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from zae_limiter.admission.fit import admits
from zae_limiter.admission.image import (
    BucketImage,
    is_paused,
    is_soft,
    level_milli,
    reaches_ms,
)
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.quotas import free_units
from zae_limiter.admission.rebase import at_rate, full_limit
from zae_limiter.admission.request import BucketChange
from zae_limiter.admission.shards.combined import CombinedImage, combine, paused_until_ms
from zae_limiter.admission.shards.pressure import QUIET_PER_S
from zae_limiter.admission.shards.spreading import is_large
from zae_limiter.admission.shards.tree import WHOLE, Shard, effective
from zae_limiter.admission.statuses import under_limits
from zae_limiter.items.buckets.cache import LONG_AGO, BucketCache, CachedBucket, holds_limits
from zae_limiter.items.buckets.outcomes import Rejected
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.items.stored.keys import BucketId

Images = dict[Shard, BucketImage]


class KnownShards(NamedTuple):
    """Every shard that must exist, with its cache entry; None for shards that were never read."""

    entries: Mapping[Shard, CachedBucket | None]

    @classmethod
    def of(cls, cache: BucketCache, bucket_id: BucketId) -> KnownShards:
        layout = cache.layout(bucket_id)
        if layout is None:
            return cls({WHOLE: cache.get(bucket_id.shard(0))})
        return cls({shard: _entry_of(cache, bucket_id, shard) for shard in layout.live})

    def images(self, in_force: InForce, now_ms: int) -> Images:
        """Return each shard under the limits in force; shards never read are assumed full."""
        return {
            shard: under_limits(
                None if entry is None else entry.bucket.image, in_force.at(shard), now_ms
            )
            for shard, entry in self.entries.items()
        }

    def numbers(self) -> list[int]:
        return [shard.number for shard in self.entries]

    def write_ids(self) -> dict[Shard, str]:
        """Return the id of the last write that was seen on each shard."""
        return {shard: entry.bucket.write_id for shard, entry in self.entries.items() if entry}

    def never_read(self) -> list[int]:
        """Return the numbers of shards without a cache entry."""
        return self.older_than(LONG_AGO + 1)

    def with_entry(self, shards: Iterable[Shard]) -> list[Shard]:
        """Return those of the shards that have a cache entry."""
        return [shard for shard in shards if self.entries[shard] is not None]

    def were_seen(self, after_ms: int, now_ms: int) -> bool:
        """Tell whether every shard was seen after a moment, and none after the stamp."""
        return all(
            entry is not None and after_ms < entry.at_ms <= now_ms
            for entry in self.entries.values()
        )

    def older_than(self, moment_ms: int) -> list[int]:
        """Return the numbers of shards that were not seen since."""
        return [
            shard.number
            for shard, entry in self.entries.items()
            if entry is None or entry.at_ms < moment_ms
        ]

    def could_hold(self, images: Images, change: BucketChange, now_ms: int) -> bool:
        """Tell whether one shard holds a charge, or all together where it would be gathered."""
        if fitting(images, change, now_ms):
            return True
        return len(images) > 1 and self.gathers(images, change, now_ms)

    def gathers(self, images: Images, change: BucketChange, now_ms: int) -> bool:
        """Tell whether all shards together hold a charge, and it would be gathered from them."""
        if not self.should_gather(images, change):
            return False
        return admits(combined(images, change.in_force, now_ms), change, now_ms, at_once=True)

    def should_gather(self, images: Images, change: BucketChange) -> bool:
        """Tell whether a charge that no shard holds is gathered from several.

        A transaction over several shards is not worth its price where many callers compete for
        small amounts.
        """
        writes_per_s = sum(entry.pressure.per_s for entry in self.entries.values() if entry)
        return writes_per_s < QUIET_PER_S or is_large(images, change.amounts_milli)

    def with_other_limits(self, in_force: InForce) -> list[int]:
        """Return the numbers of shards that were seen with limits other than those in force."""
        return [
            shard.number
            for shard, entry in self.entries.items()
            if entry is not None and not holds_limits(entry.bucket, in_force.at(shard))
        ]


def fitting(
    images: Images, change: BucketChange, now_ms: int, *, at_once: bool = False
) -> list[Shard]:
    """Return the shards that hold a charge by themselves; none while the bucket is paused.

    ``at_once`` asks whether the tokens of a reservation are there already.
    """
    if any(is_paused(image, now_ms) for image in images.values()):
        return []  # all shards are paused if one of them is
    if _is_overdrawn(images, change, now_ms):
        return []
    return [
        shard for shard, image in images.items() if admits(image, change, now_ms, at_once=at_once)
    ]


def _is_overdrawn(images: Images, change: BucketChange, now_ms: int) -> bool:
    """Tell whether a quota is in debt, which stops every call; the first shard has all of it."""
    if not change.in_force.quota_keys or not change.must_fit:
        return False
    limits = images[min(images)].limits
    quotas = [limits[key] for key in change.in_force.quota_keys if key in limits]
    return any(free_units(state, now_ms) < 0 for state in quotas if not is_soft(state.rate))


def least_overdrawn(
    images: Images, shards: list[Shard], change: BucketChange, now_ms: int
) -> list[Shard]:
    """Return those of the shards whose soft rates hold a charge, or else the fullest one.

    A soft rate rejects nowhere. If one shard took all charges, the others would be full and waste
    the tokens that accrue in them, while that one stays overdrawn.
    """
    soft = [
        (key, amount)
        for key, amount in change.amounts_milli.items()
        if amount and key in change.in_force.soft_keys and key not in change.in_force.quota_keys
    ]
    if not soft or not shards:
        return shards

    def left(shard: Shard) -> Fraction:
        """Return what the charge leaves of the emptiest soft rate, as a part of its share."""
        parts = []
        for key, amount in soft:
            state = images[shard].limits[key]
            share = max(1, state.rate.capacity_milli)
            parts.append(Fraction(level_milli(state, now_ms) - amount, share))
        return min(parts)

    by_shard = {shard: left(shard) for shard in shards}
    holding = [shard for shard in shards if by_shard[shard] >= 0]
    return holding or [max(shards, key=lambda shard: by_shard[shard])]


def soonest(images: Images, shards: Iterable[Shard], change: BucketChange) -> Shard | None:
    """Return the shard in which a reservation is due first; None if there is none."""

    def due_ms(shard: Shard) -> tuple[int, Shard]:
        limits = images[shard].limits
        moments = [
            reaches_ms(limits[key], amount)
            for key, amount in change.amounts_milli.items()
            if amount and limits[key].quota is None
        ]
        return max(moments, default=0), shard

    return min(shards, key=due_ms, default=None)


def rejection(images: Images, change: BucketChange, now_ms: int, *, gathers: bool) -> Rejected:
    """Show why a charge does not fit: the shard that holds it first, or all shards combined."""
    if len(images) == 1 or not (gathers or change.in_force.quota_keys):
        shard, until_ms = _first_to_hold(images, change), paused_until_ms(images.values())
        return Rejected(images[shard]._replace(paused_until_ms=until_ms), now_ms, shard)
    return Rejected(combined(images, change.in_force, now_ms), now_ms)


def combined(images: Images, in_force: InForce, now_ms: int) -> CombinedImage:
    """Combine all shards of a bucket under the limits in force."""
    return combine(images, dict(zip(in_force.keys, in_force.rates, strict=True)), now_ms)


def whole_image(buckets: Collection[StoredBucket], now_ms: int) -> BucketImage:
    """Combine all shards of a bucket, as they were read, into one image."""
    latest = sorted(buckets, key=lambda each: (each.image.config_version, each.generation))
    if len(latest) == 1:
        return latest[0].image
    rates = {key: rate for each in latest for key, rate in each.whole_rates.items()}
    shards = {}
    for bucket in buckets:
        stored, limits = bucket.image.limits, {}
        for key, rate in rates.items():
            own = effective(rate, bucket.shard)
            limits[key] = (
                at_rate(stored[key], own, now_ms, 0) if key in stored else full_limit(own, now_ms)
            )
        shards[bucket.shard] = bucket.image._replace(limits=limits)
    return combine(shards, rates, now_ms)


def _first_to_hold(images: Images, change: BucketChange) -> Shard:
    """Return the shard that is large enough and holds the charge soonest."""

    def wait(shard: Shard) -> tuple[bool, int, Shard]:
        limits = images[shard].limits
        never = any(
            amount > limits[key].rate.capacity_milli for key, amount in change.amounts_milli.items()
        )
        holds_ms = max(
            [
                reaches_ms(limits[key], amount)
                for key, amount in change.amounts_milli.items()
                if limits[key].quota is None
            ],
            default=0,
        )
        return never, holds_ms, shard

    return min(images, key=wait)


def _entry_of(cache: BucketCache, bucket_id: BucketId, shard: Shard) -> CachedBucket | None:
    entry = cache.get(bucket_id.shard(shard.number))
    return entry if entry is not None and entry.bucket.shard == shard else None

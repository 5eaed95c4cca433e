"""A bucket as a whole, as far as this client has seen: one item, or all of its shards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from zae_limiter.admission.charge import view
from zae_limiter.admission.image import BucketImage, level_milli, reaches_ms
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import at_rate, full, governs
from zae_limiter.admission.shards.outlook import together
from zae_limiter.admission.shards.pressure import CALM_PER_S
from zae_limiter.admission.shards.spreading import is_large
from zae_limiter.admission.shards.tree import WHOLE, Shard, effective
from zae_limiter.dynamodb.known import LONG_AGO, Known
from zae_limiter.dynamodb.member import Refused
from zae_limiter.dynamodb.part import Part, fits_alone
from zae_limiter.dynamodb.view import Place, Seen, first_spot
from zae_limiter.records.dynamodb.bucket_item import StoredBucket

Images = dict[Shard, BucketImage]


class Sights(NamedTuple):
    """Every shard that there must be; None for those that were never seen."""

    shards: Mapping[Shard, Seen | None]

    @classmethod
    def of(cls, known: Known, place: Place) -> Sights:
        layout = known.layout(place)
        if layout is None:
            return cls({WHOLE: known.get(first_spot(place))})
        return cls({shard: _at(known, place, shard) for shard in layout.live})

    def images(self, in_force: InForce, now_ms: int) -> Images:
        """Each shard as it stands under the limits in force; who was never seen is full."""
        return {
            shard: view(None if seen is None else seen.bucket.image, in_force.at(shard), now_ms)
            for shard, seen in self.shards.items()
        }

    def numbers(self) -> list[int]:
        return [shard.number for shard in self.shards]

    def marks(self) -> dict[Shard, str]:
        """The last write to each shard that was seen."""
        return {shard: seen.bucket.operation for shard, seen in self.shards.items() if seen}

    def unseen(self) -> list[int]:
        """The numbers of shards of which nothing is known."""
        return self.older_than(LONG_AGO + 1)

    def seen(self, shards: Iterable[Shard]) -> list[Shard]:
        """Those of the shards of which something is known."""
        return [shard for shard in shards if self.shards[shard] is not None]

    def older_than(self, moment_ms: int) -> list[int]:
        """The numbers of shards that were not seen since."""
        return [
            shard.number
            for shard, seen in self.shards.items()
            if seen is None or seen.at_ms < moment_ms
        ]

    def gathers(self, images: Images, part: Part) -> bool:
        """Whether a charge that no shard holds is taken from several of them.

        That costs more than it is worth where many others come for the same small amounts.
        """
        writes_per_s = sum(seen.pressure.per_s for seen in self.shards.values() if seen)
        return writes_per_s < CALM_PER_S or is_large(images, part.amounts_milli)

    def behind(self, in_force: InForce) -> list[int]:
        """The numbers of shards that were seen with other limits."""
        return [
            shard.number
            for shard, seen in self.shards.items()
            if seen is not None and not governs(seen.bucket.image, in_force.at(shard))
        ]


def seems_to_fit(known: Known, place: Place, part: Part, now_ms: int) -> bool:
    """Whether nothing speaks against a charge, as far as is known."""
    sights = Sights.of(known, place)
    images = sights.images(part.in_force, now_ms)
    if fitting(images, part, now_ms):
        return True
    return sights.gathers(images, part) and fits_together(images, part, now_ms)


def fitting(images: Images, part: Part, now_ms: int) -> list[Shard]:
    """The shards that hold a charge by themselves."""
    return [shard for shard, image in images.items() if fits_alone(part, image, now_ms)]


def fits_together(images: Images, part: Part, now_ms: int) -> bool:
    """Whether the shards hold a charge among them."""
    return all(
        sum(level_milli(image.limits[key], now_ms) for image in images.values()) >= amount
        for key, amount in part.amounts_milli.items()
    )


def refused(images: Images, part: Part, now_ms: int, *, gathers: bool) -> Refused:
    """Why a charge does not fit: what is in the shard that holds it first, or in all together."""
    if len(images) == 1 or not gathers:
        shard = _first_to_hold(images, part)
        return Refused(images[shard], now_ms, shard)
    rates = dict(zip(part.in_force.keys, part.in_force.rates, strict=True))
    return Refused(together(images, rates, now_ms), now_ms)


def whole_image(buckets: Collection[StoredBucket], now_ms: int) -> BucketImage:
    """All shards of a bucket, as they were read, as one bucket at one moment."""
    latest = sorted(buckets, key=lambda each: (each.image.config_version, each.generation))
    if len(latest) == 1:
        return latest[0].image
    rates = {key: rate for each in latest for key, rate in each.whole_rates.items()}
    shards = {}
    for bucket in buckets:
        known, limits = bucket.image.limits, {}
        for key, rate in rates.items():
            own = effective(rate, bucket.shard)
            limits[key] = at_rate(known[key], own, now_ms) if key in known else full(own, now_ms)
        shards[bucket.shard] = bucket.image._replace(limits=limits)
    return together(shards, rates, now_ms)


def _first_to_hold(images: Images, part: Part) -> Shard:
    """Larger shards hold more; of those that are large enough, the one that waits least."""

    def wait(shard: Shard) -> tuple[bool, int, Shard]:
        limits = images[shard].limits
        never = any(
            amount > limits[key].rate.capacity_milli for key, amount in part.amounts_milli.items()
        )
        holds_ms = max(
            reaches_ms(limits[key], amount) for key, amount in part.amounts_milli.items()
        )
        return never, holds_ms, shard

    return min(images, key=wait)


def _at(known: Known, place: Place, shard: Shard) -> Seen | None:
    seen = known.get((*place, shard.number))
    return seen if seen is not None and seen.bucket.shard == shard else None

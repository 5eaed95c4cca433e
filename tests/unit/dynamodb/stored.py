"""Items of a bucket as the store shows them."""

from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.image import HOUR_MS, Rate
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.items.stored.keys import BucketId

NOW_MS = 1_767_225_600_000
BUCKET_ID = BucketId("ns", "user", "api")
LIMIT = Limit.per_minute("rpm", 100)
IN_FORCE = InForce((LIMIT,), ConfigSource.SYSTEM, 1)


def item_of(shard=WHOLE, generation=1, *, writes=1, consumed=0, bucket_id=BUCKET_ID):
    """One shard, or a whole bucket."""
    rate = Rate.of(LIMIT)
    return {
        **keys.bucket(*bucket_id, shard.number).attributes,
        "t_rpm": n(0),
        "c_rpm": n(consumed),
        "p_rpm": s(bucket_item.pack(rate, 0)),
        "n": n(shard.n),
        "lh": s(bucket_item.digest_of({"rpm": rate}, {"rpm": 0})),
        "cv": n(1),
        "g": n(generation),
        "wc": n(writes),
        "ac": n(0),
        "o": s(f"{shard.number}.origin"),
        "h": n(NOW_MS // HOUR_MS),
        "op": s(f"{NOW_MS // 1000:x}.{generation}-{writes}"),
    }


def bucket_of(shard=WHOLE, generation=1, **others):
    return bucket_item.decode(item_of(shard, generation, **others))

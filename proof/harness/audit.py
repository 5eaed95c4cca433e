"""Before and after a run of our own limiter: limits are stored; levels and usage are read.

A level is what an acquire could really take, when nothing was used for as long as limits need to
fill and holds need to expire.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Any

from proof.harness.diary import Diary, now_ns
from proof.harness.limits import (
    BRIEF,
    BUDGET,
    HELD,
    NANO,
    QUOTA,
    RESOURCE,
    SHARDED,
    TUNED,
    TURNED,
    Bucket,
    buckets_of,
    terms_of,
)
from proof.harness.plan import DYNAMODB, HOLD_TTL_S, Plan
from zae_limiter import RateLimiter, RateLimitExceeded, Repository
from zae_limiter.clock import Deadline
from zae_limiter.items.stored.keys import BucketId

QUIET_S = max(1.5 * HOLD_TTL_S, 2.5) + 0.6


async def prepare(plan: Plan, repo: Repository) -> None:
    """Store the limits and the hierarchy."""
    if plan.has_expiring_buckets:
        await repo.set_system_defaults(list(BRIEF[0].limits))
    for bucket in buckets_of(plan):
        await repo.create_entity(
            bucket.entity, parent_id=bucket.parent, cascade=bucket.parent is not None
        )
        if not bucket.is_default:
            await repo.set_limits(bucket.entity, list(bucket.limits), RESOURCE)


def tell_terms(plan: Plan, diary: Diary) -> None:
    for bucket in buckets_of(plan):
        for terms in terms_of(bucket):
            diary.tell("limit", **terms)


async def read(plan: Plan, repo: Repository, diary: Diary) -> None:
    """Note usage, then levels, which takes them."""
    buckets, limiter = buckets_of(plan), RateLimiter(repo)
    if plan.subject == DYNAMODB:
        await _tell_splits(repo, buckets, diary)
    for bucket in HELD:
        await _sweep(limiter, bucket)
    for bucket in () if plan.has_expiring_buckets else buckets:  # then usage is off
        for name, amount in (await _usage(repo, bucket)).items():
            diary.tell("usage", series=bucket.series(name), amount=amount)
    for bucket in buckets:
        if bucket in (TUNED, QUOTA, TURNED) or bucket.parent is not None:
            continue  # their last terms or windows are open, or their parent's level bounds them
        for name, amount in (await _levels(limiter, bucket)).items():
            diary.tell("level", series=bucket.series(name), at=now_ns(), amount=amount)


async def _tell_splits(repo: Repository, buckets: list[Bucket], diary: Diary) -> None:
    """Note the splits that clients made by themselves, as they do when the store throttles.

    A run is shorter than the time after which quiet shards are merged.
    """
    context = repo._context  # noqa: SLF001 - no public method shows shards
    reader = context.engine.buckets.resharder._reader  # type: ignore[attr-defined]  # noqa: SLF001
    for bucket in buckets:
        bucket_id = BucketId(repo.namespace_id, bucket.entity, RESOURCE)
        shards = await reader.read_all(bucket_id, context.clock, Deadline(2))
        if bucket is not SHARDED:
            for _ in range(len(shards) - 1):
                diary.tell("shape", bucket=bucket.entity)


async def _sweep(limiter: RateLimiter, bucket: Bucket) -> None:
    """Charge nothing in the end: only a charge takes expired holds out of the counted use."""
    (limit,) = bucket.limits
    with suppress(RateLimitExceeded):  # nothing is held: an expired hold would have made room
        async with limiter.acquire(bucket.entity, RESOURCE, {limit.name: 1}) as lease:
            await lease.settle({limit.name: 0})


async def _usage(repo: Repository, bucket: Bucket) -> dict[str, int]:
    names = [limit.name for limit in bucket.limits]
    if bucket is BUDGET:  # reports of hours round
        state = await repo.get_bucket(bucket.entity, RESOURCE, "usd")
        return {"usd": 0 if state is None else int(state.total_consumed_milli or 0)}
    snapshots, key = [], None
    while True:
        page, key = await repo.get_usage_snapshots(
            bucket.entity, RESOURCE, window_type="hourly", next_key=key
        )
        snapshots += page
        if key is None:
            break
    return {name: sum(each.counters.get(name, 0) for each in snapshots) for name in names}


async def _levels(limiter: RateLimiter, bucket: Bucket) -> dict[str, int]:
    found: dict[str, Any] = await limiter.available(bucket.entity, RESOURCE)
    wanted = {name: amount for name, amount in found.items() if amount > 0}
    try:
        async with limiter.acquire(bucket.entity, RESOURCE, wanted, timeout=0):
            pass
    except RateLimitExceeded:
        return dict.fromkeys(found, 0)
    return {
        name: int(amount * NANO) if isinstance(amount, Decimal) else amount
        for name, amount in found.items()
    }

"""The decision about one request of Envoy: all its descriptors are charged, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter import Limit
from zae_limiter.admission.several import MOST_RESOURCES
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.headers import rate_limit_headers

if TYPE_CHECKING:
    from zae_limiter import RateLimiter
    from zae_limiter._async.acquire import Acquire
    from zae_limiter.models.status import LimitStatus
    from zae_limiter_service.envoy.rules import DescriptorTarget


Bucket = tuple[str, str]  # entity and resource


class DescriptorAsk(NamedTuple):
    """One descriptor: its target, its hits, and the limit that Envoy sets for it, if any."""

    target: DescriptorTarget
    hits: int
    override: Limit | None = None

    def amounts(self) -> dict[str, int]:
        return {name: each.of(self.hits) for name, each in self.target.amounts.items()}


class BucketAsk(NamedTuple):
    """All descriptors about one bucket."""

    entity: str
    resource: str
    amounts: Mapping[str, int]
    overrides: Mapping[str, Limit]

    @property
    def bucket(self) -> Bucket:
        return self.entity, self.resource


class Verdict(NamedTuple):
    """The statuses of one bucket; ``is_tried`` is False after the rejection of another one."""

    statuses: tuple[LimitStatus, ...] = ()
    is_rejected: bool = False
    is_tried: bool = False


@dataclass(frozen=True, slots=True)
class RateLimitAnswer:
    """Whether a request is admitted, with the verdict on the bucket of each of its descriptors."""

    verdicts: tuple[Verdict | None, ...]  # None: the descriptor is not limited
    rejected: RateLimitExceeded | None
    headers: Mapping[str, str]

    @property
    def is_admitted(self) -> bool:
        return self.rejected is None


async def decide(
    limiter: RateLimiter, asks: Sequence[DescriptorAsk | None], clock: Callable[[], int]
) -> RateLimitAnswer:
    """Charge every bucket, or none.

    The store charges the buckets of one acquire together, so two requests never take from each
    other what both give back then. Requests about more buckets need several acquires: if one
    rejects, those before it give everything back, and others may find less in between.
    """
    verdicts: dict[Bucket, Verdict] = {}
    blocks: list[Acquire] = []
    statuses: tuple[LimitStatus, ...] = ()
    rejected: RateLimitExceeded | None = None
    group: Sequence[BucketAsk] = ()
    try:
        for group in in_acquires(merged([ask for ask in asks if ask is not None])):
            block = limiter.acquire(
                group[0].entity,
                group[0].resource,
                dict(group[0].amounts),
                limits=await _limits(limiter, group[0]),
                also={each.bucket: each.amounts for each in group[1:]} or None,
            )
            lease = await block.__aenter__()
            blocks.append(block)
            statuses = lease.statuses
            for bucket, own in _own_statuses(group, statuses).items():
                verdicts[bucket] = Verdict(own, is_tried=True)
    except RateLimitExceeded as error:
        rejected = error
        for bucket, own in _own_statuses(group, error.statuses).items():
            is_exceeded = any(status.exceeded for status in own)
            verdicts[bucket] = Verdict(own, is_exceeded, is_tried=bool(own))
        await _end(blocks, error)
    except BaseException as error:
        await _end(blocks, error)
        raise
    else:
        await _end(blocks, None)
    if rejected is not None:
        headers = rejected.headers()
    else:
        headers = rate_limit_headers(statuses, now_ms=clock())
    of_asks = [
        None if ask is None else verdicts.get((ask.target.entity, ask.target.resource), Verdict())
        for ask in asks
    ]
    return RateLimitAnswer(tuple(of_asks), rejected, headers)


def merged(asks: Sequence[DescriptorAsk]) -> list[BucketAsk]:
    """Add up descriptors about the same bucket, in the order of their first ones."""
    amounts: dict[tuple[str, str], dict[str, int]] = {}
    overrides: dict[tuple[str, str], dict[str, Limit]] = {}
    for ask in asks:
        key = ask.target.entity, ask.target.resource
        of_bucket = amounts.setdefault(key, {})
        for name, amount in ask.amounts().items():
            of_bucket[name] = of_bucket.get(name, 0) + amount
        of_overrides = overrides.setdefault(key, {})
        if ask.override is not None:
            of_overrides[ask.override.name] = ask.override
    return [BucketAsk(*key, found, overrides[key]) for key, found in amounts.items()]


def in_acquires(buckets: Sequence[BucketAsk]) -> list[list[BucketAsk]]:
    """Divide buckets among acquires. Only the first bucket of each can have limits of Envoy."""
    overridden = [bucket for bucket in buckets if bucket.overrides]
    others = [bucket for bucket in buckets if not bucket.overrides]
    groups = [[bucket] for bucket in overridden]
    for bucket in others:
        if not groups or len(groups[-1]) == MOST_RESOURCES:
            groups.append([])
        groups[-1].append(bucket)
    return groups


def _own_statuses(
    group: Sequence[BucketAsk], statuses: Sequence[LimitStatus]
) -> dict[Bucket, tuple[LimitStatus, ...]]:
    """Divide the statuses of one acquire among its buckets."""
    if len(group) == 1:
        return {group[0].bucket: tuple(statuses)}
    asked = {each.bucket for each in group}
    found = {}
    for entity, resource in asked:
        # What nobody has asked about is the bucket of a parent, which counts for its resource.
        found[entity, resource] = tuple(
            [
                status
                for status in statuses
                if status.resource == resource
                and (status.entity_id == entity or (status.entity_id, resource) not in asked)
            ]
        )
    return found


async def _limits(limiter: RateLimiter, bucket: BucketAsk) -> list[Limit] | None:
    """Return the stored limits with those that Envoy sets instead; None if it sets none."""
    if not bucket.overrides:
        return None
    repository = limiter.repository
    assert repository is not None, "the service opens its store before it serves"
    stored, _, _ = await repository.resolve_limits(bucket.entity, bucket.resource)
    limits = {limit.name: limit for limit in stored or ()}
    return list({**limits, **bucket.overrides}.values())


async def _end(blocks: Sequence[Acquire], error: BaseException | None) -> None:
    """End blocks; those that have charged for a rejected request give everything back."""
    kind = None if error is None else type(error)
    for block in reversed(blocks):
        await block.__aexit__(kind, error, None)

"""The decision about one request of Envoy: all its descriptors are charged, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter import Limit
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.headers import rate_limit_headers

if TYPE_CHECKING:
    from zae_limiter import RateLimiter
    from zae_limiter._async.acquire import Acquire
    from zae_limiter.models.status import LimitStatus
    from zae_limiter_service.envoy.rules import DescriptorTarget


class DescriptorAsk(NamedTuple):
    """One descriptor: its target, its hits, and the limit that Envoy sets for it, if any."""

    target: DescriptorTarget
    hits: int
    override: Limit | None = None

    def amounts(self) -> dict[str, int]:
        return {name: each.of(self.hits) for name, each in self.target.amounts.items()}


class BucketAsk(NamedTuple):
    """All descriptors about one bucket, as one acquire."""

    entity: str
    resource: str
    amounts: Mapping[str, int]
    overrides: Mapping[str, Limit]


class Verdict(NamedTuple):
    """The statuses of one bucket; ``is_tried`` is False after the rejection of another one."""

    statuses: tuple[LimitStatus, ...] = ()
    is_rejected: bool = False
    is_tried: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request is admitted, with the verdict on the bucket of each of its descriptors."""

    verdicts: tuple[Verdict | None, ...]  # None: the descriptor is not limited
    rejected: RateLimitExceeded | None
    headers: Mapping[str, str]

    @property
    def is_admitted(self) -> bool:
        return self.rejected is None


async def decide(
    limiter: RateLimiter, asks: Sequence[DescriptorAsk | None], clock: Callable[[], int]
) -> Decision:
    """Charge every bucket, or none.

    Buckets are charged one after the other. If one rejects, those before it get everything back; a
    concurrent request may find them lower in between, and never fuller than they are.
    """
    buckets = merged([ask for ask in asks if ask is not None])
    verdicts: dict[tuple[str, str], Verdict] = {}
    blocks: list[Acquire] = []
    rejected: RateLimitExceeded | None = None
    tried: tuple[str, str] = "", ""
    try:
        for bucket in buckets:
            tried = bucket.entity, bucket.resource
            block = limiter.acquire(
                bucket.entity,
                bucket.resource,
                dict(bucket.amounts),
                limits=await _limits(limiter, bucket),
            )
            lease = await block.__aenter__()
            blocks.append(block)
            verdicts[tried] = Verdict(lease.statuses, is_tried=True)
    except RateLimitExceeded as error:
        rejected = error
        verdicts[tried] = Verdict(tuple(error.statuses), is_rejected=True, is_tried=True)
        await _end(blocks, error)
    except BaseException as error:
        await _end(blocks, error)
        raise
    else:
        await _end(blocks, None)
    if rejected is not None:
        headers = rejected.headers()
    else:
        statuses = verdicts[tried].statuses if buckets else ()
        headers = rate_limit_headers(statuses, now_ms=clock())
    of_asks = [
        None if ask is None else verdicts.get((ask.target.entity, ask.target.resource), Verdict())
        for ask in asks
    ]
    return Decision(tuple(of_asks), rejected, headers)


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

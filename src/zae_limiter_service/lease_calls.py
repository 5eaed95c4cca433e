"""The calls of a lease to the library, for its own resource and for further ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zae_limiter import Lease, RateLimiter
    from zae_limiter._async.acquire import Acquire

Amounts = Mapping[str, Any]


class LeaseRequest(NamedTuple):
    """The arguments of an acquire."""

    entity: str
    resource: str
    amounts: Amounts
    also: Mapping[str, Amounts]
    timeout_s: float | None
    ttl_s: float


class LeaseChange(NamedTuple):
    """The amounts of a settlement or of an adjustment."""

    amounts: Amounts
    also: Mapping[str, Amounts]


def begin(limiter: RateLimiter, request: LeaseRequest) -> Acquire:
    """Return the acquire of a request, not entered yet."""
    return limiter.acquire(
        request.entity,
        request.resource,
        dict(request.amounts),
        timeout=request.timeout_s,
        also=request.also or None,
    )


def clock(limiter: RateLimiter) -> Callable[[], int]:
    """Return the clock of the store."""
    repository = limiter.repository
    assert repository is not None, "the service opens its store before it serves"
    return repository.charging.clock


def charged(lease: Lease, request: LeaseRequest) -> dict[str, Amounts]:
    """Return the charged amounts by resource, that of the lease itself first."""
    if not request.also:
        return {request.resource: lease.consumed}
    further = [resource for resource in request.also if resource != request.resource]
    return {
        resource: lease.resource(resource).consumed for resource in (request.resource, *further)
    }


async def settle(lease: Lease, change: LeaseChange) -> None:
    """Write the true cost at once; raise RateLimiterUnavailable if the store does not answer.

    A cost is absolute, so a settlement that was interrupted between two resources can be repeated.
    """
    for part, amounts in _parts(lease, change):
        await part.settle(amounts, now=True)


async def adjust(lease: Lease, change: LeaseChange) -> None:
    """Add to the cost, which is written when the lease ends, on all resources or on none."""
    done: list[tuple[Lease, Amounts]] = []
    try:
        for part, amounts in _parts(lease, change):
            await part.adjust(amounts)
            done.append((part, amounts))
    except ValidationError:
        for part, amounts in done:
            await part.adjust({name: -amount for name, amount in amounts.items()})
        raise


async def give_back(lease: Lease, taken: dict[str, Amounts]) -> None:
    """Give back all that the acquire has charged; raise if the store does not answer.

    ``taken`` loses the resources that were given back, so that a repetition goes on with the rest.
    """
    for resource in list(taken):
        names = {name: amount for name, amount in taken[resource].items() if amount}
        if names:
            await lease.resource(resource).release(names)
        del taken[resource]


async def end_expired(lease: Lease, resources: Iterable[str], settled: LeaseChange | None) -> bool:
    """Give the holds of quotas back, and leave rates as they are; return False if nothing was done.

    Nothing is done if a name is a quota of the entity and a rate of its parent, or the reverse. One
    settlement would change both, so the holds of such a lease expire in the store instead.
    """
    returned = []
    for position, resource in enumerate(resources):
        part = lease.resource(resource)
        kept: Amounts = {}
        if settled is not None:
            kept = settled.also.get(resource, {}) if position else settled.amounts
        quotas = _quotas_of(part, resource)
        if quotas is None:
            return False
        returned.append((part, {name: 0 for name in quotas if name not in kept}))
    for part, amounts in returned:
        if amounts:
            await part.settle(amounts)
    return True


def _quotas_of(part: Lease, resource: str) -> set[str] | None:
    """Return the charged limits that are quotas; None if a name is a quota and something else."""
    kinds: dict[str, set[bool]] = {}
    cost = part.consumed
    for status in part.statuses:
        if status.resource == resource and cost.get(status.limit_name):
            kinds.setdefault(status.limit_name, set()).add(status.limit.is_quota)
    if any(len(found) > 1 for found in kinds.values()):
        return None
    return {name for name, found in kinds.items() if True in found}


def _parts(lease: Lease, change: LeaseChange) -> list[tuple[Lease, Amounts]]:
    """Return the leases of all resources that a change names; an unknown one raises."""
    further = [(lease.resource(name), amounts) for name, amounts in change.also.items()]
    return [(lease, change.amounts), *further]

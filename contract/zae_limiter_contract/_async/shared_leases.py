"""One lease with several operations at once: they are made one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from zae_limiter.exceptions import LeaseExpiredError, RateLimitExceeded, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, World
from zae_limiter_contract.together import agather

QUOTA, TPM = Limit.quota("tokens", 1000, per="day"), Limit.per_minute("tpm", 1000)
ALL = "all"

Operation = Callable[[], Awaitable[Any]]


class SharedLeaseContract(Contract):
    """Whatever operations of one lease meet, its bucket shows what the lease has booked."""

    @pytest.fixture
    async def with_quota(self, world: World) -> World:
        await world.configure(QUOTA, TPM)
        return world

    async def test_settlements_side_by_side_are_all_made(self, with_quota: World) -> None:
        async with with_quota.acquire(tokens=10, tpm=10) as lease:
            await agather(
                [partial(lease.settle, tokens=cost, tpm=cost, now=True) for cost in (30, 5, 20, 40)]
            )
            cost = lease.consumed["tokens"]
            assert lease.consumed["tpm"] == cost
            assert await _spent(with_quota) == (cost, cost)
        assert cost == 40  # unasync: remove
        assert await _spent(with_quota) == (cost, cost)
        assert await _held(with_quota) == 0

    async def test_an_end_waits_for_the_operations_before_it(self, with_quota: World) -> None:
        acquire = with_quota.acquire(tokens=10)
        lease = await acquire.__aenter__()
        operations: list[Operation] = [
            partial(lease.settle, tokens=30, now=True),
            partial(lease.consume, tokens=7),
            partial(lease.settle, tokens=20, now=True),
            partial(acquire.__aexit__, None, None, None),
            partial(lease.settle, tokens=90, now=True),
        ]
        await agather([partial(_unless_ended, operation) for operation in operations])
        cost = lease.consumed["tokens"]
        assert cost == 20  # unasync: remove
        assert (await _spent(with_quota))[0] == cost
        assert await _held(with_quota) == 0

    async def test_a_block_that_fails_waits_for_the_operations_before_it(
        self, with_quota: World
    ) -> None:
        acquire, error = with_quota.acquire(tokens=10, tpm=10), ArithmeticError()
        lease = await acquire.__aenter__()
        operations: list[Operation] = [
            partial(lease.consume, tokens=30, tpm=30),
            partial(lease.release, tokens=5),
            partial(lease.consume, tpm=7),
            partial(acquire.__aexit__, ArithmeticError, error, None),
        ]
        await agather([partial(_unless_ended, operation) for operation in operations])
        assert await _spent(with_quota) == (0, 0)
        assert await _held(with_quota) == 0

    async def test_mixed_operations_leave_what_the_lease_has_booked(
        self, with_quota: World
    ) -> None:
        async with with_quota.acquire(tokens=50) as lease:
            operations: list[Operation] = [
                partial(lease.settle, tokens=60, now=True),
                partial(lease.consume, tokens=50),
                partial(lease.adjust, tokens=3),
                partial(lease.settle, tokens=40),
                partial(lease.consume, tokens=30),
                partial(lease.release, tokens=10),
            ]
            await agather(operations)
            cost = lease.consumed["tokens"]
            assert cost == 60  # unasync: remove
        assert (await _spent(with_quota))[0] == cost
        assert await _held(with_quota) == 0

    async def test_operations_on_several_resources_leave_what_their_leases_have_booked(
        self, with_quota: World
    ) -> None:
        await with_quota.repo.create_entity(USER, parent_id="team", cascade=True)
        also = {ALL: {"tokens": 20}, ("team", API): {"tokens": 5}}
        async with with_quota.limiter.acquire(USER, API, {"tokens": 10}, also=also) as lease:
            parts = [lease, lease.resource(ALL), lease.resource(("team", API))]
            settle = [
                partial(part.settle, tokens=cost, now=True)
                for cost in (30, 8, 25)
                for part in parts
            ]
            release = [partial(part.release, tokens=1) for part in parts]
            operations: list[Operation] = [*settle, *release]
            await agather(operations)
            own, everything, of_team = [part.consumed["tokens"] for part in parts]
            assert (own, everything, of_team) == (24, 24, 24)  # unasync: remove
        assert await with_quota.spent("tokens") == own
        assert await with_quota.spent("tokens", USER, ALL) == everything
        assert await with_quota.spent("tokens", "team", API) == own + of_team
        assert await _held(with_quota) == await _held(with_quota, "team") == 0

    async def test_a_refused_operation_lets_the_next_ones_go_on(self, with_quota: World) -> None:
        async with with_quota.acquire(tokens=10) as lease:
            operations: list[Operation] = [
                partial(_refused, partial(lease.consume, tokens=2000)),
                partial(_refused, partial(lease.release, tokens=5000)),
                partial(lease.consume, tokens=5),
            ]
            await agather(operations)
            assert lease.consumed == {"tokens": 15}
        assert (await _spent(with_quota))[0] == 15


async def _unless_ended(operation: Operation) -> None:
    """Run an operation; it may come too late."""
    with suppress(LeaseExpiredError):
        await operation()


async def _refused(operation: Operation) -> None:
    with pytest.raises((RateLimitExceeded, ValidationError)):
        await operation()


async def _spent(world: World) -> tuple[int, int]:
    return await world.spent("tokens"), await world.spent("tpm")


async def _held(world: World, entity_id: str = USER) -> Any:
    answer = await world.limiter.check_availability(entity_id, API, {})
    return next(
        each.held
        for each in answer.statuses
        if (each.entity_id, each.limit_name) == (entity_id, "tokens")
    )

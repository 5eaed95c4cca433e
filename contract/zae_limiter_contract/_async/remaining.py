"""The remaining tokens after an acquire, which come with its own answer, without a second call."""

from __future__ import annotations

import pytest

from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, World

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6000)
CHILD, PARENT = "child", "parent"


class RemainingContract(Contract):
    """``remaining``, ``statuses`` and ``headers`` of a lease."""

    async def test_remaining_is_what_the_acquire_has_left(self, world: World) -> None:
        await world.configure(RPM, TPM)
        for left in (58, 56, 54):
            async with world.acquire(rpm=2) as lease:
                assert lease.remaining == {"rpm": left, "tpm": 6000}
                assert lease.remaining == await world.limiter.available(USER, API)
            world.clock.advance(ms=0)

    async def test_remaining_follows_time_and_what_the_block_changes(self, world: World) -> None:
        await world.configure(RPM, TPM)
        await world.take(rpm=30, tpm=1000)
        async with world.acquire(rpm=10, tpm=1000) as lease:
            assert lease.remaining == {"rpm": 20, "tpm": 4000}
            await lease.adjust(tpm=500, rpm=-3)
            assert lease.remaining == {"rpm": 23, "tpm": 3500}
            await lease.consume(rpm=4)
            assert lease.remaining == {"rpm": 19, "tpm": 3500}
            await lease.release(rpm=5)
            assert lease.remaining == {"rpm": 24, "tpm": 3500}
            await lease.settle(tpm=4500)
            assert lease.remaining == {"rpm": 24, "tpm": 500}
            await lease.settle(tpm=6000, now=True)
            assert lease.remaining == {"rpm": 24, "tpm": -1000}
            world.clock.advance(seconds=5)
            assert lease.remaining == {"rpm": 29, "tpm": -500}
        assert lease.remaining == await world.limiter.available(USER, API)

    async def test_of_a_cascade_the_smaller_rest_remains(self, world: World) -> None:
        await world.configure(Limit.per_minute("rpm", 50))
        await world.repo.set_limits(PARENT, [Limit.per_minute("rpm", 20), TPM])
        await world.repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
        async with world.acquire(CHILD, rpm=5, tpm=10) as lease:
            assert lease.remaining == {"rpm": 15, "tpm": 5990}
            assert [(s.entity_id, s.limit_name, s.available) for s in lease.statuses] == [
                (CHILD, "rpm", 45),
                (PARENT, "rpm", 15),
                (PARENT, "tpm", 5990),
            ]
            await lease.consume(rpm=5)
            assert lease.remaining == {"rpm": 10, "tpm": 5990}

    async def test_statuses_say_what_the_block_costs_and_whether_it_owes(
        self, world: World
    ) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=2) as lease:
            await lease.adjust(tpm=6100)
            rpm, tpm = lease.statuses
            assert (rpm.limit, rpm.resource, rpm.requested) == (RPM, API, 2)
            assert (rpm.exceeded, rpm.retry_after_seconds) == (False, 0)
            assert (tpm.available, tpm.requested) == (-100, 6100)
            assert (tpm.exceeded, tpm.retry_after_seconds) == (True, 1)

    async def test_a_limit_of_the_call_beside_a_configured_one_shows_its_own_rest(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        own = [Limit.per_minute("rpm", 10)]
        async with world.acquire(limits=own, rpm=3) as lease:
            assert lease.remaining == {"rpm": 7}
        async with world.acquire(rpm=1) as lease:
            assert lease.remaining == {"rpm": 59}

    @for_each("style", ["ietf", "x-ratelimit", "openai"])
    async def test_headers_of_a_lease_and_of_a_rejection_have_the_same_names(
        self, world: World, style: str
    ) -> None:
        await world.configure(RPM, TPM)
        async with world.limiter.acquire(f"user of {style}", API, {"rpm": 60}) as lease:
            of_lease = lease.headers(style)  # type: ignore[arg-type]
        with pytest.raises(RateLimitExceeded) as caught:
            await world.take(f"user of {style}", rpm=1)
        of_rejection = caught.value.headers(style)  # type: ignore[arg-type]
        assert of_rejection.pop("Retry-After") == "1"
        assert of_lease.keys() == of_rejection.keys()
        if style == "ietf":
            assert of_lease["RateLimit"] == '"rpm";r=0;t=60, "tpm";r=6000;t=0'
            assert of_rejection["RateLimit"] == '"rpm";r=0;t=1, "tpm";r=6000;t=0'
        else:
            assert of_lease == of_rejection

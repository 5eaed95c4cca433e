"""A store that does not answer. The outage policy decides about calls, which wait only briefly."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import AsyncIterator

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.exceptions import (
    InfrastructureError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
)
from zae_limiter.models.config import OutagePolicy
from zae_limiter.models.limit import Limit
from zae_limiter.runtime.calls import apause
from zae_limiter_contract._async.base import Contract, Outage
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import API, USER, Failure, World, failing, stored
from zae_limiter_contract.stopwatch import Stopwatch

RPM = Limit.per_minute("rpm", 10)
AT_ONCE_S = 0.3


class OutageContract(Contract):
    """The faults are real; ``EngineSpec.outage`` makes them."""

    @pytest.fixture
    async def hasty(self, world: World, outage: Outage) -> AsyncIterator[Repository]:
        """A repository that waits for a moment only, its configuration known."""
        await world.configure(RPM)
        await world.take(rpm=1)
        repository = await world.open_hasty()
        yield repository
        await repository.close()

    async def test_an_acquire_is_blocked_by_default_and_the_error_says_what_for(
        self, hasty: Repository, outage: Outage
    ) -> None:
        with outage(), pytest.raises(RateLimiterUnavailable) as caught:
            await _take(hasty)
        error = caught.value
        assert (error.entity_id, error.resource) == (USER, API)
        assert error.stack_name == hasty.stack_name
        assert isinstance(pickle.loads(pickle.dumps(error)), RateLimiterUnavailable)

    async def test_no_call_waits_longer_than_the_request_timeout(
        self, engine_spec: EngineSpec, hasty: Repository, outage: Outage
    ) -> None:
        with outage(), Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
            await _take(hasty)
        assert watch.within(engine_spec.moment_s)

    async def test_a_call_that_says_allow_is_let_through_uncharged(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        with outage():
            acquire = RateLimiter(hasty).acquire(USER, API, {"rpm": 5}, on_unavailable="allow")
            async with acquire as lease:
                assert lease.consumed == {}
        assert await world.tokens() == 9
        assert hasty.lost_settlements == 0

    async def test_a_repository_that_says_allow_lets_through(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        generous = await world.open_hasty(on_unavailable="allow")
        with outage():
            await _take(generous)

    async def test_system_defaults_that_say_allow_let_through_once_they_are_known(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        await world.repo.set_system_defaults([RPM], on_unavailable="allow")
        knowing = await world.open_hasty()
        world.clock.advance(days=1)  # an outage does not make them forget
        with outage():
            await _take(knowing)

    async def test_the_call_decides_before_the_repository(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        generous = await world.open_hasty(on_unavailable="allow")
        with outage(), pytest.raises(RateLimiterUnavailable):
            await _take(generous, on_unavailable="block")

    async def test_the_repository_decides_before_the_system_defaults(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        await world.repo.set_system_defaults([RPM], on_unavailable="allow")
        strict = await world.open_hasty(on_unavailable="block")
        with outage(), pytest.raises(RateLimiterUnavailable):
            await _take(strict)

    async def test_a_scoped_repository_may_decide_for_itself(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        generous = await hasty.namespace("default", on_unavailable="allow")
        with outage():
            await _take(generous)
            with pytest.raises(RateLimiterUnavailable):
                await _take(hasty)

    async def test_adjust_and_release_of_an_uncharged_lease_do_nothing(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        acquire = RateLimiter(hasty).acquire(USER, API, {"rpm": 5}, on_unavailable="allow")
        with outage():
            async with acquire as lease:
                await lease.adjust(rpm=5)
                await lease.release(rpm=5)
                assert lease.consumed == {}
        assert await world.tokens() == 9

    async def test_consume_in_an_uncharged_lease_asks_the_store_again(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        acquire = RateLimiter(hasty).acquire(USER, API, {"rpm": 5}, on_unavailable="allow")
        fault = outage()
        fault.__enter__()
        async with acquire as lease:
            await lease.consume(rpm=1)
            await lease.adjust(rpm=4)
            await lease.release(rpm=1)
            assert lease.consumed == {}
            fault.__exit__(None, None, None)
            await lease.consume(rpm=2)
            assert lease.consumed == {"rpm": 2}
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=8)
        assert await world.tokens() == 7

    async def test_a_cost_below_what_was_let_through_uncharged_gives_back_what_was_charged(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        """The caller adjusts by the difference to the estimates, also to the uncharged one."""
        acquire = RateLimiter(hasty).acquire(USER, API, {"rpm": 2}, on_unavailable="allow")
        async with acquire as lease:
            with outage():
                await lease.consume(rpm=5)
            await lease.adjust(rpm=-6)
            assert lease.consumed == {"rpm": 0}
        assert await world.tokens() == 9

    @pytest.mark.parametrize("policy", ["allow", "block"])
    async def test_consume_in_an_outage_does_what_the_acquire_was_told(
        self, world: World, hasty: Repository, outage: Outage, policy: OutagePolicy
    ) -> None:
        acquire = RateLimiter(hasty).acquire(USER, API, {"rpm": 2}, on_unavailable=policy)
        async with acquire as lease:
            with outage():
                if policy == "allow":
                    await lease.consume(rpm=3)
                else:
                    with pytest.raises(RateLimiterUnavailable) as caught:
                        await lease.consume(rpm=3)
                    assert (caught.value.entity_id, caught.value.resource) == (USER, API)
            assert lease.consumed == {"rpm": 2}
            await lease.consume(rpm=1)
        assert await world.tokens() == 6

    async def test_the_policy_of_the_system_covers_consume(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        await world.repo.set_system_defaults([RPM], on_unavailable="allow")
        knowing = await world.open_hasty()
        async with RateLimiter(knowing).acquire(USER, API, {"rpm": 2}) as lease:
            with outage():
                await lease.consume(rpm=3)
        assert await world.tokens() == 7

    async def test_calls_that_are_let_through_uncharged_are_counted(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        generous = await world.open_hasty(on_unavailable="allow")
        await _take(generous)
        assert generous.uncharged_admissions == 0
        with outage():
            for _ in range(2):
                await _take(generous)
        assert generous.uncharged_admissions == 2

    async def test_a_release_that_is_not_written_stays_with_the_lease(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        with failing():
            async with RateLimiter(hasty).acquire(USER, API, {"rpm": 5}) as lease:
                with outage(), pytest.raises(RateLimiterUnavailable):
                    await lease.release(rpm=3)
                assert lease.consumed == {"rpm": 5}
                raise Failure
        assert await world.tokens() == 9

    async def test_allow_lets_through_only_what_the_store_did_not_answer(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        generous = await world.open_hasty(on_unavailable="allow")
        with pytest.raises(RateLimitExceeded):
            await _take(generous, rpm=10)
        with outage(), pytest.raises(ValidationError):
            await _take(generous, unknown=1)

    async def test_a_lease_that_cannot_settle_raises_nothing_and_settles_later(
        self,
        world: World,
        hasty: Repository,
        outage: Outage,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        fault = outage()
        async with RateLimiter(hasty).acquire(USER, API, {"rpm": 2}) as lease:
            await lease.adjust(rpm=3)
            fault.__enter__()
        fault.__exit__(None, None, None)
        assert hasty.pending_settlements == 1
        await stored(hasty)
        assert hasty.lost_settlements == 0
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
        assert await world.tokens() == 4

    async def test_a_block_that_fails_in_an_outage_raises_its_own_error_and_is_refunded_later(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        fault = outage()
        with failing():
            async with RateLimiter(hasty).acquire(USER, API, {"rpm": 2}):
                fault.__enter__()
                raise Failure
        fault.__exit__(None, None, None)
        await stored(hasty)
        assert hasty.lost_settlements == 0
        assert await world.tokens() == 9

    async def test_everything_works_again_when_the_outage_is_over(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        for _ in range(2):
            with outage(), pytest.raises(RateLimiterUnavailable):
                await _take(hasty)
            await _take(hasty)
        assert await world.tokens() == 7

    async def test_after_three_outages_calls_do_not_wait_for_a_store_that_is_down(
        self, world: World, hasty: Repository, outage: Outage, caplog: pytest.LogCaptureFixture
    ) -> None:
        scoped = await hasty.namespace("default")  # the breaker is the store's
        with outage():
            assert await _outages_until_open(hasty) >= 3
            with Stopwatch() as watch:
                for _ in range(39):
                    await _take(scoped, on_unavailable="allow")
                with pytest.raises(RateLimiterUnavailable) as caught:
                    await _take(scoped)
            assert watch.within(AT_ONCE_S)
            assert (caught.value.entity_id, caught.value.resource) == (USER, API)
            assert caught.value.stack_name == hasty.stack_name
            stats = hasty.get_stats()
            assert (stats.breaker_open, stats.breaker_openings) == (True, 1)
            assert stats.breaker_answers == 40
        until, refused = time.monotonic() + 20, 0  # a second, on an idle machine
        while not await _is_taken(hasty):
            assert time.monotonic() < until
            refused += 1
            await apause()
        stats = hasty.get_stats()
        assert (stats.breaker_open, stats.breaker_openings) == (False, 1)
        assert stats.breaker_answers == 40 + refused
        assert await world.tokens() == 8
        said = [each.getMessage() for each in caplog.records if each.name.endswith(".circuit")]
        assert len(said) == 2
        assert all(hasty.stack_name in each for each in said)

    async def test_a_closed_repository_says_so_also_after_an_outage(
        self, hasty: Repository, outage: Outage
    ) -> None:
        with outage():
            await _outages_until_open(hasty)
            await hasty.close()
            with pytest.raises(InfrastructureError, match="closed"):
                await _take(hasty, on_unavailable="allow")

    async def test_changes_are_refused_in_an_outage_and_not_made_later(
        self, world: World, hasty: Repository, outage: Outage
    ) -> None:
        with outage(), pytest.raises(RateLimiterUnavailable):
            await hasty.set_limits(USER, [Limit.per_minute("rpm", 99)])
        assert await world.repo.get_limits(USER) == []
        assert await world.repo.get_audit_events(USER) == []


async def _outages_until_open(repository: Repository) -> int:
    """Return the number of calls until the breaker opened."""
    outages = 0
    while not repository.get_stats().breaker_open:
        assert outages < 10_000
        with pytest.raises(RateLimiterUnavailable):
            await _take(repository)
        outages += 1
    return outages


async def _is_taken(repository: Repository) -> bool:
    try:
        await _take(repository)
    except RateLimiterUnavailable:
        return False
    return True


async def _take(
    repository: Repository, *, on_unavailable: OutagePolicy | None = None, **consume: int
) -> None:
    acquire = RateLimiter(repository).acquire(
        USER, API, consume or {"rpm": 1}, on_unavailable=on_unavailable
    )
    async with acquire:
        pass

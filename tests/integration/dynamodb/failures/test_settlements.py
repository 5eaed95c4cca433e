"""Debts and credits in faults: never raised at the end of a block, never made twice."""

import asyncio
import logging
import time
from contextlib import suppress

import pytest
from zae_limiter_contract._async.world import stored
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.failures.messages import arrived, late
from tests.integration.dynamodb.failures.states import TEN
from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.world import Failure, failing
from zae_limiter import InfrastructureError, PermissionDenied, RateLimiterUnavailable
from zae_limiter._async.engines.items.buckets.conditional_write import LATE_TIMEOUTS

SHORT_S = 0.5  # a lost write is known to be lost after a few of these
CARRIED_OUT = ("lose_answer", "cut_answer", "garble", "error_after")


@pytest.fixture
def stack(stack_without_usage):
    """Buckets expire as soon as they may."""
    return stack_without_usage


@pytest.fixture
async def client(world, proxy):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    return client


async def give_back(client, amount):
    """A block that fails."""
    with failing():
        async with client.acquire(rpm=amount):
            raise Failure


# --- it can be known what became of it


@pytest.mark.fast("lose_answer", "error_after")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before", "throttle"])
async def test_a_credit_without_a_proper_answer_is_made_once(world, client, proxy, kind):
    await client.take(rpm=6)
    with proxy.fault(kind, operation="UpdateItem", skip=1, times=1) as fault:
        await give_back(client, 3)
    assert fault.used == 1
    assert (world.level(), world.spent()) == (4000, 6000)
    assert client.repo.lost_settlements == 0


@pytest.mark.fast("1-lose_answer", "30-cut_answer")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before", "throttle"])
@pytest.mark.parametrize("debt", [1, 30])
async def test_a_debt_without_a_proper_answer_is_made_once(world, client, proxy, kind, debt):
    async with client.acquire(rpm=3) as lease:
        await lease.adjust(rpm=debt)
        fault = proxy.fault(kind, operation="UpdateItem", times=1)
    assert fault.used == 1
    assert (world.level(), world.spent()) == (7000 - 1000 * debt, 3000 + 1000 * debt)
    assert world.ttl_ms() >= world.full_at_ms()
    assert client.repo.lost_settlements == 0


@pytest.mark.fast("lose_answer", "garble", "error_before")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before"])
async def test_a_debt_on_a_forgotten_bucket_is_made_once(world, client, proxy, kind):
    async with client.acquire(rpm=3) as lease:
        world.clock.advance(hours=1)
        world.expire()
        await lease.adjust(rpm=12)
        fault = proxy.fault(kind, operation="UpdateItem", skip=1, times=1)
    assert fault.used == 1
    assert (world.level(), world.spent()) == (-2000, 12_000)
    assert world.ttl_ms() >= world.full_at_ms()


@pytest.mark.fast("lose_answer", "garble")
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_a_debt_in_one_limit_and_a_credit_in_another_are_made_once(
    world, client, proxy, kind
):
    await client.repo.set_system_defaults([TEN, type(TEN).per_minute("tpm", 100)])
    async with client.acquire(rpm=3, tpm=30) as lease:
        await lease.adjust(rpm=2, tpm=-20)
        fault = proxy.fault(kind, operation="UpdateItem", times=1)
    assert fault.used == 1
    assert (world.spent("rpm"), world.spent("tpm")) == (5000, 10_000)
    assert (world.level("rpm"), world.level("tpm")) == (5000, 90_000)


# --- what was settled at once


@pytest.mark.fast("lose_answer-1", "garble-1")
@pytest.mark.parametrize("cost", [1, 5])
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_what_is_settled_at_once_and_not_answered_is_written_once(
    world, client, proxy, kind, cost
):
    with failing():
        async with client.acquire(rpm=3) as lease:
            fault = proxy.fault(kind, operation="UpdateItem", times=1)
            with suppress(RateLimiterUnavailable):
                await lease.settle(rpm=cost, now=True)
            raise Failure
    assert fault.used == 1
    assert world.spent() == 1000 * cost


@pytest.mark.each_value_once
@pytest.mark.parametrize("cost", [1, 5])
@pytest.mark.parametrize("kind", ["close", "throttle", "deny"])
async def test_what_could_not_be_settled_at_once_is_written_at_the_end(
    world, client, proxy, kind, cost
):
    with failing():
        async with client.acquire(rpm=3) as lease:
            with proxy.fault(kind, operation="UpdateItem"), pytest.raises(InfrastructureError):
                await lease.settle(rpm=cost, now=True)
            assert lease.consumed == {"rpm": cost}
            assert world.spent() == 3000
            raise Failure
    if kind == "close":  # it may still arrive, so it is looked up before it is written again
        assert world.spent() == 3000
        assert client.repo.pending_settlements == 1
    else:
        assert world.spent() == 1000 * cost


@pytest.mark.parametrize("cost", [1, 5])
async def test_what_was_settled_at_once_and_never_arrives_is_written_when_that_is_known(
    world, proxy, cost
):
    client = await world.client(proxy, request_timeout=SHORT_S)
    await client.repo.set_system_defaults([TEN])
    async with client.acquire(rpm=3) as lease:
        with proxy.fault("close", operation="UpdateItem"), pytest.raises(RateLimiterUnavailable):
            await lease.settle(rpm=cost, now=True)
        assert client.repo.pending_settlements == 1
    await stored(client.repo)
    assert (world.level(), world.spent()) == (10_000 - 1000 * cost, 1000 * cost)
    assert client.repo.lost_settlements == 0


# --- it was certainly not made: it is repeated in the background


@pytest.mark.parametrize("kind", ["error_before", "throttle", "deny"])
async def test_a_credit_that_was_certainly_not_made_is_made_later(
    world, client, proxy, kind, caplog
):
    await client.take(rpm=1)
    with caplog.at_level(logging.WARNING, "zae_limiter"):
        with Stopwatch() as watch, failing():
            async with client.acquire(rpm=3):
                fault = proxy.fault(kind, operation="UpdateItem")
                raise Failure
        assert watch.within(TIMEOUT_S)
        assert client.repo.pending_settlements == 1
        fault.remove()
        await stored(client.repo)
    assert (world.level(), world.spent()) == (9000, 1000)
    assert client.repo.lost_settlements == 0
    assert caplog.records == []


@pytest.mark.parametrize("kind", ["error_before", "throttle", "deny"])
async def test_a_debt_that_was_certainly_not_made_is_made_later(world, client, proxy, kind):
    async with client.acquire(rpm=3) as lease:
        await lease.adjust(rpm=2)
        fault = proxy.fault(kind, operation="UpdateItem")
    assert client.repo.pending_settlements == 1
    fault.remove()
    await stored(client.repo)
    assert (world.level(), world.spent()) == (5000, 5000)
    assert client.repo.lost_settlements == 0


async def test_a_settlement_that_met_refused_connections_is_made_later(world, client, proxy):
    lease = client.acquire(rpm=3)
    await (await lease.__aenter__()).adjust(rpm=2)
    with proxy.refusing():
        await lease.__aexit__(None, None, None)
        assert client.repo.pending_settlements == 1
    await stored(client.repo)
    assert world.level() == 5000
    assert client.repo.lost_settlements == 0


# --- its outcome is unknown: it is looked for, and never made twice


@pytest.mark.fast("lose_answer", "garble")
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_a_credit_that_could_not_be_looked_for_is_found_later(world, client, proxy, kind):
    await client.take(rpm=1)
    with failing():
        async with client.acquire(rpm=3):
            proxy.fault(kind, operation="UpdateItem", times=1)
            blind = proxy.fault("close")
            raise Failure
    blind.remove()
    await stored(client.repo)
    assert client.repo.lost_settlements == 0
    assert (world.level(), world.spent()) == (9000, 1000)


async def test_a_late_credit_is_made_once(world, client, proxy):
    await client.take(rpm=1)
    with proxy.measure() as measured:
        with failing():
            async with client.acquire(rpm=3):
                message = late(proxy)
                raise Failure
        await arrived(message, measured)
        await stored(client.repo)
    assert client.repo.lost_settlements == 0
    assert (world.level(), world.spent()) == (9000, 1000)


async def test_a_late_debt_is_made_once(world, client, proxy):
    with proxy.measure() as measured:
        async with client.acquire(rpm=3) as lease:
            await lease.adjust(rpm=30)
            message = late(proxy)
        await arrived(message, measured)
        await stored(client.repo)
    assert client.repo.lost_settlements == 0
    assert (world.level(), world.spent()) == (-23_000, 33_000)


async def test_a_settlement_that_never_arrives_is_made_when_it_cannot_arrive_any_more(world, proxy):
    client = await world.client(proxy, request_timeout=SHORT_S)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with proxy.measure() as measured:
        with failing():
            async with client.acquire(rpm=3):
                proxy.fault("close", operation="UpdateItem", times=1)
                raise Failure
        began_s = time.monotonic()
        await stored(client.repo)
    writes = [each for each in measured.requests if each.operation == "UpdateItem"]
    assert len(writes) >= 3  # the charge, the lost one, the repetition
    assert writes[2].started - began_s > LATE_TIMEOUTS * SHORT_S - 2 * SHORT_S
    assert client.repo.lost_settlements == 0
    assert (world.level(), world.spent()) == (9000, 1000)


async def test_a_settlement_that_may_wait_in_the_network_is_looked_for_and_not_repeated(
    world, proxy
):
    client = await world.client(proxy, request_timeout=SHORT_S)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with failing():
        async with client.acquire(rpm=3):
            fault = proxy.fault("black_hole", operation="UpdateItem", times=1)
            raise Failure
    fault.remove()
    with proxy.measure() as measured:
        await asyncio.sleep((LATE_TIMEOUTS + 1) * SHORT_S)
    assert {each.operation for each in measured.requests} == {"GetItem"}
    assert client.repo.pending_settlements == 1
    assert world.level() == 6000


@pytest.mark.each_value_once
@pytest.mark.parametrize("kind", ["close", "black_hole"])
@pytest.mark.parametrize("change", [-2, 2])
async def test_a_settlement_of_unknown_outcome_is_given_up_when_the_client_is_closed(
    world, client, proxy, kind, change, caplog
):
    with caplog.at_level(logging.ERROR, "zae_limiter"):
        async with client.acquire(rpm=3) as lease:
            await lease.adjust(rpm=change)
            fault = proxy.fault(kind, operation="UpdateItem", times=1)
        fault.remove()
        assert client.repo.pending_settlements == 1
        assert "could not settle" not in caplog.text
        await client.repo.close()
    assert client.repo.lost_settlements == 1
    assert "could not settle" in caplog.text
    assert world.level() == 7000


async def test_a_settlement_is_given_up_when_too_many_writes_have_followed_to_tell(
    world, client, proxy, caplog
):
    other = await world.client()
    async with client.acquire(rpm=3) as lease:
        await lease.adjust(rpm=-2)
        fault = proxy.fault("close", operation="UpdateItem", times=1)
        blind = proxy.fault("close", operation="GetItem")
    assert fault.used == 1
    for _ in range(4):
        await other.take(rpm=1)
    blind.remove()
    with caplog.at_level(logging.ERROR, "zae_limiter"):
        await stored(client.repo)
    assert client.repo.lost_settlements == 1
    assert "could not settle" in caplog.text
    assert world.level() == 3000  # on the safe side by what was not given back


# --- release() and then a block that fails


@pytest.mark.fast("lose_answer", "error_after", "None")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before", "throttle", None])
async def test_a_release_that_is_known_to_be_made_is_not_made_again(world, client, proxy, kind):
    await client.take(rpm=4)
    with failing():
        async with client.acquire(rpm=5) as lease:
            if kind:
                proxy.fault(kind, operation="UpdateItem", times=1)
            await lease.release(rpm=3)
            assert world.level() == 4000
            raise Failure
    assert (world.level(), world.spent()) == (6000, 4000)


@pytest.mark.fast("lose_answer", "garble")
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_a_release_that_was_made_unnoticed_is_not_made_again(world, client, proxy, kind):
    await client.take(rpm=4)
    with failing():
        async with client.acquire(rpm=5) as lease:
            with (
                proxy.fault(kind, operation="UpdateItem", times=1),
                proxy.fault("close"),
                pytest.raises(RateLimiterUnavailable),
            ):
                await lease.release(rpm=3)
            raise Failure
    assert (world.level(), world.spent()) == (6000, 4000)


@pytest.mark.fast("cut_answer", "error_after")
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_a_release_that_was_made_and_may_not_be_looked_for_is_not_made_again(
    world, client, proxy, kind
):
    """The rights are taken away between the write and the look at what became of it."""
    await client.take(rpm=4)
    with failing():
        async with client.acquire(rpm=5) as lease:
            with (
                proxy.fault(kind, operation="UpdateItem", times=1),
                proxy.fault("deny"),
                pytest.raises((RateLimiterUnavailable, PermissionDenied)),
            ):
                await lease.release(rpm=3)
            raise Failure
    assert (world.level(), world.spent()) == (6000, 4000)


async def test_a_release_that_never_arrives_is_made_when_it_cannot_arrive_any_more(world, proxy):
    client = await world.client(proxy, request_timeout=SHORT_S)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=4)
    with failing():
        async with client.acquire(rpm=5) as lease:
            with (
                proxy.fault("close", operation="UpdateItem"),
                pytest.raises(RateLimiterUnavailable),
            ):
                await lease.release(rpm=3)
            assert lease.consumed == {"rpm": 2}
            raise Failure
    assert (world.level(), world.spent()) == (3000, 7000)  # it may still arrive
    await stored(client.repo)
    assert (world.level(), world.spent()) == (6000, 4000)
    assert client.repo.lost_settlements == 0


async def test_a_release_that_arrives_late_is_not_made_again(world, client, proxy):
    await client.take(rpm=4)
    with proxy.measure() as measured, failing():
        async with client.acquire(rpm=5) as lease:
            with (
                late(proxy) as message,
                pytest.raises(RateLimiterUnavailable),
            ):
                await lease.release(rpm=3)
            await arrived(message, measured)
            raise Failure
    assert (world.level(), world.spent()) == (6000, 4000)


@pytest.mark.parametrize("kind", ["deny", "throttle"])
async def test_a_release_that_was_certainly_not_made_is_given_back_in_the_end(
    world, client, proxy, kind
):
    await client.take(rpm=4)
    with failing():
        async with client.acquire(rpm=5) as lease:
            with (
                proxy.fault(kind, operation="UpdateItem"),
                pytest.raises((RateLimiterUnavailable, PermissionDenied)),
            ):
                await lease.release(rpm=3)
            assert lease.consumed == {"rpm": 5}
            raise Failure
    assert (world.level(), world.spent()) == (6000, 4000)


@pytest.mark.fast("lose_answer", "garble", "error_before")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before"])
async def test_more_tokens_within_a_lease_are_charged_once(world, client, proxy, kind):
    async with client.acquire(rpm=2) as lease:
        proxy.fault(kind, operation="UpdateItem", times=1)
        await lease.consume(rpm=3)
        assert lease.consumed == {"rpm": 5}
    assert (world.level(), world.spent(), world.admitted()) == (5000, 5000, 1)


async def test_a_consume_of_unknown_outcome_is_not_given_back(world, client, proxy):
    with failing():
        async with client.acquire(rpm=2) as lease:
            with (
                proxy.fault("lose_answer", operation="UpdateItem", times=1),
                proxy.fault("close"),
                pytest.raises(RateLimiterUnavailable),
            ):
                await lease.consume(rpm=3)
            raise Failure
    assert (world.level(), world.spent()) == (7000, 3000)

"""A fault on one side of a cascade: the other side is given back."""

import asyncio
import logging

import pytest
from zae_limiter_contract._async.world import stored
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.failures.messages import arrived, late
from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.world import (
    PARENT,
    USER,
    Failure,
    failing,
    together,
)
from zae_limiter import Limit, PermissionDenied, RateLimiterUnavailable, RateLimitExceeded

CHILD, ABOVE = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 20)
CARRIED_OUT = ("lose_answer", "cut_answer", "garble", "error_after")
NOT_MADE = ("close", "error_before", "throttle", "black_hole", "deny")

SIDES = pytest.mark.parametrize("side", [USER, PARENT], ids=["child", "parent"])


@pytest.fixture
async def client(world, proxy):
    """Knows both buckets, so that both are charged at once."""
    await world.family(child=[CHILD], parent=[ABOVE])
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.take(rpm=1)
    return client


def of(side):
    """Requests that concern the bucket of one side."""
    marker = f"BUCKET#{side}#".encode()
    return lambda exchange: marker in exchange.raw_body


def levels(world):
    return world.level(entity_id=USER), world.level(entity_id=PARENT)


def counted(world):
    return world.admitted(USER), world.admitted(PARENT)


@pytest.mark.fast("error_before-parent", "black_hole-parent")
@SIDES
@pytest.mark.parametrize("kind", NOT_MADE)
async def test_what_one_side_did_not_get_the_other_gives_back(world, client, proxy, side, kind):
    expected = PermissionDenied if kind == "deny" else RateLimiterUnavailable
    with (
        Stopwatch() as watch,
        proxy.fault(kind, operation="UpdateItem", when=of(side)),
        pytest.raises(expected),
    ):
        await client.take(rpm=2)
    assert watch.within(TIMEOUT_S)
    assert levels(world) == (9000, 19_000)
    assert counted(world) == (1, 1)
    await client.take(rpm=9)
    assert levels(world) == (0, 10_000)


@pytest.mark.fast("lose_answer-child", "garble-child", "error_before-child")
@SIDES
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before"])
async def test_a_side_without_a_proper_answer_is_charged_once(world, client, proxy, side, kind):
    with proxy.fault(kind, operation="UpdateItem", when=of(side), times=1) as fault:
        await client.take(rpm=2)
    assert fault.used == 1
    assert levels(world) == (7000, 17_000)
    assert counted(world) == (2, 2)


@pytest.mark.fast("cut_answer-parent", "error_after-parent")
@SIDES
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_a_side_that_cannot_be_looked_for_keeps_its_charge(world, client, proxy, side, kind):
    """It was made and is never refunded; the other side is."""
    blind = "UpdateItem" if kind == "error_after" else "GetItem"
    with (
        proxy.fault(kind, operation="UpdateItem", when=of(side), times=1),
        proxy.fault("close", operation=blind, when=of(side)),
        pytest.raises(RateLimiterUnavailable),
    ):
        await client.take(rpm=2)
    child, parent = levels(world)
    assert (child, parent) == ((7000, 19_000) if side == USER else (9000, 17_000))


@SIDES
async def test_a_side_that_arrives_late_keeps_its_charge(world, client, proxy, side):
    with proxy.measure() as measured:
        with (
            late(proxy, when=of(side)) as message,
            pytest.raises(RateLimiterUnavailable),
        ):
            await client.take(rpm=2)
        await arrived(message, measured)
    assert levels(world) == ((7000, 19_000) if side == USER else (9000, 17_000))


async def test_a_parent_that_refuses_gives_the_child_its_tokens_back(world, client):
    """Both were asked at once: the parent was emptied by others meanwhile."""
    other = await world.client()
    await other.take(PARENT, rpm=19)
    refusal = await client.refusal(rpm=2)
    assert [each.entity_id for each in refusal.violations] == [PARENT]
    assert levels(world) == (9000, 0)
    assert counted(world) == (1, 2)


@pytest.mark.fast("lose_answer", "garble", "throttle")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "throttle"])
async def test_a_refund_to_the_child_without_a_proper_answer_is_made_once(
    world, client, proxy, kind
):
    other = await world.client()
    await other.take(PARENT, rpm=19)
    with proxy.fault(kind, operation="UpdateItem", when=of(USER), skip=1, times=1) as fault:
        await client.refusal(rpm=2)
    assert fault.used == 1
    assert levels(world) == (9000, 0)
    assert counted(world) == (1, 2)


@pytest.mark.parametrize("kind", ["close", "black_hole", "deny"])
async def test_a_refund_to_the_child_that_is_not_made_is_logged_and_counted(
    world, client, proxy, kind, caplog
):
    """The refusal stands; the child has lost what it was charged: the safe side."""
    other = await world.client()
    await other.take(PARENT, rpm=19)
    with (
        caplog.at_level(logging.ERROR, "zae_limiter"),
        proxy.fault(kind, operation="UpdateItem", when=of(USER), skip=1),
    ):
        await client.refusal(rpm=2)
    assert levels(world) == (7000, 0)
    assert "could not refund" in caplog.text
    assert client.repo.lost_settlements == 1


async def test_a_store_that_falls_silent_between_the_sides_is_decided_within_the_timeout(
    world, client, proxy
):
    """The child is charged, then nobody answers any more, and it cannot be given back."""
    with (
        Stopwatch() as watch,
        proxy.fault("black_hole", when=of(PARENT)),
        proxy.fault("black_hole", when=of(USER), skip=1),
        pytest.raises(RateLimiterUnavailable),
    ):
        await client.take(rpm=2)
    assert levels(world) == (7000, 19_000)
    assert watch.within(TIMEOUT_S)


@pytest.mark.fast("lose_answer-child", "garble-child", "error_before-child")
@SIDES
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before"])
async def test_a_debt_to_both_sides_is_made_once(world, client, proxy, side, kind):
    async with client.acquire(rpm=2) as lease:
        await lease.adjust(rpm=30)
        fault = proxy.fault(kind, operation="UpdateItem", when=of(side), times=1)
    assert fault.used == 1
    assert levels(world) == (-23_000, -13_000)
    assert client.repo.lost_settlements == 0


@SIDES
async def test_a_refund_that_one_side_does_not_get_is_made_there_later(world, client, proxy, side):
    with failing():
        async with client.acquire(rpm=2):
            fault = proxy.fault("throttle", operation="UpdateItem", when=of(side))
            raise Failure
    assert levels(world) == ((7000, 19_000) if side == USER else (9000, 17_000))
    fault.remove()
    with proxy.measure() as measured:
        await stored(client.repo)
    writes = [each for each in measured.requests if each.operation == "UpdateItem"]
    assert all(of(side)(each) for each in writes)  # only the missing part is repeated
    assert levels(world) == (9000, 19_000)
    assert client.repo.lost_settlements == 0


@SIDES
async def test_a_release_that_one_side_does_not_get_is_not_made_twice_on_the_other(
    world, client, proxy, side
):
    with failing():
        async with client.acquire(rpm=4) as lease:
            with (
                proxy.fault("throttle", operation="UpdateItem", when=of(side)),
                pytest.raises(RateLimiterUnavailable),
            ):
                await lease.release(rpm=3)
            raise Failure
    child, parent = levels(world)
    assert child == (6000 if side == USER else 9000)
    assert parent == (19_000 if side == USER else 16_000)


@pytest.mark.fast("throttle", "lose_answer")
@pytest.mark.parametrize("kind", ["throttle", "error_before", "lose_answer", None])
async def test_cancelled_callers_of_a_cascade_get_their_tokens_back(world, client, proxy, kind):
    proxy.link.request_ms = 8
    fault = kind and proxy.fault(kind, operation="UpdateItem", times=1)
    tasks = [asyncio.ensure_future(client.take(rpm=1)) for _ in range(4)]
    for number, task in enumerate(tasks):
        await asyncio.sleep(0.005)
        if number % 2:
            task.cancel()
    outcomes = await together(*tasks)
    proxy.link.request_ms = 0
    if fault:
        fault.remove()
    admitted = outcomes.count(None)
    lost = client.repo.lost_settlements
    child, parent = levels(world)
    assert child <= 9000 - 1000 * admitted
    assert parent <= 19_000 - 1000 * admitted
    if not lost and not any(isinstance(each, RateLimiterUnavailable) for each in outcomes):
        assert (child, parent) == (9000 - 1000 * admitted, 19_000 - 1000 * admitted)


@pytest.mark.fast("cut_answer", "error_before")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before", "throttle"])
async def test_a_crowd_of_children_never_gets_more_than_the_parent_has(world, proxy, kind):
    setup = await world.family(child=[CHILD], parent=[Limit.per_hour("rpm", 5)])
    clients = [await world.client(proxy) for _ in range(2)]
    await setup.take(rpm=1)
    with proxy.fault(kind, operation="UpdateItem", skip=4, times=6):
        outcomes = await together(*(clients[n % 2].take(rpm=1) for n in range(12)))
    admitted = outcomes.count(None)
    unknown = sum(not isinstance(each, RateLimitExceeded | None) for each in outcomes)
    assert admitted <= 4
    assert world.level(entity_id=PARENT) <= 4000 - 1000 * admitted
    assert world.level(entity_id=USER) <= 9000 - 1000 * admitted
    if not unknown and kind == "throttle":
        # Callers the child refuses hold a token of the parent for a moment: it may refuse others.
        assert admitted >= 1
        assert levels(world) == (9000 - 1000 * admitted, 4000 - 1000 * admitted)

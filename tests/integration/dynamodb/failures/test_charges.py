"""A charge without a proper answer: admitted and charged once, or on the safe side."""

import asyncio

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.failures.messages import arrived, late
from tests.integration.dynamodb.failures.states import STATES, TEN
from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.world import API, USER, seen, together
from zae_limiter import Limit, PermissionDenied, RateLimiterUnavailable
from zae_limiter.settings import Settings

CARRIED_OUT = ("lose_answer", "cut_answer", "garble", "error_after")


@pytest.fixture
def stack(stack_without_usage):
    """Buckets expire as soon as they may."""
    return stack_without_usage


async def recovered(world, client, level):
    """What is left is right, and can be had to the last token."""
    assert world.level() == 1000 * level
    await client.take(rpm=level)
    await client.refusal(rpm=1)
    assert world.level() == 0


# --- it can be known what became of it


@pytest.mark.fast("cut_answer-partly_used", "error_after-absent")
@STATES
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before"])
async def test_a_charge_without_a_proper_answer_is_made_and_admitted_once(
    world, proxy, state, kind
):
    client = await world.client(proxy)
    before = await state(world, client)
    spent = world.spent() if world.item() else 0
    with proxy.fault(kind, operation="UpdateItem", times=1) as fault:
        await client.take(rpm=2)
    assert fault.used == 1
    assert world.spent() == spent + 2000
    await recovered(world, client, before - 2)


@pytest.mark.fast("lose_answer-absent", "garble-overfull", "error_before-partly_used")
@STATES
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before"])
async def test_a_refusal_after_a_fault_is_exact(world, proxy, state, kind):
    """Nothing fits: the write is refused, and told so only when it is asked again."""
    client = await world.client(proxy)
    before = await state(world, client)
    await client.take(rpm=before - 1)
    item = world.item()
    with proxy.fault(kind, operation="UpdateItem", times=1):
        outcome = (await together(client.take(rpm=3)))[0]
    assert type(outcome).__name__ in {"RateLimitExceeded", "NoAnswer"}
    assert world.item() == item
    await client.take(rpm=1)


async def test_a_fault_that_is_answered_again_and_again_is_an_outage(world, proxy):
    client = await world.client(proxy)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with (
        proxy.fault("error_before", operation="UpdateItem") as fault,
        pytest.raises(RateLimiterUnavailable),
    ):
        await client.take(rpm=1)
    assert fault.used == 2  # repeated once
    await recovered(world, client, 9)


@STATES
async def test_throttling_for_a_while_is_waited_for(world, proxy, state):
    client = await world.client(proxy)
    before = await state(world, client)
    with proxy.fault("throttle", operation="UpdateItem", times=4) as fault:
        await client.take(rpm=2)
    assert fault.used == 4
    await recovered(world, client, before - 2)


@STATES
async def test_throttling_for_ever_is_an_outage_that_charges_nothing(world, proxy, state):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    before = await state(world, client)
    throttling = proxy.fault("throttle", operation="UpdateItem")
    with Stopwatch() as watch, throttling, pytest.raises(RateLimiterUnavailable):
        await client.take(rpm=2)
    assert watch.within(TIMEOUT_S)
    await client.take(rpm=before)
    assert world.level() == 0


@STATES
async def test_refused_connections_charge_nothing(world, proxy, state):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    before = await state(world, client)
    with proxy.refusing(), Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
        await client.take(rpm=2)
    assert watch.within(TIMEOUT_S)
    await client.take(rpm=before)
    assert world.level() == 0


async def test_connections_that_were_closed_while_idle_are_not_noticed(world, proxy):
    client = await world.client(proxy)
    await client.repo.set_system_defaults([TEN])
    for _ in range(5):
        proxy.drop_connections()
        await asyncio.sleep(0.01)
        await client.take(rpm=1)
    await recovered(world, client, 5)


@pytest.mark.each_value_once
@pytest.mark.parametrize("policy", ["block", "allow"])
@pytest.mark.parametrize("kind", ["deny", "expired"])
async def test_a_denial_is_no_outage(world, proxy, policy, kind):
    client = await world.client(proxy, on_unavailable=policy)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    denial = proxy.fault(kind, operation="UpdateItem")
    with Stopwatch() as watch, denial, pytest.raises(PermissionDenied):
        await client.take(rpm=1)
    assert watch.within(1)
    assert client.repo.uncharged_admissions == 0
    await recovered(world, client, 9)


async def test_a_denial_of_the_first_call_of_a_client_is_no_outage(world, proxy):
    """Also where the configuration cannot be read."""
    client = await world.client(proxy, on_unavailable="allow")
    await client.repo.set_system_defaults([TEN])
    with proxy.fault("deny"), pytest.raises(PermissionDenied):
        await client.take(rpm=1)
    assert world.item() is None


# --- it cannot be known: unavailable, and never refunded


@STATES
async def test_a_connection_that_breaks_before_the_store_is_reached_charges_nothing(
    world, proxy, state
):
    client = await world.client(proxy)
    before = await state(world, client)
    with proxy.fault("close", operation="UpdateItem"), pytest.raises(RateLimiterUnavailable):
        await client.take(rpm=2)
    await client.take(rpm=before)
    assert world.level() == 0


@pytest.mark.fast("cut_answer-partly_used", "error_after-absent")
@STATES
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_a_charge_that_cannot_be_looked_for_is_not_refunded(world, proxy, state, kind):
    """It was made, and the caller is told of an outage: one charge on the safe side."""
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    before = await state(world, client)
    with (
        proxy.fault(kind, operation="UpdateItem", times=1),
        proxy.fault("close"),
        pytest.raises(RateLimiterUnavailable),
    ):
        await client.take(rpm=2)
    await recovered(world, client, before - 2)


@pytest.mark.fast("cut_answer-4-False", "error_after-4-False")
@pytest.mark.parametrize(("others", "is_admitted"), [(3, True), (4, False)])
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_the_item_shows_a_charge_after_three_other_writes(
    world, proxy, kind, others, is_admitted
):
    """After more of them its id is gone, so nobody can tell: charged, not admitted."""
    user, other = await world.client(proxy), await world.client()
    await user.repo.set_system_defaults([TEN])
    await together(user.take(rpm=1), other.take(rpm=1))
    looks = "UpdateItem" if kind == "error_after" else "GetItem"
    with (
        proxy.measure() as measured,
        proxy.fault(kind, operation="UpdateItem", times=1),
        proxy.fault("hold", operation=looks) as held,
    ):
        task = asyncio.ensure_future(user.take(rpm=2))
        await seen(measured, looks, 2 if looks == "UpdateItem" else 1)
        for _ in range(others):
            await other.take(rpm=1)
        held.remove()
        await asyncio.wait([task])
    assert isinstance(task.exception(), RateLimiterUnavailable) is not is_admitted
    await recovered(world, user, 10 - 2 - 2 - others)


async def test_an_outcome_is_unknown_if_the_limits_changed_before_it_was_found(world, proxy):
    """The item shows that the charge was made, but not what was left of the limits before."""
    user, other = await world.client(proxy), await world.client(config_cache_ttl=0)
    await user.repo.set_system_defaults([TEN])
    await user.take(rpm=1)
    with (
        proxy.measure() as measured,
        proxy.fault("lose_answer", operation="UpdateItem", times=1),
        proxy.fault("hold", operation="GetItem") as held,
    ):
        task = asyncio.ensure_future(user.take(rpm=2))
        await seen(measured, "GetItem")
        await other.repo.set_system_defaults([Limit.per_minute("rpm", 20)])
        await other.take(rpm=1)
        held.remove()
        await asyncio.wait([task])
    assert isinstance(task.exception(), RateLimiterUnavailable)
    assert world.spent() == 4000


async def test_a_charge_that_was_not_made_before_others_wrote_is_not_made_again(world, proxy):
    """A fault, and somebody else writes before the repetition: it cannot be told apart."""
    user, other = await world.client(proxy), await world.client()
    await user.repo.set_system_defaults([TEN])
    await together(user.take(rpm=1), other.take(rpm=1))
    with (
        proxy.measure() as measured,
        proxy.fault("error_before", operation="UpdateItem", times=1),
        proxy.fault("hold", operation="UpdateItem") as held,
    ):
        task = asyncio.ensure_future(user.take(rpm=2))
        await seen(measured, "UpdateItem", 2)
        await other.take(rpm=3)
        held.remove()
        await asyncio.wait([task])
    assert isinstance(task.exception(), RateLimiterUnavailable)
    await recovered(world, user, 10 - 2 - 3)


@pytest.mark.each_value_once
@STATES
@pytest.mark.parametrize("hold", [False, True], ids=["reset", "timeout"])
async def test_a_late_original_is_charged_once_and_not_admitted(world, proxy, state, hold):
    """The caller has given up when the store gets it: never refunded, never admitted twice."""
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    before = await state(world, client)
    with proxy.measure() as measured:
        with (
            late(proxy, hold=hold) as message,
            pytest.raises(RateLimiterUnavailable),
        ):
            await client.take(rpm=2)
        await arrived(message, measured)
    await recovered(world, client, before - 2)


async def test_a_late_original_that_no_longer_fits_is_refused(world, proxy):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=4)
    with proxy.measure() as measured:
        with late(proxy) as message, pytest.raises(RateLimiterUnavailable):
            await client.take(rpm=2)
        await client.take(rpm=5)
        await arrived(message, measured)
    await recovered(world, client, 1)


async def test_a_late_original_that_meets_other_limits_is_refused(world, proxy):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=4)
    with proxy.measure() as measured:
        with late(proxy) as message, pytest.raises(RateLimiterUnavailable):
            await client.take(rpm=2)
        await client.repo.set_system_defaults([type(TEN).per_day("rpm", 10)])
        await client.take(rpm=1)
        await arrived(message, measured)
    await recovered(world, client, 5)


async def test_a_late_first_write_meets_the_bucket_that_was_made_without_it(world, proxy):
    """It finds the bucket partly used and is refused: nothing is made full again."""
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    await client.limiter.available(USER, API)
    with proxy.measure() as measured:
        with late(proxy) as message, pytest.raises(RateLimiterUnavailable):
            await client.take(rpm=2)
        await client.take(rpm=5)
        await arrived(message, measured)
    await recovered(world, client, 5)


async def test_a_late_original_after_the_bucket_was_forgotten(world, proxy):
    """A charge of the past makes no bucket, and takes from a full one at most what it is."""
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=4)
    with proxy.measure() as measured:
        with late(proxy) as message, pytest.raises(RateLimiterUnavailable):
            await client.take(rpm=2)
        world.clock.set(world.ttl_ms())
        world.expire()
        await arrived(message, measured)
    assert world.item() is None
    await client.take(rpm=10)


# --- how long it takes


async def test_silence_is_decided_within_two_seconds_by_default(world, proxy):
    client = await world.client(proxy, request_timeout=Settings().request_timeout)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with Stopwatch() as watch, proxy.fault("black_hole"):
        outcomes = await together(client.take(rpm=1), *(client.take(rpm=1) for _ in range(9)))
    assert all(isinstance(each, RateLimiterUnavailable) for each in outcomes)
    assert watch.within(2)
    await client.repo.ping()  # an answer, which closes the breaker
    await recovered(world, client, 9)


@pytest.mark.each_value_once
@STATES
@pytest.mark.parametrize("operation", ["UpdateItem", None], ids=["writes", "everything"])
async def test_silence_is_decided_within_the_timeout(world, proxy, state, operation):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    before = await state(world, client)
    silence = proxy.fault("black_hole", operation=operation)
    with Stopwatch() as watch, silence, pytest.raises(RateLimiterUnavailable):
        await client.take(rpm=1)
    assert watch.within(TIMEOUT_S)
    await client.take(rpm=before)
    assert world.level() == 0


@pytest.mark.fast("black_hole", "error_before")
@pytest.mark.parametrize("kind", ["black_hole", "close", "error_before", "throttle"])
async def test_an_outage_that_admits_charges_nothing(world, proxy, kind):
    client = await world.client(proxy, request_timeout=TIMEOUT_S, on_unavailable="allow")
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with proxy.fault(kind, operation="UpdateItem"):
        async with client.acquire(rpm=3) as lease:
            assert lease.consumed == {}
    assert client.repo.uncharged_admissions == 1
    await recovered(world, client, 9)


async def test_an_outage_that_admits_leaves_a_charge_that_was_made(world, proxy):
    """Nobody knows of it, so it stays: on the safe side."""
    client = await world.client(proxy, request_timeout=TIMEOUT_S, on_unavailable="allow")
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with proxy.fault("lose_answer", operation="UpdateItem", times=1), proxy.fault("close"):
        async with client.acquire(rpm=3) as lease:
            await lease.adjust(rpm=5)
            assert lease.consumed == {}
    await recovered(world, client, 6)


# --- many at once, and callers that go away


@pytest.mark.fast("lose_answer", "error_after")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before", "throttle"])
async def test_a_crowd_through_faults_gets_no_more_than_is_there(world, proxy, kind):
    clients = [await world.client(proxy) for _ in range(2)]
    await clients[0].repo.set_system_defaults([TEN])
    with proxy.fault(kind, operation="UpdateItem", times=7, skip=3):
        outcomes = await together(*(clients[n % 2].take(rpm=1) for n in range(25)))
    unknown = sum(isinstance(each, RateLimiterUnavailable) for each in outcomes)
    admitted = outcomes.count(None)
    assert admitted <= world.admitted() <= min(10, admitted + unknown)
    assert world.level() == 10_000 - 1000 * world.admitted()
    assert world.spent() == 1000 * world.admitted()


@pytest.mark.fast("lose_answer", "error_after")
@pytest.mark.parametrize("kind", [None, *CARRIED_OUT, "error_before", "throttle"])
async def test_cancelled_callers_get_their_tokens_back(world, proxy, kind):
    """Cancelled while their charge is under way; what it became is known in the end."""
    client = await world.client(proxy)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    proxy.link.request_ms = 10
    fault = kind and proxy.fault(kind, operation="UpdateItem", times=1)
    tasks = [asyncio.ensure_future(client.take(rpm=2)) for _ in range(3)]
    for task in tasks:
        await asyncio.sleep(0.007)
        task.cancel()
    outcomes = await together(*tasks)
    assert {type(each) for each in outcomes} <= {asyncio.CancelledError, type(None)}
    if fault:
        assert fault.used == 1
        fault.remove()
    proxy.link.request_ms = 0
    kept = outcomes.count(None)
    assert 1000 <= world.level() <= 9000 - 2000 * kept
    if kind in (None, "throttle", "error_before"):
        assert world.level() == 9000 - 2000 * kept
    else:
        lost = client.repo.lost_settlements
        assert world.level() >= 9000 - 2000 * kept - 2000 * (lost + 1)


async def test_callers_cancelled_while_the_store_is_silent_are_free_within_the_timeout(
    world, proxy
):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with Stopwatch() as watch, proxy.fault("black_hole"):
        tasks = [asyncio.ensure_future(client.take(rpm=1)) for _ in range(5)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        outcomes = await together(*tasks)
    assert {type(each) for each in outcomes} == {asyncio.CancelledError}
    assert watch.within(TIMEOUT_S)
    await recovered(world, client, 9)

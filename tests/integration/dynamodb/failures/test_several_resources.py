"""One acquire over several resources: buckets are charged one after the other, all or none."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.seen import Seen
from tests.support.dynamodb.tables import store_url
from tests.support.dynamodb.world import USER, seen, together
from zae_limiter import (
    Limit,
    PermissionDenied,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
)

# In the order of keys: the budget is charged first, the model second.
ALL, MODEL = "all-models", "gpt-4"
RPM, USD = Limit.per_minute("rpm", 10), Limit.budget("usd", "1.00", per="day", hold_ttl=60)
EVENING = datetime(2026, 3, 10, 23, 59, 54, tzinfo=UTC)
CARRIED_OUT = ("lose_answer", "cut_answer", "garble", "error_after")
NOT_MADE = ("close", "error_before", "throttle", "black_hole", "deny")

SIDES = pytest.mark.parametrize("resource", [ALL, MODEL], ids=["first", "second"])


@pytest.fixture
async def admin(world):
    """A client that does not go through the proxy."""
    world.clock.set(int(EVENING.timestamp() * 1000))
    admin = await world.client()
    await admin.repo.set_resource_defaults(MODEL, [RPM])
    await admin.repo.set_resource_defaults(ALL, [RPM, USD])
    return admin


@pytest.fixture
async def client(world, admin, proxy):
    """Knows both buckets; each has 9 requests left."""
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await take(client)
    return client


def several(client, rpm=1, usd="0.00", **options):
    also = {ALL: {"rpm": rpm, "usd": usd}}
    return client.limiter.acquire(USER, MODEL, {"rpm": rpm}, also=also, **options)


async def take(client, rpm=1, usd="0.00", **options):
    async with several(client, rpm, usd, **options):
        pass


def of(resource):
    """Requests that concern the bucket of one resource."""
    marker = f"BUCKET#{USER}#{resource}#".encode()
    return lambda exchange: marker in exchange.raw_body


async def levels(admin):
    """The requests that both resources have left."""
    states = [await admin.repo.get_bucket(USER, each, "rpm") for each in (ALL, MODEL)]
    return tuple(state.tokens for state in states)


async def budget(admin):
    """What is used of the budget, and what is held."""
    (status,) = [
        each
        for each in (await admin.limiter.check_availability(USER, ALL)).statuses
        if each.limit_name == "usd"
    ]
    return status.used, status.held


async def test_buckets_are_written_one_after_the_other_in_the_order_of_keys(admin, client, proxy):
    with proxy.measure() as measured:
        await take(client)
        async with client.limiter.acquire(USER, ALL, {"rpm": 1}, also={MODEL: {"rpm": 1}}):
            pass
    writes = measured.of("UpdateItem")
    assert [of(ALL)(each) for each in writes] == [True, False] * 2
    assert Seen(writes).overlap == 1
    assert await levels(admin) == (7, 7)


async def test_a_crowd_shares_the_writes_of_each_bucket(admin, client, proxy):
    proxy.link.request_ms = proxy.link.answer_ms = 20
    with proxy.measure() as measured:
        outcomes = await together(*[take(client) for _ in range(9)])
    assert outcomes == [None] * 9
    assert len(measured.of("UpdateItem")) <= 10  # not 18
    assert await levels(admin) == (0, 0)


async def test_a_bucket_that_is_known_to_be_short_costs_no_write(world, admin, proxy):
    client = await world.client(proxy, rejection_cache_ttl=60)
    await take(client, rpm=1)
    async with client.limiter.acquire(USER, MODEL, {"rpm": 9}):
        pass
    with proxy.measure() as measured, pytest.raises(RateLimitExceeded):
        await take(client)
    assert measured.calls == 0
    assert await levels(admin) == (9, 0)


@pytest.mark.fast("error_before-second", "black_hole-second")
@SIDES
@pytest.mark.parametrize("kind", NOT_MADE)
async def test_a_charge_that_was_not_made_gives_the_others_back(
    admin, client, proxy, resource, kind
):
    expected = PermissionDenied if kind == "deny" else RateLimiterUnavailable
    with (
        Stopwatch() as watch,
        proxy.fault(kind, operation="UpdateItem", when=of(resource)),
        pytest.raises(expected),
    ):
        await take(client, 2, "0.50")
    assert watch.within(TIMEOUT_S)
    assert await levels(admin) == (9, 9)
    assert await budget(admin) == (Decimal(0), Decimal(0))


@pytest.mark.fast("lose_answer-first", "garble-first", "error_before-first")
@SIDES
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before"])
async def test_a_charge_without_a_proper_answer_is_made_once(admin, client, proxy, resource, kind):
    with proxy.fault(kind, operation="UpdateItem", when=of(resource), times=1) as fault:
        await take(client, 2, "0.50")
    assert fault.used == 1
    assert await levels(admin) == (7, 7)
    assert await budget(admin) == (Decimal("0.50"), Decimal(0))


@pytest.mark.fast("cut_answer-second-allow", "error_after-second-allow")
@pytest.mark.parametrize("policy", ["block", "allow"])
@SIDES
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_a_charge_of_unknown_outcome_heals_and_the_other_is_given_back(
    world, admin, client, proxy, resource, kind, policy
):
    """It may have been made, so it is never refunded: rates refill, and holds return in time."""
    blind = "UpdateItem" if kind == "error_after" else "GetItem"
    with (
        proxy.fault(kind, operation="UpdateItem", when=of(resource), times=1),
        proxy.fault("close", operation=blind, when=of(resource)),
    ):
        if policy == "block":
            with pytest.raises(RateLimiterUnavailable):
                await take(client, 2, "0.50")
        else:
            async with several(client, 2, "0.50", on_unavailable="allow") as lease:
                assert (lease.consumed, lease.resource(ALL).consumed) == ({}, {})
    assert await levels(admin) == ((7, 9) if resource == ALL else (9, 7))
    held = Decimal("0.50") if resource == ALL else Decimal(0)
    assert await budget(admin) == (Decimal(0), held)
    world.clock.advance(seconds=90)
    assert await levels(admin) == (10, 10)
    await take(admin, 10, "1.00")


@pytest.mark.fast("lose_answer", "garble", "throttle")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "throttle"])
async def test_a_refund_without_a_proper_answer_is_made_once(admin, client, proxy, kind):
    async with admin.limiter.acquire(USER, MODEL, {"rpm": 9}):
        pass
    with (
        proxy.fault(kind, operation="UpdateItem", when=of(ALL), skip=1, times=1) as fault,
        pytest.raises(RateLimitExceeded),
    ):
        await take(client, 2, "0.50")
    assert fault.used == 1
    assert await levels(admin) == (9, 0)
    assert await budget(admin) == (Decimal(0), Decimal(0))


@pytest.mark.parametrize("has_room", [True, False], ids=["granted", "refused"])
async def test_a_caller_cancelled_between_two_charges_gets_everything_back(
    admin, client, proxy, has_room
):
    if not has_room:
        async with admin.limiter.acquire(USER, MODEL, {"rpm": 9}):
            pass
    before = await levels(admin)
    proxy.link.request_ms = 30
    with proxy.measure() as measured:
        task = asyncio.ensure_future(take(client, 2, "0.50"))
        await seen(measured, "UpdateItem", 2)  # the first was made, the second is on its way
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert of(MODEL)(measured.of("UpdateItem")[1])
    assert await levels(admin) == before
    assert await budget(admin) == (Decimal(0), Decimal(0))


async def test_a_refund_after_the_edge_of_a_window_stays_in_its_window(world, admin, client, proxy):
    """While the second charge is on its way, the next window of the first one begins."""
    async with admin.limiter.acquire(USER, MODEL, {"rpm": 9}):
        pass
    patient = await world.client(proxy)
    await patient.limiter.available(USER, MODEL)
    proxy.link.request_ms = 250
    with proxy.measure() as measured:
        task = asyncio.ensure_future(take(patient, 3, "0.90"))
        await seen(measured, "UpdateItem", 2)
        world.clock.advance(seconds=7)
        async with admin.limiter.acquire(USER, ALL, {"usd": "0.60"}):
            pass
        with pytest.raises(RateLimitExceeded):
            await task
    assert await budget(admin) == (Decimal("0.60"), Decimal(0))
    status = (await admin.limiter.check_availability(USER, ALL)).statuses[1]
    assert status.available == Decimal("0.40")


async def test_settlements_of_all_resources_are_made_once(admin, client, proxy):
    async with several(client, 2, "0.50") as lease:
        await lease.adjust(rpm=1)
        await lease.resource(ALL).settle(usd="0.25", rpm=1)
        fault = proxy.fault("lose_answer", operation="UpdateItem", when=of(ALL), times=1)
    assert fault.used == 1
    assert await levels(admin) == (8, 6)
    assert await budget(admin) == (Decimal("0.25"), Decimal(0))
    assert client.repo.lost_settlements == 0


async def test_a_further_resource_is_charged_if_the_store_could_not_be_opened_before(
    world, admin, proxy
):
    url, options = store_url(world.table, proxy.url), {"namespace": world.namespace}
    options |= {"clock": world.clock, "request_timeout": 10, "on_unavailable": "allow"}
    async with RateLimiter(url=url, auto_update=False, **options) as limiter:
        block = limiter.acquire(USER, MODEL, {"rpm": 1}, also={ALL: {"rpm": 1}})
        with proxy.refusing():
            lease = await block.__aenter__()
        further = lease.resource(ALL)
        await further.consume(rpm=3)
        assert lease.headers()
        await further.settle(rpm=2)
        await block.__aexit__(None, None, None)
    assert (await admin.limiter.available(USER, ALL))["rpm"] == 8

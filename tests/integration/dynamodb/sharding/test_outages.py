"""What goes wrong between the steps of a charge, a credit or a debt on several shards.

Nothing is charged twice, and nobody waits longer than the request timeout.
"""

import asyncio

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.failures.messages import arrived
from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.integration.dynamodb.sharding.world import EVEN, HUNDRED
from tests.support.dynamodb.world import Failure, seen, together
from zae_limiter import PermissionDenied, RateLimiterUnavailable

CARRIED_OUT = ("lose_answer", "cut_answer", "garble", "error_after")
NOT_CARRIED_OUT = ("close", "error_before", "throttle")
SILENT = ("black_hole", *CARRIED_OUT, *NOT_CARRIED_OUT)
TRANSACTION, READ, WRITE = "TransactWriteItems", "BatchGetItem", "UpdateItem"


@pytest.fixture
async def client(world, proxy):
    """It has seen all of the four shards, which are full but for four tokens."""
    await world.limits(HUNDRED)
    await world.use(rpm=0)
    await world.split(*EVEN[4])
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.refusal(rpm=101)
    for number in world.items():
        world.set_level(number, 24_000)
    world.clock.advance(ms=1)
    await client.refusal(rpm=101)
    return client


async def timed(work):
    """What it returns or raises, in time."""
    with Stopwatch() as watch:
        [outcome] = await together(work)
    assert watch.within(TIMEOUT_S)
    return outcome


def left(world):
    """Tokens; the odd millitokens have accrued."""
    assert world.level() % 1000 < 10
    return world.level() // 1000


async def recovered(world, client, tokens):
    """All that should be there can be had."""
    assert left(world) == tokens
    # A call that the client does not hurry: a busy machine may be too slow for its next one.
    patient = await world.client()
    await patient.take(rpm=tokens)
    await client.refusal(rpm=1)


async def still_there(world, client, *, least):
    """All that is there can be had, and it is no more than there was.

    What the outage has kept from the store may be given back at any time after it.
    """
    tokens = world.level() // 1000
    assert least <= tokens <= 96
    await client.take(rpm=tokens)
    await client.refusal(rpm=97 - tokens)


# --- a charge from several shards


@pytest.mark.fast("lose_answer", "garble", "throttle")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "throttle"])
async def test_a_gathered_charge_without_a_proper_answer_is_made_once(world, proxy, client, kind):
    """Its mark is looked up."""
    with proxy.fault(kind, operation=TRANSACTION, times=1) as fault:
        assert await timed(client.take(rpm=60)) is None
    assert fault.used == 1
    await recovered(world, client, 36)


@pytest.mark.parametrize("kind", ["close", "error_before"])
async def test_a_gathered_charge_that_was_not_made_may_yet_arrive(world, proxy, client, kind):
    """So it is not made again."""
    with proxy.fault(kind, operation=TRANSACTION, times=1) as fault:
        outcome = await timed(client.take(rpm=60))
    assert fault.used == 1
    assert outcome is None or isinstance(outcome, RateLimiterUnavailable)
    await recovered(world, client, 36 if outcome is None else 96)


@pytest.mark.parametrize("hold", [True, False])
async def test_a_gathered_charge_that_arrives_late_is_made_once(world, proxy, client, hold):
    """When nobody waits for it any more."""
    with (
        proxy.measure() as measured,
        proxy.fault("late", operation=TRANSACTION, times=1, delay_ms=None, hold=hold) as message,
    ):
        outcome = await timed(client.take(rpm=60))
        await arrived(message, measured)
    assert outcome is None or isinstance(outcome, RateLimiterUnavailable)
    await recovered(world, client, 36)


@pytest.mark.fast("black_hole", "garble", "error_before")
@pytest.mark.parametrize("kind", SILENT)
async def test_a_gathered_charge_in_an_outage_ends_in_time(world, proxy, client, kind):
    with proxy.fault(kind, operation=TRANSACTION):
        outcome = await timed(client.take(rpm=60))
    assert (outcome is None) == (kind in CARRIED_OUT)
    await recovered(world, client, 36 if kind in CARRIED_OUT else 96)


@pytest.mark.fast("lose_answer", "error_after", "throttle")
@pytest.mark.parametrize("kind", SILENT)
async def test_a_gathered_charge_of_which_nothing_can_be_known(world, proxy, client, kind):
    """If it was made, it was made once."""
    with proxy.fault(kind, operation=TRANSACTION), proxy.fault("error_before", operation="GetItem"):
        outcome = await timed(client.take(rpm=60))
    assert isinstance(outcome, RateLimiterUnavailable)
    await recovered(world, client, 36 if kind in CARRIED_OUT else 96)


@pytest.mark.fast("close", "throttle")
@pytest.mark.parametrize("kind", ["black_hole", "close", "error_before", "throttle"])
async def test_shards_that_can_not_be_read_are_an_outage(world, proxy, client, kind):
    world.clock.advance(ms=1)
    with proxy.fault(kind, operation=READ):
        outcome = await timed(client.take(rpm=60))
    assert isinstance(outcome, RateLimiterUnavailable)
    await recovered(world, client, 96)


async def test_a_gathered_charge_without_a_server_ends_in_time(world, proxy, client):
    with proxy.refusing():
        outcome = await timed(client.take(rpm=60))
    assert isinstance(outcome, RateLimiterUnavailable)
    await recovered(world, client, 96)


async def test_an_outage_that_begins_when_the_shards_were_read(world, proxy, client):
    proxy.link.answer_ms = 40
    with proxy.measure() as measured:
        task = asyncio.ensure_future(timed(client.take(rpm=60)))
        await seen(measured, READ)
        with proxy.refusing():
            outcome = await task
    proxy.link.answer_ms = 0
    assert isinstance(outcome, RateLimiterUnavailable)
    await recovered(world, client, 96)


async def test_a_missing_permission_for_transactions_is_no_outage(world, proxy, client):
    """That is no outage: nobody is admitted for it."""
    with proxy.fault("deny", operation=TRANSACTION), pytest.raises(PermissionDenied):
        await client.take(rpm=60)
    await recovered(world, client, 96)


async def test_an_outage_that_admits_charges_nothing(world, proxy, client):
    async def take():
        async with client.limiter.acquire(
            "user-1", "api", {"rpm": 60}, on_unavailable="allow"
        ) as lease:
            assert lease.consumed == {}
            await lease.adjust(rpm=5)

    with proxy.fault("black_hole", operation=TRANSACTION):
        assert await timed(take()) is None
    await recovered(world, client, 96)


async def test_conflicts_are_tried_again(world, proxy, client):
    with proxy.fault(
        "throttle", operation=TRANSACTION, code="TransactionConflictException", times=2
    ) as fault:
        assert await timed(client.take(rpm=60)) is None
    assert fault.used == 2
    await recovered(world, client, 36)


async def test_a_charge_from_one_shard_is_made_once(world, proxy, client):
    for kind in (*CARRIED_OUT, "error_before"):
        before = left(world)
        with proxy.fault(kind, operation=WRITE, times=1) as fault:
            assert await timed(client.take(rpm=2)) is None
        assert fault.used == 1
        assert left(world) == before - 2


# --- a credit that one shard can not hold


async def holding(world, client, amount):
    acquire = client.acquire(rpm=amount)
    await acquire.__aenter__()
    return acquire


def given_back(acquire):
    return acquire.__aexit__(Failure, Failure(), None)


@pytest.mark.fast("cut_answer-1", "error_after-0")
@pytest.mark.parametrize("skip", [0, 1, 2])
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "close"])
async def test_a_credit_over_several_shards_is_never_made_twice(world, proxy, client, kind, skip):
    """A lost part is lost; where the answer can be looked up, nothing is."""
    acquire = await holding(world, client, 80)
    with proxy.fault(kind, operation=WRITE, times=1, skip=skip):
        await timed(given_back(acquire))
    if kind == "lose_answer":
        assert left(world) == 96
    await still_there(world, client, least=16)


@pytest.mark.each_value_once
@pytest.mark.parametrize("operation", [WRITE, READ])
@pytest.mark.parametrize("kind", ["black_hole", "lose_answer", "error_before"])
async def test_a_credit_in_an_outage_ends_in_time(world, proxy, client, kind, operation):
    acquire = await holding(world, client, 80)
    with proxy.fault(kind, operation=operation):
        await timed(given_back(acquire))
    await still_there(world, client, least=16)


# --- a debt that one shard can not bear


@pytest.mark.fast(
    "UpdateItem-lose_answer", "UpdateItem-throttle", "TransactWriteItems-error_before"
)
@pytest.mark.parametrize("kind", [*CARRIED_OUT, *NOT_CARRIED_OUT])
@pytest.mark.parametrize("operation", [WRITE, TRANSACTION])
async def test_a_debt_without_a_proper_answer_is_made_once(world, proxy, client, kind, operation):
    with proxy.fault(kind, operation=operation, times=1, skip=int(operation == WRITE)) as fault:
        assert await timed(client.owe(rpm=90)) is None
    assert fault.used == 1
    unsure = kind in ("close", "error_before")  # it may yet arrive: not made again
    if unsure and operation == TRANSACTION:
        assert left(world) == 6
    else:  # a write whose reused connection was closed is repeated
        await recovered(world, client, 6)


@pytest.mark.fast("lose_answer", "error_after", "throttle")
@pytest.mark.parametrize("kind", SILENT)
async def test_shards_that_can_not_make_up_for_a_debt_owe_it_all_the_same(
    world, proxy, client, kind
):
    with proxy.fault(kind, operation=TRANSACTION):
        assert await timed(client.owe(rpm=90)) is None
    assert left(world) == 6
    await client.refusal(rpm=25)  # a smaller one is admitted by a shard that has not heard of it


@pytest.mark.fast("black_hole", "lose_answer")
@pytest.mark.parametrize("kind", ["black_hole", "lose_answer", "error_before"])
async def test_a_debt_in_an_outage_ends_in_time(world, proxy, client, kind):
    acquire = client.acquire(rpm=1)
    lease = await acquire.__aenter__()
    await lease.adjust(rpm=90)
    with proxy.fault(kind):
        await timed(acquire.__aexit__(None, None, None))
    assert left(world) in (5, 95)

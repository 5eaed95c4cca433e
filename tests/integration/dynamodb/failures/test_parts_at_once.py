"""An operation of a lease that one bucket of a cascade takes and the other one does not."""

import pytest
from zae_limiter_contract._async.world import stored

from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.world import PARENT, USER, Failure, failing
from zae_limiter import InfrastructureError, Limit

TTL_S = 600
DAILY = Limit.quota("tokens", 1000, per="day", hold_ttl=TTL_S)
SESSION = Limit.quota("session", 1000, after_first_use="5h", hold_ttl=TTL_S)
RATE = Limit.per_day("tpd", 1000)
SIDES = pytest.mark.parametrize("side", [USER, PARENT], ids=["child", "parent"])
REFUSALS = pytest.mark.parametrize("kind", ["throttle", "error_before", "deny"])


@pytest.fixture
async def client(world, proxy):
    await world.family(child=[DAILY, SESSION, RATE], parent=[DAILY, SESSION, RATE])
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.take(tpd=1, tokens=1)
    return client


@pytest.fixture
def refusing(proxy):
    """Return a function that lets the bucket of one side refuse writes in a block."""

    def refuse(side, kind="throttle"):
        marker = f"BUCKET#{side}#".encode()
        return proxy.fault(
            kind, operation="UpdateItem", when=lambda exchange: marker in exchange.raw_body
        )

    return refuse


async def used(client):
    """Return what is used and held of the quota, for both sides, which must agree."""
    statuses = (await client.limiter.check_availability(USER, "api", {})).statuses
    of_side = [(each.used, each.held) for each in statuses if each.limit_name == "tokens"]
    assert len(of_side) == 2
    assert of_side[0] == of_side[1]
    return of_side[0]


def spent(world, name="tokens"):
    milli = {world.spent(name, entity_id=side) for side in (USER, PARENT)}
    assert len(milli) == 1, milli
    return milli.pop() // 1000


@pytest.mark.each_value_once
@REFUSALS
@SIDES
@pytest.mark.parametrize("cost", [20, 80])
async def test_what_one_bucket_did_not_settle_at_once_it_gets_later(
    world, client, refusing, side, kind, cost
):
    with failing():
        async with client.acquire(tpd=50, tokens=50) as lease:
            with refusing(side, kind), pytest.raises(InfrastructureError):
                await lease.settle(tpd=cost, tokens=cost, session=cost, now=True)
            await stored(client.repo)
            assert spent(world, "tpd") == cost + 1
            raise Failure
    await stored(client.repo)
    assert (spent(world), spent(world, "tpd")) == (cost + 1, cost + 1)
    assert spent(world, "session") == cost
    assert await used(client) == (cost + 1, 0)
    assert client.repo.lost_settlements == 0


@SIDES
async def test_a_refused_part_comes_with_the_next_operation(world, client, refusing, side):
    async with client.acquire(tokens=50) as lease:
        with refusing(side), pytest.raises(InfrastructureError):
            await lease.settle(tokens=80, now=True)
        await lease.settle(tokens=60, now=True)
        assert await used(client) == (61, 0)
        with refusing(side), pytest.raises(InfrastructureError):
            await lease.release(tokens=25)
        await lease.consume(tokens=5)
    assert await used(client) == (41, 0)
    assert spent(world) == 41


@SIDES
async def test_a_refused_release_comes_at_the_end(world, client, refusing, side):
    async with client.acquire(tpd=50, tokens=50) as lease:
        with refusing(side), pytest.raises(InfrastructureError):
            await lease.release(tpd=20, tokens=20)
        assert lease.consumed == {"tpd": 30, "tokens": 30}
        await stored(client.repo)
    assert await used(client) == (31, 0)
    assert (spent(world), spent(world, "tpd")) == (31, 31)


@SIDES
async def test_a_part_that_is_refused_again_and_again_is_stored_in_the_end(
    world, client, refusing, side
):
    call = client.acquire(tokens=50)
    lease = await call.__aenter__()
    with refusing(side):
        for cost in 80, 30, 70:
            with pytest.raises(InfrastructureError):
                await lease.settle(tokens=cost, now=True)
        await call.__aexit__(None, None, None)
        assert client.repo.pending_settlements == 1
    await stored(client.repo)
    assert await used(client) == (71, 0)
    assert spent(world) == 71


@SIDES
async def test_a_refused_part_whose_hold_has_expired_is_charged_once(world, client, refusing, side):
    async with client.acquire(tokens=50) as lease:
        with refusing(side), pytest.raises(InfrastructureError):
            await lease.settle(tokens=80, now=True)
        world.clock.advance(seconds=2 * TTL_S)
    await client.take(tokens=1)
    assert await used(client) == (82, 0)
    assert spent(world) == 82

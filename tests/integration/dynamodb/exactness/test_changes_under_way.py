"""Limits that change while something is under way."""

import asyncio

from tests.support.dynamodb.stored import EPOCH_MS
from tests.support.dynamodb.waiting import started
from tests.support.dynamodb.world import seen, together, under_way
from zae_limiter import Limit, ValidationError
from zae_limiter.items.stored import bucket as bucket_item

DAY_MS = 86_400_000


async def test_a_debt_that_meets_a_change_of_limits_is_not_forgotten_before_it_is_repaid(
    world, proxy
):
    """The debt is settled by one client while another one's change is on its way."""
    client, debtor = await world.client(proxy), await world.client()
    await client.repo.set_system_defaults([Limit.per_minute("tpm", 100)])
    await client.take(tpm=1)
    async with debtor.acquire(tpm=1) as lease:
        await lease.adjust(tpm=2000)
        await client.repo.set_system_defaults([Limit.per_day("tpm", 100)])
        changing = under_way(proxy, client.granted(tpm=1))
        attempt = await changing.__aenter__()
    await changing.__aexit__(None, None, None)
    assert not attempt.result()
    assert world.full_at_ms() - world.clock() > 19 * DAY_MS
    assert world.ttl_ms() >= world.full_at_ms()


async def test_a_charge_on_a_limit_that_is_gone_is_told_so_also_when_it_travels_with_a_refund(
    world, proxy
):
    """The bucket was made anew with fewer limits, behind the back of the client."""
    client, other = await world.client(proxy), await world.client()
    await client.repo.create_entity("user-1")
    await client.repo.set_system_defaults(
        [Limit.per_minute("tpm", 10), Limit.per_minute("rpm", 10)]
    )
    async with client.acquire(tpm=5, rpm=10) as lease:
        await other.repo.delete_entity("user-1")
        await other.repo.set_system_defaults([Limit.per_minute("tpm", 10)])
        await other.take(tpm=5)
        refund, charge = await together(lease.release(tpm=1), client.take(rpm=1))
    assert refund is None
    assert isinstance(charge, ValidationError)
    assert "rpm" in str(charge)


async def test_a_caller_that_has_read_the_limits_again_decides_for_those_that_have_not(
    world, proxy, boto
):
    """The limits of the bucket are older than its version says: one caller finds out, and is
    written together with others that do not know yet."""
    client = await world.client(proxy, request_timeout=10)
    await client.repo.set_system_defaults([Limit.per_minute("tpm", 100)])
    async with client.acquire(tpm=1) as first, client.acquire(tpm=2) as second:
        _leave_older_limits(world, boto(world.endpoint))
        proxy.link.request_ms = 100
        with proxy.measure() as measured:
            knowing = asyncio.ensure_future(client.take(tpm=1))
            await seen(measured, "TransactGetItems")
        proxy.link.request_ms = 600
        with proxy.measure() as measured:
            others = [
                await started(work)
                for work in (first.release(tpm=1), second.release(tpm=1), client.take(tpm=1))
            ]
            await seen(measured, "UpdateItem")
        await asyncio.sleep(0.05)  # the first release is on its way, the others wait for it
        proxy.link.request_ms = 0
        assert await together(knowing, *others) == [None] * 4
    assert world.rate("tpm")[0] == 100_000


def _leave_older_limits(world, store):
    """As a client does that has read the version and the limits at two moments."""
    item = world.item()
    store.update_item(
        TableName=world.table,
        Key={"PK": item["PK"], "SK": item["SK"]},
        UpdateExpression="SET p_tpm = :rate, lh = :digest, t_tpm = :balance",
        ExpressionAttributeValues={
            ":rate": {"S": "50:50:60:0"},
            ":digest": {
                "S": bucket_item.digest_of({"tpm": bucket_item.unpack("50:50:60:0")}, {"tpm": 0})
            },
            ":balance": {"N": str(40_000 - (world.clock() - EPOCH_MS) * 50 // 60)},
        },
    )
    assert world.level("tpm") == 40_000

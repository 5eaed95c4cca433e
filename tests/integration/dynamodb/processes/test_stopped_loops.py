"""Event loops that end, or are closed, while something is under way."""

import asyncio

from tests.support.dynamodb.waiting import carried_out
from tests.support.dynamodb.world import Failure
from zae_limiter import Limit

HUNDRED = Limit.per_minute("rpm", 100)


def test_a_refund_that_the_end_of_the_loop_interrupts_is_made_once(world, proxy):
    """The store has carried it out; the answer is on its way when everything is cancelled."""

    async def main():
        client = await world.client(proxy)
        await client.repo.set_system_defaults([HUNDRED])
        await client.take(rpm=50)

        async def fail():
            async with client.acquire(rpm=10):
                proxy.link.answer_ms = 500
                raise Failure

        with proxy.measure() as measured:
            background = asyncio.ensure_future(fail())
            await carried_out(measured, count=2)
        proxy.link.answer_ms = 0
        return background

    background = asyncio.run(main())
    assert background.done()
    assert world.level() == 50_000


def test_a_waiter_whose_loop_was_closed_does_not_keep_others_from_the_bucket(run_program, proxy):
    assert run_program("closed_loop") == ["leader True", "other True", "next True"]


def test_a_writer_whose_loop_was_closed_delays_at_most_one_other_and_not_for_long(run_program):
    assert run_program("lost_leader") == ["refused one", "waited not long"]

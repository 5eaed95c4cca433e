"""What was consumed is counted on, whatever limits it was consumed under."""

from zae_limiter import Limit


async def test_what_was_consumed_under_limits_of_a_call_counts_when_they_are_gone(world):
    client = await world.client()
    await client.repo.set_system_defaults([Limit.per_minute("rpm", 10)])
    await client.take(limits=[Limit.per_minute("rpm", 100)], rpm=7)
    world.clock.advance(minutes=5)
    await client.take(rpm=1)
    assert world.spent() == 8000

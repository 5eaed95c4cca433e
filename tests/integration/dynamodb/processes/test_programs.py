"""Signals, and what still runs when a program is over."""

import pytest


@pytest.mark.fast("settle", "configuration")
@pytest.mark.parametrize(
    "what", ["stats", "acquire", "settle", "cascade", "buckets", "configuration"]
)
def test_a_signal_handler_may_use_the_limiter_wherever_it_strikes(run_program, what):
    struck, used = run_program("signals", what)
    assert int(struck) == int(used) > 0


async def test_a_program_ends_although_a_generator_holds_a_lease(run_program, world):
    assert run_program("suspended") == ["over"]
    client = await world.client()
    (bucket,) = await client.repo.get_buckets("user-1")
    assert bucket.tokens == 100


def test_threads_that_outlive_the_main_thread_are_served_as_before(run_program):
    assert run_program("outliving") == ["over", "charged", "charged", "charged", "left 93"]

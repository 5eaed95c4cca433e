"""Each rejection has a violation and the exact wait, after random histories of one bucket.

The buckets have limits of all kinds, with calls whose processes have died, debts, top-ups, resets
and pauses. The contract suite makes a sample of these histories on every engine.
"""

from hypothesis import given
from hypothesis import strategies as st
from zae_limiter_contract._sync.random_refusals import check_refusal
from zae_limiter_contract._sync.world import World

from tests.contract._sync.specs import private_memory
from zae_limiter.testing import FakeClock

HISTORIES = 20  # for each example, in one store


@given(st.integers(0, 10**9))
def test_a_rejection_has_a_violation_and_an_exact_wait(seed):
    world = World(private_memory(), FakeClock())
    world.start()
    try:
        refused = [check_refusal(world, f"user-{seed + at}", seed + at) for at in range(HISTORIES)]
    finally:
        world.close()
    assert any(refused)

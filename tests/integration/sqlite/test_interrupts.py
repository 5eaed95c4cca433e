"""Real signals at random moments, beside the exhaustive simulation of the contract suite."""

import random
import signal
import time

import pytest

from tests.integration.sqlite.interrupted_child import COST
from zae_limiter import Limit, SyncRepository

LIMIT = Limit.custom("rpm", 10_000_000, 1, 86_400)


@pytest.mark.usefixtures("in_background")
@pytest.mark.parametrize("interrupts", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_process_that_is_interrupted_many_times_has_taken_what_it_says(start, url, interrupts):
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults([LIMIT])
    child, chance = start("interrupted_child.py", url, str(interrupts)), random.Random(6)
    for _ in range(interrupts):
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.001, 0.004))
        child.send_signal(signal.SIGINT)
    done, unsure = map(int, child.stdout.readline().split())
    with SyncRepository.open(url=url) as repository:
        state = repository.get_bucket("user", "api", "rpm")
        taken = state.total_consumed_milli // 1000
        assert state.tokens == LIMIT.capacity - taken
    assert done > interrupts // 4
    assert COST * done <= taken <= COST * (done + unsure)

"""Ctrl-C at any moment of a call that holds a slot: the slot returns, at the latest by its TTL."""

import gc
from contextlib import suppress

import pytest
from zae_limiter_contract.signal_points import InterruptAt

from tests.contract.engines import dynamodb_url, sqlite_url
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock

LIMITS = [Limit.concurrent("parallel", 2, lease_ttl=60), Limit.per_minute("rpm", 1000)]


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def url(request, tmp_path):
    if request.param == "dynamodb":
        return dynamodb_url(request.getfixturevalue("dynamodb_table"))
    return "memory://" if request.param == "memory" else sqlite_url(tmp_path)


@pytest.fixture(autouse=True)
def _collect_garbage_of_the_test_alone():
    """Each point ends with a collection, which would visit what all tests before have left."""
    gc.freeze()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.slow), 29], ids=["each point", "some points"]
)
def test_an_interrupt_at_any_point_leaves_no_slot_that_is_renewed_for_ever(url, every):
    clock, leaks, points = FakeClock(), 0, 0
    with SyncRepository.builder().url(url).clock(clock).request_timeout(10).build() as repo:
        repo.set_system_defaults(LIMITS)
        limiter = SyncRateLimiter(repo)
        with limiter.acquire("user", "api", {"rpm": 1}):
            pass
        for position in range(1, 100_000, every):
            interrupt = InterruptAt(position)
            with (
                suppress(KeyboardInterrupt),
                interrupt,
                limiter.acquire("user", "api", {"rpm": 1}) as lease,
            ):
                lease.adjust(rpm=1)
            if interrupt.struck is None:
                break
            points += 1
            lease = None
            gc.collect()
            assert sum(repo.charging.slots.kept()) == 0, interrupt.struck
            if limiter.available("user", "api")["parallel"] < 2:
                leaks += 1
                clock.advance(seconds=60)
            assert limiter.available("user", "api")["parallel"] == 2, interrupt.struck
    assert points >= 4
    assert leaks * 10 <= points, f"{leaks} of {points} interrupts left a slot to expire"

"""An entity with its limits in force, by the clock of the store."""

import pytest

from zae_limiter import Limit, SyncRepository
from zae_limiter.testing import FakeClock
from zae_limiter_ops.views.entities import view_entity

YEAR_MS = 365 * 86_400_000


@pytest.mark.parametrize("offset_ms", [-YEAR_MS, YEAR_MS])
def test_a_mode_on_all_resources_ends_by_the_clock_of_the_store(offset_ms):
    clock = FakeClock(FakeClock()() + offset_ms)
    with SyncRepository.open(url="memory://", clock=clock) as repository:
        repository.set_system_defaults([Limit.per_minute("rpm", 60)])
        repository.set_mode(entity_id="key-7", mode="deny", until=clock() / 1000 + 60)
        [other] = view_entity(repository, "key-7").in_force
        assert other.mode.mode == "deny"
        clock.advance(seconds=61)
        [other] = view_entity(repository, "key-7").in_force
        assert other.mode is None

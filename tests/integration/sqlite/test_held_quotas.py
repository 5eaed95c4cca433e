"""Holds of quotas when several openers of a file charge the same bucket."""

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository


@pytest.fixture
def openers(tmp_path):
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    with SyncRepository.open(url=url) as one, SyncRepository.open(url=url) as other:
        limiters = SyncRateLimiter(one), SyncRateLimiter(other)
        limiters[0].set_resource_defaults("api", [Limit.quota("calls", 100, per="month")])
        yield limiters


@pytest.mark.parametrize(("cost", "left"), [(0, 100), (1, 98)])
def test_a_settlement_finds_its_hold_after_the_charge_of_another_opener(openers, cost, left):
    one, other = openers
    with (
        one.acquire("user-1", "api", {"calls": 5}) as first,
        other.acquire("user-1", "api", {"calls": 5}) as second,
    ):
        first.settle(calls=cost)
        second.settle(calls=cost)
    [status] = one.check_availability("user-1", "api").statuses
    assert (status.available, status.held, status.used) == (left, 0, 2 * cost)

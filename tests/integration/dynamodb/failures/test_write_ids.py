"""Several writes for the same callers: each is told from the others."""

import pytest

from tests.support.dynamodb.world import PATIENT_S, together
from zae_limiter import Limit, RateLimiterUnavailable

TWENTY = Limit.per_minute("rpm", 20)
KNOWABLE = ("lose_answer", "cut_answer", "garble", "error_after", "error_before")


@pytest.fixture
async def client(world, proxy):
    """Believes that five are left, where another client has put back the rest."""
    client, other = await world.client(proxy, request_timeout=PATIENT_S), await world.client()
    await client.repo.set_system_defaults([TWENTY])
    await client.take(rpm=15)
    await other.owe(rpm=-15)
    assert world.level() == 20_000
    return client


@pytest.mark.parametrize("kind", [*KNOWABLE, "close", "late"])
async def test_a_second_write_for_a_group_is_not_taken_for_its_first(world, client, proxy, kind):
    """The first write is for the charges that seem to fit, the second one for the rest."""
    with proxy.fault(kind, operation="UpdateItem", skip=1, times=1) as fault:
        outcomes = await together(client.take(rpm=5), client.take(rpm=3))
    assert fault.used == 1
    assert all(each is None or isinstance(each, RateLimiterUnavailable) for each in outcomes)
    admitted = 5000 * (outcomes[0] is None) + 3000 * (outcomes[1] is None)
    charged = 20_000 - world.level()
    assert admitted <= charged <= 8000
    if kind in KNOWABLE:
        assert (admitted, charged) == (8000, 8000)

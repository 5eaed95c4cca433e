"""Several writes for the same callers: each is told from the others."""

import pytest

from tests.support.dynamodb.world import PATIENT_S, together
from zae_limiter import Limit, RateLimiterUnavailable

TWENTY = Limit.per_minute("rpm", 20)
CARRIED_OUT = ("lose_answer", "cut_answer", "garble", "error_after")


@pytest.fixture
async def client(world, proxy):
    """Believes that five are left, where another client has put back the rest."""
    client, other = await world.client(proxy, request_timeout=PATIENT_S), await world.client()
    await client.repo.set_system_defaults([TWENTY])
    await client.take(rpm=15)
    await other.owe(rpm=-15)
    assert world.level() == 20_000
    return client


@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before", "close", "late"])
async def test_a_second_write_for_a_group_is_not_taken_for_its_first(world, client, proxy, kind):
    """The first write is for the charges that seem to fit, the second one for the rest."""
    with proxy.fault(kind, operation="UpdateItem", skip=1, times=1) as fault:
        outcomes = await together(client.take(rpm=5), client.take(rpm=3))
    assert fault.used == 1
    assert all(each is None or isinstance(each, RateLimiterUnavailable) for each in outcomes)
    admitted = 5000 * (outcomes[0] is None) + 3000 * (outcomes[1] is None)
    charged = 20_000 - world.level()
    assert admitted <= charged <= 8000
    if kind in CARRIED_OUT:
        assert (admitted, charged) == (8000, 8000)
    if kind == "error_before":
        # A slow event loop sends the two charges in two writes. The other write then stops the
        # guarded repeat of the failed one, and that charge is refused; it is not charged either.
        assert admitted == charged

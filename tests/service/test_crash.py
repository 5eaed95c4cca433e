"""A service that is killed: what its leases held returns, each amount once."""

import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from tests.service.running import Client, running
from zae_limiter import Limit

RATE = Limit.custom("tpd", 1_000_000, 1, 86_400)  # refills nothing in the time of a test


def limits(hold_ttl):
    return [
        RATE,
        Limit.quota("calls", 1000, per="month", hold_ttl=hold_ttl),
        Limit.budget("usd", 500, per="month", hold_ttl=hold_ttl),
    ]


def open_leases(port, count):
    def some(number):
        client = Client(port)
        leases = [
            client.lease({"tpd": 10, "calls": 1, "usd": "0.50"}, entity=f"user-{number}")
            for _ in range(count // 4)
        ]
        client.close()
        return leases

    with ThreadPoolExecutor(4) as pool:
        return [lease for leases in pool.map(some, range(4)) for lease in leases]


@pytest.mark.parametrize(
    ("count", "hold_ttl"), [(40, 2), pytest.param(200, 10, marks=pytest.mark.slow)]
)
def test_after_a_kill_holds_return_once_and_settled_amounts_stay(limiter, url, count, hold_ttl):
    limiter.set_resource_defaults("gpt-4", limits(hold_ttl))
    with running("--url", url, "--no-auth") as service:
        leases = open_leases(service.port, count)
        with_client = service.client()
        for lease in leases[: count // 10]:
            assert with_client.settle(lease, {"tpd": 4, "usd": "0.20"}).status == 200
        with_client.close()
        killed_at = time.monotonic()
        service.kill()
    settled = count // 10
    held = limiter.check_availability("user-1", "gpt-4").statuses
    assert sum(each.held or 0 for each in held if each.limit_name == "calls") > 0
    time.sleep(max(0.0, killed_at + 1.5 * hold_ttl + 2 - time.monotonic()))
    left = [limiter.available(f"user-{number}", "gpt-4") for number in range(4)]
    assert sum(each["calls"] for each in left) == 4 * 1000 - settled
    assert sum(each["usd"] for each in left) == 4 * 500 - settled * Decimal("0.20")
    used = sum(1_000_000 - each["tpd"] for each in left)
    assert used == (count - settled) * 10 + settled * 4

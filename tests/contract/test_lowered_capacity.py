"""A capacity that is lowered under load cuts off what exceeds it, and not a token more."""

import threading

import pytest

from tests.contract._sync import specs
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.testing import FakeClock

API = "api"
HIGH, LOW = 1_200_000, 1_000_000
THREADS, CALLS = 4, 60


@pytest.fixture(params=["memory", "sqlite"])
def repository(request, tmp_path):
    spec = specs.private_memory() if request.param == "memory" else specs.sqlite(tmp_path)
    with spec.open(clock=FakeClock()) as repository:  # time stands still: nothing accrues
        yield repository


def take(limiter, amount, actual):
    """Charge an amount of which only a part is used; return what is charged in the end."""
    with limiter.acquire("user", API, {"tpm": amount}) as lease:
        lease.adjust(tpm=actual - amount)
    return actual


def missing_after_fire(repository, first):
    """Lower the capacity amid charges and refunds; return what is neither charged nor left."""
    repository.set_system_defaults([Limit.per_day("tpm", HIGH)])
    limiter = SyncRateLimiter(repository)
    charged = [take(limiter, first, first)]
    half = threading.Barrier(THREADS + 1)

    def fire():
        for number in range(CALLS):
            if number == CALLS // 2:
                half.wait(30)
            charged.append(take(limiter, 500, 250))

    threads = [threading.Thread(target=fire) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    half.wait(30)
    repository.set_system_defaults([Limit.per_day("tpm", LOW)])
    for thread in threads:
        thread.join()
    charged.append(take(limiter, 0, 0))
    assert len(charged) == 2 + THREADS * CALLS
    return HIGH - sum(charged) - limiter.available("user", API)["tpm"]


def test_nothing_is_lost_where_the_level_is_below_the_new_capacity(repository):
    assert missing_after_fire(repository, HIGH - LOW + THREADS * 500) == 0


def test_what_exceeds_the_new_capacity_is_cut_off_once(repository):
    """Between half and all of the calls come before the first charge under the lower capacity.

    Refunds of charges in flight at that moment may find the bucket full: one per thread.
    """
    missing = missing_after_fire(repository, 20_000)
    fired = THREADS * CALLS * 250
    assert (
        HIGH - 20_000 - LOW - fired <= missing <= HIGH - 20_000 - LOW - fired // 2 + THREADS * 500
    )

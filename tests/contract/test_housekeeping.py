"""Embedded stores forget what no longer matters, and nothing else."""

import tracemalloc

import pytest
from zae_limiter_contract._sync.world import Failure, failing

from tests.contract._async import specs as async_specs
from tests.contract._sync import specs
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.embedded.housekeeping import EVERY_CHARGES
from zae_limiter.testing import FakeClock

HOURLY = Limit.per_hour("rpm", 10)
RPS = Limit.per_second("rps", 10)  # a bucket of this limit expires after seven seconds
HUNDRED, OWN = Limit.per_minute("rpm", 100), Limit.per_minute("rpm", 500)
API = "api"


@pytest.fixture(params=["memory", "sqlite"])
def spec(request, tmp_path):
    return specs.private_memory() if request.param == "memory" else specs.sqlite(tmp_path)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def repository(spec, clock):
    with spec.open(clock=clock) as repository:
        repository.set_system_defaults([HOURLY])
        yield repository


@pytest.fixture
def limiter(repository):
    return SyncRateLimiter(repository)


def take(limiter, entity_id="user", amount=1):
    with limiter.acquire(entity_id, API, {"rpm": amount}):
        pass


def owe(limiter, amount, entity_id="user"):
    with limiter.acquire(entity_id, API, {}) as lease:
        lease.adjust(rpm=amount)


def make_traffic(limiter):
    """Enough of it for housekeeping to have come round."""
    for _ in range(3 * EVERY_CHARGES):
        take(limiter, "traffic", 0)


def test_a_bucket_that_has_long_been_full_is_forgotten_and_its_usage_is_not(
    clock, repository, limiter
):
    take(limiter, amount=7)
    clock.advance(days=6)
    make_traffic(limiter)
    clock.advance(days=0.5)
    make_traffic(limiter)
    assert repository.get_buckets("user") == []
    assert repository.get_usage_summary("user").total == {"rpm": 7}
    take(limiter, amount=10)
    assert repository.get_usage_summary("user").total == {"rpm": 17}


def test_a_bucket_in_use_is_not_forgotten(clock, repository, limiter):
    for _ in range(12):  # longer than an idle one is kept
        take(limiter)
        clock.advance(hours=1)
        make_traffic(limiter)
    assert repository.get_bucket("user", API, "rpm").total_consumed_milli == 12_000


def test_a_debt_is_not_forgotten_however_long_it_takes_to_repay(clock, repository, limiter):
    owe(limiter, 10 + 24 * 10 * 60)  # sixty days
    clock.advance(days=30)
    make_traffic(limiter)
    assert repository.get_bucket("user", API, "rpm").tokens == -30 * 24 * 10
    clock.advance(days=60)
    make_traffic(limiter)
    assert limiter.available("user", API) == {"rpm": 10}


def test_a_pause_is_not_forgotten(clock, repository, limiter):
    repository.set_resource_defaults(API, [Limit.per_second("rpm", 10)])
    take(limiter)
    limiter.pause("user", API, 600)
    limiter.pause("unused", API, 600)
    clock.advance(seconds=599)  # the buckets would be full after a second, and gone after seven
    make_traffic(limiter)
    for entity_id in ("user", "unused"):
        with pytest.raises(RateLimitExceeded, match="paused"):
            take(limiter, entity_id)
    clock.advance(seconds=60)
    make_traffic(limiter)
    assert not repository.get_buckets("unused")


def test_a_debt_made_at_the_end_of_a_long_lease_is_not_forgotten(clock, repository, limiter):
    with limiter.acquire("user", API, {"rpm": 1}) as lease:
        clock.advance(days=6)
        lease.adjust(rpm=10 + 24 * 10 * 10)
    clock.advance(days=5)
    make_traffic(limiter)
    assert repository.get_bucket("user", API, "rpm").tokens == -5 * 24 * 10


def test_a_bucket_with_limits_of_its_own_entity_is_kept(clock, repository, limiter):
    repository.set_limits("user", [HOURLY])
    take(limiter)
    clock.advance(days=365)
    make_traffic(limiter)
    assert repository.get_bucket("user", API, "rpm") is not None


def test_usage_is_forgotten_after_its_retention_and_not_before(clock, repository, limiter):
    take(limiter)
    clock.advance(days=6 if repository.capabilities.engine == "memory" else 89)
    make_traffic(limiter)
    assert repository.get_usage_summary("user").total == {"rpm": 1}
    clock.advance(days=2)
    make_traffic(limiter)
    assert repository.get_usage_summary("user").total == {}


def test_audit_events_are_forgotten_after_their_retention_and_not_before(
    clock, repository, limiter
):
    repository.create_entity("user")
    clock.advance(days=89)
    make_traffic(limiter)
    assert len(repository.get_audit_events("user")) == 1
    clock.advance(days=2)
    make_traffic(limiter)
    assert repository.get_audit_events("user") == []


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_opening_a_store_leaves_the_history_that_others_keep_for_longer(
    engine, clock, tmp_path, unique_name
):
    """As a command does, which is given no retention."""
    spec = specs.named_memory(unique_name) if engine == "memory" else specs.sqlite(tmp_path)
    builder = SyncRepository.builder().url(spec.url).clock(clock)
    with builder.usage_retention_days(365).audit_retention_days(365).build() as repository:
        repository.set_system_defaults([HOURLY])
        repository.create_entity("user")
        take(SyncRateLimiter(repository))
        clock.advance(days=300)
        with spec.open(clock=clock) as other:
            assert other.get_usage_summary("user").total == {"rpm": 1}
            assert len(other.get_audit_events("user")) == 1
        make_traffic(SyncRateLimiter(repository))
        assert repository.get_usage_summary("user").total == {"rpm": 1}


@pytest.fixture(params=["memory", "sqlite"])
def shared_url(request, tmp_path, unique_name):
    memory = request.param == "memory"
    return (specs.named_memory(unique_name) if memory else specs.sqlite(tmp_path)).url


def test_the_retention_of_usage_belongs_to_the_store(clock, shared_url):
    builder = SyncRepository.builder().url(shared_url).clock(clock)
    with builder.usage_retention_days(365).build() as repository:
        repository.set_system_defaults([HOURLY])
        take(SyncRateLimiter(repository))
        clock.advance(days=300)
        with SyncRepository.open(url=shared_url, clock=clock) as other:  # names none
            make_traffic(SyncRateLimiter(other))
        assert repository.get_usage_summary("user").total == {"rpm": 1}


def test_the_last_opener_that_names_a_retention_decides_it_for_all(clock, shared_url, caplog):
    with SyncRepository.open(url=shared_url, clock=clock) as repository:
        repository.set_system_defaults([HOURLY])
        take(SyncRateLimiter(repository))
        clock.advance(days=4)
        with caplog.at_level("INFO", logger="zae_limiter"):
            SyncRepository.builder().url(shared_url).clock(clock).usage_retention_days(
                3
            ).build().close()
        (message,) = [record.getMessage() for record in caplog.records]
        assert "usage" in message
        assert "3 days" in message
        make_traffic(SyncRateLimiter(repository))
        assert repository.get_usage_summary("user").total == {}


def test_deletion_of_old_usage_keeps_up_with_the_calls_that_make_it(clock, repository, limiter):
    """Every call ends an hour of a bucket of its own, more often than every ten minutes."""
    for _ in range(4):
        for number in range(500):
            take(limiter, f"user-{number}", 0 if number % 2 else 1)
        clock.advance(days=100)
    make_traffic(limiter)
    make_traffic(limiter)
    page, _ = repository.get_usage_snapshots(resource=API, window_type="hourly", limit=10_000)
    assert {window.entity_id for window in page} <= {"traffic"}


def test_limits_and_entities_are_never_forgotten(clock, repository, limiter):
    repository.create_entity("user")
    repository.set_limits("user", [HOURLY])
    clock.advance(days=3650)
    make_traffic(limiter)
    assert repository.get_entity("user") is not None
    assert repository.get_limits("user") == [HOURLY]


# --- entities that come only once


def visit(limiter, entity_id, amount=1):
    with limiter.acquire(entity_id, API, {"rps": amount}):
        pass


def test_buckets_of_entities_that_come_only_once_do_not_accumulate(clock, repository, limiter):
    repository.set_system_defaults([RPS])
    most = 0
    for number in range(2000):
        visit(limiter, f"visitor-{number}")
        if number % 10 == 9:
            clock.advance(ms=100)
        if number % 1000 == 999:
            most = max(most, len(repository.get_resource_buckets(API)))
    assert most < 1500  # about 700 have not expired at any time


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
async def test_buckets_do_not_accumulate_for_tasks_either(engine, clock, tmp_path):
    spec = async_specs.private_memory() if engine == "memory" else async_specs.sqlite(tmp_path)
    async with await spec.open(clock=clock) as repository:
        limiter = RateLimiter(repository)
        await repository.set_system_defaults([RPS])
        for number in range(1300):
            async with limiter.acquire(f"visitor-{number}", API, {"rps": 1}):
                pass
            clock.advance(ms=10)
        assert len(await repository.get_resource_buckets(API)) < 1200


def test_a_backlog_of_expired_buckets_is_removed_by_later_calls(clock, repository, limiter):
    repository.set_system_defaults([RPS])
    for number in range(800):
        visit(limiter, f"visitor-{number}")
    clock.advance(minutes=1)
    for _ in range(800):
        visit(limiter, "regular", 0)
    assert len(repository.get_resource_buckets(API)) < 10


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_buckets_do_not_accumulate_where_every_client_makes_a_few_calls_only(
    engine, clock, tmp_path, unique_name
):
    spec = specs.named_memory(unique_name) if engine == "memory" else specs.sqlite(tmp_path)
    for run in range(20):
        with spec.open(clock=clock) as repository:
            repository.set_system_defaults([RPS])
            for number in range(50):
                visit(SyncRateLimiter(repository), f"visitor-{run}-{number}")
            buckets = len(repository.get_resource_buckets(API))
        clock.advance(seconds=10)
    assert buckets < 500


def test_switching_between_limits_that_expire_and_limits_that_do_not_costs_no_memory(clock):
    """An entity's own limits are kept, those that a call brings expire."""
    configured, brought = (Limit.per_day("rpd", number) for number in (10**9, 10**8))
    with SyncRepository.open(url="memory://", clock=clock) as repository:
        limiter = SyncRateLimiter(repository)
        repository.set_limits("user", [configured], API)

        def switch(times):
            for _ in range(times):
                for limits in (None, [brought]):
                    with limiter.acquire("user", API, {"rpd": 1}, limits=limits):
                        pass
                clock.advance(ms=1)

        switch(200)
        tracemalloc.start()
        try:
            switch(2000)
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert grown < 50_000


def test_a_bucket_in_debt_is_kept_until_it_is_repaid(clock, repository, limiter):
    repository.set_system_defaults([RPS])
    with limiter.acquire("debtor", API, {"rps": 1}) as lease:
        lease.adjust(rps=1000)
    clock.advance(seconds=30)
    for number in range(300):
        visit(limiter, f"visitor-{number}")
    assert limiter.available("debtor", API) == {"rps": -691}


# --- a bucket that is forgotten under a lease


def forget_idle_buckets(limiter, clock):
    """Let every bucket fill up and expire; then calls for other entities remove it."""
    clock.advance(days=1)
    for number in range(250):
        take(limiter, f"passer-by-{number}")


def used(repository):
    return repository.get_usage_summary(entity_id="user", resource=API).total.get("rpm", 0)


def test_a_debt_under_limits_of_the_call_survives_although_the_bucket_was_forgotten(
    clock, repository, limiter
):
    with limiter.acquire("user", API, {"rpm": 5}, limits=[OWN]) as lease:
        forget_idle_buckets(limiter, clock)
        assert repository.get_bucket("user", API, "rpm") is None
        lease.adjust(rpm=550)
    assert limiter.available("user", API, limits=[OWN]) == {"rpm": -50}
    assert limiter.available("user", API) == {"rpm": 10}
    with pytest.raises(RateLimitExceeded), limiter.acquire("user", API, {"rpm": 0}, limits=[OWN]):
        pass


@pytest.mark.parametrize("limits", [None, [OWN]], ids=["configured", "of-the-call"])
def test_a_credit_to_a_forgotten_bucket_is_taken_off_the_usage(clock, repository, limiter, limits):
    repository.set_system_defaults([HUNDRED])
    with limiter.acquire("user", API, {"rpm": 50}, limits=limits) as lease:
        forget_idle_buckets(limiter, clock)
        assert repository.get_bucket("user", API, "rpm") is None
        assert used(repository) == 50
        lease.adjust(rpm=-20)
    assert used(repository) == 30


def test_a_refund_to_a_forgotten_bucket_is_taken_off_the_usage(clock, repository, limiter):
    repository.set_system_defaults([HUNDRED])
    with failing(), limiter.acquire("user", API, {"rpm": 50}):
        forget_idle_buckets(limiter, clock)
        raise Failure
    assert used(repository) == 0


def test_debts_and_credits_to_a_forgotten_bucket_are_counted_together(clock, repository, limiter):
    repository.set_system_defaults([HUNDRED, Limit.per_minute("tpm", 1000)])
    with limiter.acquire("user", API, {"rpm": 50, "tpm": 100}) as lease:
        forget_idle_buckets(limiter, clock)
        lease.adjust(rpm=-20, tpm=300)
    assert repository.get_usage_summary(entity_id="user").total == {"rpm": 30, "tpm": 400}
    assert limiter.available("user", API) == {"rpm": 100, "tpm": 700}

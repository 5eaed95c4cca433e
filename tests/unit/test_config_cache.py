import pytest

from zae_limiter import (
    CacheStats,
    Limit,
    RateLimitExceeded,
    SyncConfigCache,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.admission.resolution import resolve
from zae_limiter.models.config import ConfigSnapshot
from zae_limiter.testing import FakeClock

LARGE, SMALL = [Limit.per_minute("rpm", 100)], [Limit.per_minute("rpm", 5)]


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock, unique_name):
    """Opens clients of one store."""
    opened = []

    def client(**options):
        url = f"memory://{unique_name}"
        opened.append(SyncRepository.open(url=url, clock=clock, **options))
        return opened[-1]

    yield client
    for repository in opened:
        repository.close()


def allowed(repository, clock, entity="user-1"):
    """The capacity that an acquire of this client runs against."""
    try:
        SyncRateLimiter(repository, clock=clock).acquire(entity, "gpt-4", {"rpm": 1000}).__enter__()
    except RateLimitExceeded as error:
        return error.statuses[0].limit.capacity
    raise AssertionError("no test needs that many")


CHANGES = {
    "system": lambda repository: repository.set_system_defaults(SMALL),
    "resource": lambda repository: repository.set_resource_defaults("gpt-4", SMALL),
    "entity": lambda repository: repository.set_limits("user-1", SMALL),
    "entity and resource": lambda repository: repository.set_limits("user-1", SMALL, "gpt-4"),
}


@pytest.mark.parametrize("level", CHANGES)
def test_a_change_is_seen_at_once_by_the_client_that_made_it(store, clock, level):
    repository = store()
    repository.set_system_defaults(LARGE)
    assert allowed(repository, clock) == 100
    CHANGES[level](repository)
    assert allowed(repository, clock) == 5


@pytest.mark.parametrize("level", CHANGES)
def test_a_change_is_seen_at_once_by_repositories_scoped_from_the_one_that_made_it(
    store, clock, level
):
    repository = store()
    scoped = repository.namespace("default", bucket_ttl_multiplier=3)
    repository.set_system_defaults(LARGE)
    assert allowed(scoped, clock) == 100
    CHANGES[level](repository)
    assert allowed(scoped, clock) == 5


@pytest.mark.parametrize("level", CHANGES)
def test_another_client_sees_a_change_when_its_cache_has_aged(store, clock, level):
    writer, reader = store(), store(config_cache_ttl=60)
    writer.set_system_defaults(LARGE)
    assert allowed(reader, clock) == 100
    CHANGES[level](writer)
    clock.advance(ms=47_999)
    assert allowed(reader, clock) == 100
    clock.advance(ms=1)  # the last fifth of the TTL begins: the entry is renewed
    assert allowed(reader, clock) == 5


def test_another_client_sees_a_change_at_once_where_a_bucket_has_seen_it(store, clock):
    writer, reader = store(), store(config_cache_ttl=60)
    writer.set_system_defaults(LARGE)
    limiter = SyncRateLimiter(reader, clock=clock)
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
        pass
    writer.set_system_defaults(SMALL)
    with SyncRateLimiter(writer, clock=clock).acquire("user-1", "gpt-4", {"rpm": 1}):
        pass
    assert allowed(reader, clock) == 5


def test_without_a_cache_every_change_is_seen_at_once(store, clock):
    writer, reader = store(), store(config_cache_ttl=0)
    writer.set_system_defaults(LARGE)
    assert allowed(reader, clock) == 100
    writer.set_system_defaults(SMALL)
    assert allowed(reader, clock) == 5
    assert reader.get_cache_stats().size == 0


def test_a_clock_that_goes_back_finds_nothing_remembered(store, clock):
    writer, reader = store(), store()
    writer.set_system_defaults(LARGE)
    assert allowed(reader, clock) == 100
    writer.set_system_defaults(SMALL)
    clock.advance(ms=-5000)
    assert allowed(reader, clock) == 5


def test_invalidating_forgets_everything(store, clock):
    writer, reader = store(), store()
    writer.set_system_defaults(LARGE)
    assert allowed(reader, clock) == 100
    writer.set_system_defaults(SMALL)
    reader.invalidate_config_cache()
    assert allowed(reader, clock) == 5


def test_hits_and_misses_are_counted(store, clock):
    repository = store(config_cache_ttl=30)
    repository.set_system_defaults(LARGE)
    allowed(repository, clock)
    assert repository.get_cache_stats() == CacheStats(0, 1, 1, 30)
    allowed(repository, clock)
    allowed(repository, clock, "user-2")
    assert repository.get_cache_stats() == CacheStats(1, 2, 2, 30)


def test_a_store_in_memory_keeps_few_entries_that_the_garbage_collector_visits(store, clock):
    repository = store()
    repository.set_system_defaults(LARGE)
    limiter = SyncRateLimiter(repository)
    for number in range(5000):
        limiter.available(f"user-{number}", "gpt-4")
    assert repository.get_cache_stats().size <= 4096


def test_a_read_that_was_under_way_during_a_change_is_not_remembered():
    cache = SyncConfigCache(60)
    whose = (("ns", 7), "user-1")
    old = resolve(ConfigSnapshot(1), entity_id="user-1", resource="gpt-4", ttl_multiplier=7)
    generation = cache.generation
    cache.clear()
    cache.put(whose, "gpt-4", old, 0, generation)
    assert cache.get(whose, "gpt-4", 0) is None
    cache.put(whose, "gpt-4", old, 0, cache.generation)
    assert cache.get(whose, "gpt-4", 0) is old

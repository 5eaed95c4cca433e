"""Listings of a store in memory cost what they return, not what the store holds."""

import time

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.embedded.housekeeping import delete_expired_buckets
from zae_limiter.embedded.memory.store import open_store
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.testing import FakeClock

RPM = Limit.per_minute("rpm", 100)
MANY = 10_000


@pytest.fixture
def repository():
    with SyncRepository.open(url="memory://") as repository:
        repository.set_system_defaults([RPM])
        yield repository


def use(repository, number):
    with SyncRateLimiter(repository).acquire(f"user-{number:05}", "api", {"rpm": 1}):
        pass


def listed(repository, limit):
    ids, after = [], None
    while True:
        page, after = repository.list_entities(limit=limit, cursor=after)
        ids += [entity.id for entity in page]
        if after is None:
            return ids


def test_pages_of_entities_do_not_read_the_whole_namespace(repository):
    for number in range(MANY):
        repository.create_entity(f"user-{number:05}")
    listed(repository, MANY)
    began = time.process_time()
    first = listed(repository, 4)
    took_s = time.process_time() - began
    assert len(first) == MANY
    assert took_s < 1.0  # 2,500 pages


def test_listings_follow_what_is_created_used_and_deleted_between_them(repository):
    use(repository, 3)
    repository.create_entity("user-00001")
    assert listed(repository, 1) == ["user-00001", "user-00003"]
    use(repository, 1)
    use(repository, 2)
    assert listed(repository, 1) == ["user-00001", "user-00002", "user-00003"]
    repository.delete_entity("user-00001")
    repository.delete_entity("user-00003")
    repository.create_entity("user-00003")
    assert listed(repository, 2) == ["user-00002", "user-00003"]


def test_a_bucket_that_expires_is_dropped_and_its_usage_counted_once():
    clock, store = FakeClock(), open_store("dropped-once")
    with SyncRepository.open(url="memory://dropped-once", clock=clock) as repository:
        repository.set_system_defaults([Limit.per_second("rpm", 1)])
        limiter = SyncRateLimiter(repository)
        for limits in (None, [Limit("rpd", 5, 2, 3)]):  # the second one moves the TTL
            with limiter.acquire("user-1", "api", {}, limits):
                pass
        clock.advance(seconds=400)
        store.run(delete_expired_buckets, (clock(),), Receipt())
        assert repository.get_buckets("user-1") == []
        (hour,), _ = repository.get_usage_snapshots("user-1", window_type="hourly")
        assert hour.total_events == 2

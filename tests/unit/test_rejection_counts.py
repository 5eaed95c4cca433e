"""Ends of acquires are noted without a write, and stored later, in the hour in which they were."""

import pytest

from tests.unit.test_charging import HOUR_MS, NOW, NS, RPM, Store, configured, usage_hours, wanted
from zae_limiter.admission.request import AcquireEnd, ChargeRequest, Grant, Rejection
from zae_limiter.admission.tally import tallies_of
from zae_limiter.embedded import buckets
from zae_limiter.embedded.tallies import BATCH, store_noted
from zae_limiter.models.entity import Namespace
from zae_limiter.tallies import NotedTallies, TakenTallies

HOUR = NOW // HOUR_MS
LIMITS = configured(RPM)


class RejectingStore(Store):
    """A store with a client that notes what it rejects."""

    def __init__(self):
        super().__init__()
        self.tables.put_namespace(Namespace(NS, "default", "active", ""))
        self.noted = NotedTallies()

    def ask(self, amount, entity="user-1"):
        charge = wanted(LIMITS, entity, rpm=amount)
        request = ChargeRequest((charge,), lambda: self.now_ms, self.now_ms)
        outcome = buckets.charge(self.tables, NS, request, TakenTallies(self.noted))
        if isinstance(outcome, Rejection):
            ended = AcquireEnd(
                charge.resource, ((entity, LIMITS),), outcome.statuses, False, request.clock
            )
            for each, tally in tallies_of(ended, self.now_ms).items():
                self.noted.note((NS, each, charge.resource), tally, LIMITS, request.clock)
        return isinstance(outcome, Grant)

    def store_noted(self):
        store_noted(self.tables, self.noted.take_first(BATCH))

    def rejected(self, entity="user-1"):
        by_hour = {}
        for row in usage_hours(self.tables, entity):
            hour = row.usage.hour - HOUR
            by_hour[hour] = by_hour.get(hour, 0) + row.usage.tally.rejected
        return {hour: count for hour, count in by_hour.items() if count}


@pytest.fixture
def store():
    return RejectingStore()


def test_a_rejection_writes_nothing(store):
    assert store.ask(10)
    before = store.image()
    assert not store.ask(1)
    assert store.image() is before
    assert store.rejected() == {}


def test_the_next_charge_takes_them_along(store):
    store.ask(10)
    assert [store.ask(1) for _ in range(3)] == [False] * 3
    store.now_ms += 10_000
    assert store.ask(1)
    assert store.image().tally.rejected == 3
    assert store.rejected() == {0: 3}
    assert not store.noted.by_bucket


def test_those_of_an_earlier_hour_stay_in_it(store):
    store.ask(10)
    store.ask(1)
    store.now_ms += HOUR_MS
    assert store.ask(10)
    assert not store.ask(1)
    store.now_ms += HOUR_MS
    assert store.ask(1)
    assert store.rejected() == {0: 1, 1: 1}
    assert store.image().tally.rejected == 0


def test_a_bucket_that_only_rejects_is_counted_by_the_hour(store):
    store.ask(10)
    store.settle(LIMITS, rpm=10**9)  # in debt for days
    for _ in range(3):
        store.ask(1)
        store.store_noted()
        store.now_ms += HOUR_MS
    assert store.rejected() == {0: 1, 1: 1, 2: 1}
    assert store.image().tally.rejected == 1
    assert store.used() == {(HOUR, "rpm"): 10 + 10**6}


def test_without_a_bucket_they_are_counted_in_a_row(store):
    assert not store.ask(11)
    store.store_noted()
    assert store.image() is None
    assert store.rejected() == {0: 1}


def test_a_late_report_does_not_turn_the_hour_back(store):
    store.ask(10)
    store.ask(1)
    other = Store.take(store, LIMITS, rpm=0)  # another client, which knows nothing of them
    assert other is not None
    store.now_ms += HOUR_MS
    Store.take(store, LIMITS, rpm=5)
    store.store_noted()
    assert store.image().hour == HOUR + 1
    assert store.rejected() == {0: 1}


@pytest.mark.parametrize("status", ["purging", None])
def test_a_namespace_that_is_purged_gets_no_row(store, status):
    store.ask(11)
    if status is None:
        store.tables.delete_namespace(NS)
    else:
        store.tables.put_namespace(Namespace(NS, "default", status, ""))
    store.store_noted()
    assert store.rejected() == {}


def test_batches_hold_every_bucket_once(store):
    entities = [f"user-{number}" for number in range(BATCH + 5)]
    for entity in entities:
        store.ask(11, entity)
    assert len(store.noted.take_first(BATCH)) == BATCH
    assert len(store.noted.take_first(BATCH)) == 5
    assert store.noted.take_first(BATCH) == {}


def test_a_forked_child_leaves_them_to_its_parent(store):
    store.ask(11)
    store.noted.after_fork()
    assert not store.noted.by_bucket

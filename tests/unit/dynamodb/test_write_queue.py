"""The write queue of an item: which caller leads, which follow, and crowds that leave."""

import time

import pytest

from tests.support.changes import charge_of
from zae_limiter.admission.in_force import InForce
from zae_limiter.clock import Deadline
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.buckets.write_queue import MAX_GROUP, WriteQueues
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.limit import Limit

BUCKET = BucketId("ns", "user-1", "api")
LIMITS = InForce((Limit.per_minute("rpm", 10),), ConfigSource.SYSTEM, 1)
CROWD = 20_000


def clock():
    return 0


class Waiter:
    def __init__(self):
        self.woken = False

    def wake(self):
        self.woken = True
        return True


def crowd(size):
    """A leader whose write is in flight, and those that wait for it."""
    queues, deadline = WriteQueues(lambda: 0.0), Deadline(60)
    change = charge_of(LIMITS, {"rpm": 1000})
    members = [PendingChange(BUCKET, change, clock, deadline) for _ in range(size)]
    assert queues.join(members[0], Waiter)
    for each in members[1:]:
        assert not queues.join(each, Waiter)
    return queues, members[0], members[1:]


@pytest.mark.parametrize("order", [1, -1], ids=["first come", "last come"])
def test_a_crowd_leaves_in_a_time_that_grows_with_its_size(order):
    queues, _, waiting = crowd(CROWD)
    start = time.thread_time()
    for each in waiting[::order][: CROWD // 2]:
        assert queues.withdraw(each)
    assert time.thread_time() - start < 1  # 0.03 s; 8 s when each was searched for


def test_callers_that_stay_keep_their_order():
    queues, leader, waiting = crowd(7)
    for each in (waiting[0], waiting[3]):
        assert queues.withdraw(each)
        assert not queues.withdraw(each)
    queues.leave(leader)
    assert [each.waiter.woken for each in waiting] == [False, True, False, False, False, False]
    assert queues.take_group(waiting[1]) == [waiting[at] for at in (1, 2, 4, 5)]


def test_a_group_is_bounded_and_the_rest_waits_on_in_order():
    queues, leader, waiting = crowd(MAX_GROUP + 3)
    queues.leave(leader)
    assert queues.take_group(waiting[0]) == waiting[:MAX_GROUP]
    queues.leave(waiting[0])
    assert queues.take_group(waiting[MAX_GROUP]) == waiting[MAX_GROUP:]


def test_one_that_a_leader_has_taken_cannot_leave():
    queues, leader, waiting = crowd(3)
    queues.leave(leader)
    queues.take_group(waiting[0])
    assert not queues.withdraw(waiting[1])


# --- reservations: one write with them in flight, in the order of arrival


def patient():
    change = charge_of(LIMITS, {"rpm": 1000}, until_ms=1000)
    return PendingChange(BUCKET, change, clock, Deadline(60))


def hasty():
    change = charge_of(LIMITS, {"rpm": 1000})
    return PendingChange(BUCKET, change, clock, Deadline(60))


class Moment:
    """The time of a test, in seconds."""

    def __init__(self):
        self.s = 0.0

    def __call__(self):
        return self.s


@pytest.fixture
def moment():
    return Moment()


def test_a_second_write_with_reservations_waits_for_the_first_however_long_that_takes(moment):
    queues, first, other, second = WriteQueues(moment), patient(), hasty(), patient()
    assert queues.join(first, Waiter)
    moment.s = 1
    assert queues.join(other, Waiter)  # without reservations writes may overtake each other
    moment.s = 2
    assert not queues.join(second, Waiter)
    queues.leave(other)
    assert not second.waiter.woken
    queues.leave(first)
    assert second.waiter.woken
    assert queues.take_group(second) == [second]


def test_a_group_takes_no_reservations_while_a_write_with_them_is_in_flight(moment):
    queues, first, other = WriteQueues(moment), patient(), hasty()
    assert queues.join(first, Waiter)
    moment.s = 1
    assert queues.join(other, Waiter)
    followers = [hasty(), patient(), hasty(), patient()]
    for each in followers:
        assert not queues.join(each, Waiter)
    queues.leave(other)
    assert queues.take_group(followers[0]) == [followers[0], followers[2]]
    queues.leave(followers[0])
    queues.leave(first)
    assert followers[1].waiter.woken
    assert queues.take_group(followers[1]) == [followers[1], followers[3]]
    queues.leave(followers[1])


def test_a_group_with_reservations_lets_no_other_one_go_before_it_has_ended(moment):
    queues, first = WriteQueues(moment), hasty()
    assert queues.join(first, Waiter)
    followers = [hasty(), patient()]
    for each in followers:
        assert not queues.join(each, Waiter)
    queues.leave(first)
    assert queues.take_group(followers[0]) == followers
    moment.s = 1
    late = patient()
    assert not queues.join(late, Waiter)
    queues.leave(followers[0])
    assert late.waiter.woken

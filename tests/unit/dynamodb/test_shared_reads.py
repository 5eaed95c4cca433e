"""Of those who want to read the same at once, one does, and the others wait for it."""

import threading

import pytest

from tests.unit.dynamodb.stored import BUCKET_ID
from zae_limiter.items.sharding.shared_reads import SharedReads
from zae_limiter.runtime.waiter import AWaiter, Waiter

OTHER = ("ns", "other", "api")


def waits(waiter):
    """Whether it has not been woken."""
    with pytest.raises(TimeoutError):
        waiter.wait(0)
    return True


def test_the_first_call_reads_and_later_ones_wait_until_that_is_done():
    reads = SharedReads()
    assert reads.join(BUCKET_ID, Waiter) is None
    waiters = [reads.join(BUCKET_ID, Waiter) for _ in range(3)]
    assert all(waits(waiter) for waiter in waiters)
    reads.done(BUCKET_ID)
    for waiter in waiters:
        waiter.wait(0)


def test_a_call_after_a_read_reads_again():
    reads = SharedReads()
    for _ in range(3):
        assert reads.join(BUCKET_ID, Waiter) is None
        reads.done(BUCKET_ID)


def test_reads_of_different_buckets_have_nothing_to_do_with_each_other():
    reads = SharedReads()
    assert reads.join(BUCKET_ID, Waiter) is None
    assert reads.join(OTHER, Waiter) is None
    waiter = reads.join(BUCKET_ID, Waiter)
    reads.done(OTHER)
    assert waits(waiter)


def test_a_call_that_is_to_read_prepares_no_wait():
    def never():
        raise AssertionError

    assert SharedReads().join(BUCKET_ID, never) is None


def test_the_end_of_a_read_may_be_told_twice():
    reads = SharedReads()
    reads.done(BUCKET_ID)
    reads.join(BUCKET_ID, Waiter)
    reads.done(BUCKET_ID)
    reads.done(BUCKET_ID)
    assert reads.join(BUCKET_ID, Waiter) is None


def test_a_forked_child_does_not_wait_for_a_read_of_its_parent():
    reads = SharedReads()
    assert reads.join(BUCKET_ID, Waiter) is None
    reads.after_fork()
    assert reads.join(BUCKET_ID, Waiter) is None


def test_of_many_threads_one_reads_and_all_go_on():
    reads, start, all_joined = SharedReads(), threading.Barrier(8), threading.Barrier(8)
    roles = []

    def work():
        start.wait(5)
        waiter = reads.join(BUCKET_ID, Waiter)
        all_joined.wait(5)
        if waiter is None:
            reads.done(BUCKET_ID)
        else:
            waiter.wait(5)
        roles.append("reads" if waiter is None else "waits")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(roles) == ["reads"] + ["waits"] * 7


async def test_a_task_waits_for_a_read_of_another_thread():
    reads = SharedReads()
    assert reads.join(BUCKET_ID, Waiter) is None
    waiter = reads.join(BUCKET_ID, AWaiter)
    threading.Timer(0.01, reads.done, [BUCKET_ID]).start()
    await waiter.wait(5)

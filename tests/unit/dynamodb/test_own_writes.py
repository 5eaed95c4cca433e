from zae_limiter._sync.engines.dynamodb.backoff import FIRST_S, Backoff
from zae_limiter.dynamodb.own_writes import MAX_NAMESPACES, OwnWrites
from zae_limiter.transport.deadline import Deadline


def test_what_was_changed_a_moment_ago_is_known():
    writes = OwnWrites()
    assert not writes.is_recent("a")
    writes.note("a")
    assert writes.is_recent("a")
    assert not writes.is_recent("b")


def test_the_oldest_is_forgotten_when_there_are_too_many():
    writes = OwnWrites()
    for number in range(MAX_NAMESPACES):
        writes.note(f"{number}")
    writes.note("0")
    writes.note("one more")
    assert writes.is_recent("0")
    assert not writes.is_recent("1")
    assert writes.is_recent("2")


def test_pauses_end_with_the_deadline():
    deadline = Deadline(FIRST_S * 20)
    backoff, pauses = Backoff(deadline), 0
    while backoff.pause():
        pauses += 1
        assert deadline.left() > -0.1
    assert pauses > 1
    assert not Backoff(Deadline(0)).pause()

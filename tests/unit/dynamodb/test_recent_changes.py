from zae_limiter._sync.engines.items.backoff import FIRST_PAUSE_S, BoundedBackoff
from zae_limiter.clock import Deadline
from zae_limiter.items.recent_changes import MAX_NAMESPACES, RecentChanges


def test_what_was_changed_a_moment_ago_is_known():
    changes = RecentChanges()
    assert not changes.is_recent("a")
    changes.note("a")
    assert changes.is_recent("a")
    assert not changes.is_recent("b")


def test_the_oldest_is_forgotten_when_there_are_too_many():
    changes = RecentChanges()
    for number in range(MAX_NAMESPACES):
        changes.note(f"{number}")
    changes.note("0")
    changes.note("one more")
    assert changes.is_recent("0")
    assert not changes.is_recent("1")
    assert changes.is_recent("2")


def test_pauses_end_with_the_deadline():
    deadline = Deadline(FIRST_PAUSE_S * 20)
    backoff, pauses = BoundedBackoff(deadline), 0
    while backoff.pause():
        pauses += 1
        assert deadline.left() > -0.1
    assert pauses > 1
    assert not BoundedBackoff(Deadline(0)).pause()

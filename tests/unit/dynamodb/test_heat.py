"""Items that the store refused to write are seen to, by one at a time."""

import threading

from zae_limiter.dynamodb.heat import MOST_SPOTS, Heat

SPOT = ("ns", "user", "api", 0)
OTHER = ("ns", "user", "api", 1)


def many():
    return [("ns", f"user-{number}", "api", 0) for number in range(MOST_SPOTS)]


def test_what_was_refused_a_moment_ago_is_hot_until_something_was_done():
    heat = Heat()
    assert not heat.is_hot(SPOT)
    heat.note(SPOT)
    assert heat.is_hot(SPOT)
    assert not heat.is_hot(OTHER)
    heat.end(SPOT)
    assert not heat.is_hot(SPOT)


def test_something_is_done_about_an_item_once_and_not_again_at_once():
    heat = Heat()
    assert heat.begin(SPOT)
    assert not heat.begin(SPOT)
    assert heat.begin(OTHER)
    heat.end(SPOT)
    assert not heat.begin(SPOT), "that was a moment ago"


def test_of_many_threads_one_does_something():
    heat, start, found = Heat(), threading.Barrier(8), []

    def begin():
        start.wait()
        found.append(heat.begin(SPOT))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False] * 7 + [True]


def test_the_end_of_what_never_began_is_no_error():
    Heat().end(SPOT)


def test_items_are_not_remembered_without_end():
    heat = Heat()
    heat.note(SPOT)
    assert heat.begin(SPOT)
    for spot in many():
        heat.note(spot)
        heat.begin(spot)
    assert not heat.is_hot(SPOT)
    assert heat.begin(SPOT)
    assert heat.is_hot(many()[-1])


def test_a_forked_child_knows_what_its_parent_knew():
    heat = Heat()
    heat.note(SPOT)
    heat.after_fork()
    assert heat.is_hot(SPOT)
    assert heat.begin(SPOT)

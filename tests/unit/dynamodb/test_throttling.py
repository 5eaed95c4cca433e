"""Items that the store has throttled, and the pause between two attempts to reshard."""

import threading

from zae_limiter.items.sharding.throttling import MAX_ITEMS, ReshardCooldown, ThrottledItems
from zae_limiter.items.stored.keys import ShardId

ITEM = ShardId("ns", "user", "api", 0)
OTHER = ShardId("ns", "user", "api", 1)


def many():
    return [ShardId("ns", f"user-{number}", "api", 0) for number in range(MAX_ITEMS)]


def test_a_throttled_item_is_known_until_it_is_discarded():
    throttled = ThrottledItems()
    assert ITEM not in throttled
    throttled.add(ITEM)
    assert ITEM in throttled
    assert OTHER not in throttled
    throttled.discard(ITEM)
    assert ITEM not in throttled


def test_discarding_an_item_that_was_not_throttled_is_no_error():
    ThrottledItems().discard(ITEM)


def test_an_attempt_begins_once_and_not_again_at_once():
    cooldown = ReshardCooldown()
    assert cooldown.begin(ITEM)
    assert not cooldown.begin(ITEM)
    assert cooldown.begin(OTHER)


def test_of_many_threads_one_begins():
    cooldown, start, begun = ReshardCooldown(), threading.Barrier(8), []

    def begin():
        start.wait()
        begun.append(cooldown.begin(ITEM))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(begun) == [False] * 7 + [True]


def test_items_are_not_remembered_without_end():
    throttled, cooldown = ThrottledItems(), ReshardCooldown()
    throttled.add(ITEM)
    assert cooldown.begin(ITEM)
    for item in many():
        throttled.add(item)
        cooldown.begin(item)
    assert ITEM not in throttled
    assert cooldown.begin(ITEM)
    assert many()[-1] in throttled

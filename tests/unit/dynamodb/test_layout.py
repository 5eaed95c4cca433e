"""Which shards there must be, from those that were seen and those that were missed."""

import pytest

from zae_limiter.admission.shards.tree import UNKNOWN, WHOLE, Layout, Shard

HALVES = [Shard(0, 2), Shard(1, 2)]
QUARTERS = [Shard(number, 4) for number in range(4)]


def seen(*sights):
    layout = UNKNOWN
    for shard, generation in sights:
        layout = layout.with_seen(shard, generation)
    return layout


def test_a_bucket_of_which_nothing_is_known_is_one_item():
    assert UNKNOWN.live == (WHOLE,)
    assert not UNKNOWN.is_split
    assert not seen((WHOLE, 7)).is_split


def test_one_shard_tells_that_there_are_others():
    layout = seen((Shard(2, 4), 5))
    assert layout.is_split
    assert layout.live == (Shard(0, 4), Shard(1, 2), Shard(2, 4))


def test_what_was_seen_already_changes_nothing():
    layout = seen((Shard(0, 2), 5))
    assert layout.with_seen(Shard(0, 2), 5) is layout


@pytest.mark.parametrize("late", [(WHOLE, 4), (Shard(2, 4), 4)], ids=["before", "between"])
def test_of_two_that_contradict_the_later_one_is_right_in_whatever_order_they_come(late):
    halves = [(half, 5) for half in HALVES]
    assert seen(*halves, late).live == tuple(HALVES)
    assert seen(late, *halves).live == tuple(HALVES)


def test_a_later_split_is_believed_as_soon_as_one_half_is_seen():
    layout = seen((Shard(0, 2), 5), (Shard(1, 2), 5), (Shard(3, 4), 6))
    assert layout.live == (Shard(0, 2), Shard(1, 4), Shard(3, 4))
    assert Shard(1, 2) not in layout.seen


def test_a_later_merge_is_believed_and_its_halves_are_not():
    layout = seen(*((quarter, 5) for quarter in QUARTERS), (Shard(0, 2), 6))
    assert layout.live == (Shard(0, 2), Shard(1, 4), Shard(3, 4))


def test_a_bucket_that_was_made_anew_replaces_all_shards_of_the_old_one():
    layout = seen(*((quarter, 5) for quarter in QUARTERS), (WHOLE, 1000))
    assert layout == Layout.of({WHOLE: 1000})
    assert not layout.is_split


def test_a_shard_that_is_missed_was_merged_with_all_that_was_split_off_beside_it():
    layout = seen(*((quarter, 5) for quarter in QUARTERS))
    assert layout.without(2).live == (Shard(0, 2), Shard(1, 4), Shard(3, 4))
    assert layout.without(3).live == (Shard(0, 4), Shard(1, 2), Shard(2, 4))
    assert layout.without(1).live == (WHOLE,)


def test_without_the_first_one_nothing_is_known_any_more():
    assert seen(*((quarter, 5) for quarter in QUARTERS)).without(0) == UNKNOWN

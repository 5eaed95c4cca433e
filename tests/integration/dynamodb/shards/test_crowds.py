"""Many clients at once, while shards come and go: every millitoken is accounted for."""

import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import combinations

import pytest

from tests.integration.dynamodb.shards.hand import LIMITS
from zae_limiter import Limit

NAMES = [limit.name for limit in LIMITS]
DOINGS = "charge,charge,charge,charge,split,merge,gather,give_back,owe"


def half_empty(hand):
    return hand.create(**{limit.name: limit.capacity * 500 for limit in LIMITS})


def net(children):
    """What was made, by limit, and what may have been."""
    made, doubts = dict.fromkeys(NAMES, 0), []
    for child in children:
        open_ = {}
        for word, *rest in child.told():
            if word == "try":
                open_[rest[0]] = rest[1]
            elif word in ("made", "not"):
                found = open_.pop(rest[0])
                if word == "made":
                    for name, amount in found.items():
                        made[name] += amount
        doubts += open_.values()
    return made, doubts


def events(children, word):
    return sum(each == [word, True] for child in children for each in child.told())


def explained(difference, doubts, name):
    """Whether some of the doubtful writes, made, are just that difference."""
    amounts = [each.get(name, 0) for each in doubts]
    return any(
        sum(chosen) == difference
        for size in range(len(amounts) + 1)
        for chosen in combinations(amounts, size)
    )


def test_four_processes_split_merge_charge_and_settle(start, hands, accounts):
    """Nothing runs over here, so the balances are conserved to the last millitoken."""
    half_empty(hands())
    before = {name: accounts.balance(name) for name in NAMES}
    children = [start(seed, DOINGS, times=150) for seed in range(4)]
    for child in children:
        assert child.finished()
    made, doubts = net(children)
    assert not doubts
    accounts.shards()
    for name in NAMES:
        assert accounts.balance(name) - before[name] == made[name]
    assert events(children, "split") > 10
    assert events(children, "merge") > 3


def test_processes_that_are_killed_anywhere_leave_nothing_behind(start, hands, accounts):
    """At most one write of each is in doubt, and whatever it was, it is whole."""
    half_empty(hands())
    before = {name: accounts.balance(name) for name in NAMES}
    children = []
    for round_ in range(5):
        young = [start(10 * round_ + seed, DOINGS) for seed in range(3)]
        for later, child in enumerate(young):
            _wait_for(child, 25 + 17 * later + 7 * round_)
            child.kill()
        children += young
        accounts.shards()
    made, doubts = net(children)
    assert len(doubts) <= len(children)
    for name in NAMES:
        difference = accounts.balance(name) - before[name] - made[name]
        assert explained(difference, doubts, name)
    survivor = hands(seed=99)
    survivor.read(0)
    levels = accounts.levels("rpm", survivor.clock()).values()
    assert survivor.charge(rpm=1000) == (max(levels) >= 1000)
    _merged(survivor, accounts)
    assert accounts.shards() == {0: 1}


@pytest.mark.parametrize("doing", ["split", "merge", "gather", "owe", "give_back"])
def test_a_process_that_is_killed_while_it_does_nothing_else(start, hands, accounts, doing):
    hand = hands()
    half_empty(hand)
    for number in (0, 0, 1):
        hand.split(number)
    before = {name: accounts.balance(name) for name in NAMES}
    other = "split" if doing == "merge" else "merge"
    children = []
    for seed in range(4):
        child = start(seed, f"{doing},{doing},{other}")
        _wait_for(child, 6 + 5 * seed)
        child.kill()
        children.append(child)
        accounts.shards()
    made, doubts = net(children)
    for name in NAMES:
        difference = accounts.balance(name) - before[name] - made[name]
        assert explained(difference, doubts, name)


def test_a_bucket_that_runs_over_gives_out_no_more_than_one_that_was_never_split(hands, accounts):
    """Fast enough to be full again and again, in threads, with the real time."""
    limits = (Limit.per_second("rpm", 2000, burst=200),)
    first = hands(limits=limits)
    start_ms = first.clock()
    first.create()
    taken = []

    def work(seed):
        hand = hands(limits=limits, seed=seed)
        hand.read(0)
        for step in range(120):
            if seed < 2 and step % 12 == 0:
                [hand.merge, hand.split][step // 12 % 2 ^ seed](hand.known()[0].number)
            large = step % 10 == 9
            amount = 60_000 if large else 1000 * (1 + step % 7)
            if hand.gather(rpm=amount) if large else hand.charge(rpm=amount):
                taken.append(amount)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    end_ms = first.clock()
    most = 200_000 + Fraction((end_ms - start_ms) * 2_000_000, 1000)
    assert sum(taken) + accounts.level("rpm", end_ms) <= most + 32
    assert sum(taken) > most / 4
    accounts.shards()


def _wait_for(child, lines):
    for _ in range(3000):
        if len(child.told()) >= lines:
            return
        time.sleep(0.01)
    raise AssertionError("the process does nothing")


def _merged(hand, accounts):
    while len(accounts.items()) > 1:
        for number in sorted(accounts.items(), reverse=True):
            hand.merge(number)

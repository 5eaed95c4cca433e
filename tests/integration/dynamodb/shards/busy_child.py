"""A client that never rests: it charges, splits, merges and settles, and tells all of it.

It is there to be killed, in the midst of whatever it does.
"""

import json
import random
import sys
from itertools import count, islice

from tests.integration.dynamodb.shards.hand import LIMITS, Hand

SHARE = LIMITS[0].capacity * 1000 // 32
MOST_SHARDS = 32


def tell(*what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def do(hand, what, chance):
    shard = chance.choice(hand.known())
    if what == "charge":
        hand.charge(rpm=chance.randrange(1, 50_000), tpd=chance.randrange(1000))
    elif what == "gather":
        hand.gather(rpm=chance.randrange(SHARE // 4, SHARE // 2), tpd=chance.randrange(10**9))
    elif what == "give_back":
        hand.give_back(shard.number, rpm=chance.randrange(1, 10**6))
    elif what == "owe":
        hand.owe(rpm=chance.randrange(1, 10**6), tpd=1)
    elif what == "split" and shard.n < MOST_SHARDS:
        tell("split", hand.split(shard.number))
    elif what == "merge":
        tell("merge", hand.merge(shard.number))


def main(table, endpoint, seed, doings, times=""):
    hand, chance = Hand(table, endpoint, seed=int(seed), tell=tell), random.Random(int(seed))
    hand.read(0)
    for _ in islice(count(), int(times) if times else None):
        do(hand, chance.choice(doings.split(",")), chance)
    hand.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

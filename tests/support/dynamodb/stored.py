"""Stored bucket items, read with arithmetic of its own.

Levels are computed here once more, from the stored attributes, so that a mistake of the package
is not repeated by the test that is to find it.
"""

EPOCH_MS = 1_577_836_800_000
MILLI = 1000


def number_of(item):
    """The number of its shard; 0 for a bucket of one item."""
    return int(item["PK"]["S"].rpartition("#")[2])


def n_of(item):
    """How many shards of this size make the whole bucket."""
    return int(item.get("n", {"N": "1"})["N"])


def limits_of(item):
    return [name[2:] for name in item if name.startswith("t_")]


def parameters(item, limit):
    """Capacity, refill and period of the whole bucket, in millitokens and milliseconds."""
    capacity, refill, period = item[f"p_{limit}"]["S"].split(":")[:3]
    return MILLI * int(capacity), MILLI * int(refill or capacity), MILLI * int(period)


def share(item, limit):
    """Halved on every level of the tree: below the lower half goes the larger part."""
    number, n, part, size = number_of(item), n_of(item), parameters(item, limit)[0], 1
    while size < n:
        upper = number // size % 2
        part = part // 2 if upper else part - part // 2
        size *= 2
    return part


def accrued(item, limit, now_ms):
    """Millitokens that the shard has got since the epoch."""
    _, refill, period = parameters(item, limit)
    return (now_ms - EPOCH_MS) * refill // (period * n_of(item))


def value_at(item, limit, now_ms):
    """Millitokens that a limit would hold if it had no capacity."""
    return int(item[f"t_{limit}"]["N"]) + accrued(item, limit, now_ms)


def level(item, limit, now_ms):
    return min(share(item, limit), value_at(item, limit, now_ms))


def full_at_ms(item, limit):
    """When nothing is missing in a bucket of one item."""
    capacity, refill, period = parameters(item, limit)
    missing = capacity - int(item[f"t_{limit}"]["N"])
    return EPOCH_MS + -(-missing * period // refill)

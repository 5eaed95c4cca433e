"""The table seen from outside: stored attributes, added up with arithmetic of its own."""

from fractions import Fraction

EPOCH_MS = 1_577_836_800_000


class Accounts:
    """All items of a table with one bucket."""

    def __init__(self, client):
        self._client = client

    def items(self):
        found, start = [], {}
        while True:
            answer = self._client.call("Scan", {"ConsistentRead": True, **start})
            found += answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return {number_of(item): item for item in found}
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def balance(self, limit):
        """The sum over all shards: what a bucket that was never split would have."""
        return sum(int(item[f"t_{limit}"]["N"]) for item in self.items().values())

    def consumed(self, limit):
        return sum(int(item[f"c_{limit}"]["N"]) for item in self.items().values())

    def levels(self, limit, now_ms):
        """Millitokens by shard."""
        return {number: level(item, limit, now_ms) for number, item in self.items().items()}

    def level(self, limit, now_ms):
        return sum(self.levels(limit, now_ms).values())

    def shards(self):
        """The n of each shard; they must be one whole."""
        items = self.items()
        assert sum(Fraction(1, n_of(item)) for item in items.values()) == 1
        for limit in self.limits():
            [capacity] = {whole(item, limit)[0] for item in items.values()}
            assert sum(share(item, limit) for item in items.values()) == capacity
        return {number: n_of(item) for number, item in items.items()}

    def limits(self):
        item = next(iter(self.items().values()))
        return [name[2:] for name in item if name.startswith("t_")]


def number_of(item):
    return int(item["PK"]["S"].rpartition("#")[2])


def n_of(item):
    return int(item["n"]["N"])


def whole(item, limit):
    """Capacity, refill and period of the bucket, in millitokens and milliseconds."""
    return tuple(int(part) * 1000 for part in item[f"p_{limit}"]["S"].split(":"))


def share(item, limit):
    """Halved on every level of the tree: below the lower half goes the larger part."""
    number, n, part, size = number_of(item), n_of(item), whole(item, limit)[0], 1
    while size < n:
        upper = number // size % 2
        part = part // 2 if upper else part - part // 2
        size *= 2
    return part


def level(item, limit, now_ms):
    _, refill, period = whole(item, limit)
    accrued = (now_ms - EPOCH_MS) * refill // (period * n_of(item))
    return min(share(item, limit), int(item[f"t_{limit}"]["N"]) + accrued)

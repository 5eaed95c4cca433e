"""What quotas have left, recomputed from the writes alone."""

from __future__ import annotations

from tests.support.dynamodb.model.expressions import Item
from tests.support.dynamodb.model.ledger import Bucket, Wrong, bucket_of
from tests.support.dynamodb.model.pauses import admitted
from tests.support.dynamodb.model.table import Change

SPAN = 10**22  # a balance is the level less the number of its window times this
FIRST_SHARD = "#0"  # has all of a quota


class QuotaCheck:
    """Follows the quotas of all buckets.

    In the window in which a bucket was made, what is left and what is counted as used add up to
    the amount and its top-ups, after every write: charges, settlements, renewals, and returns of
    expired holds. Later windows, and a bucket that was reset or made again, may count costs of
    calls that began before. No charge leaves less than nothing in any window, and no more is given
    back than is held.
    """

    def __init__(self) -> None:
        self.writes = self.turns = 0
        self._first: dict[tuple[Bucket, str], int] = {}  # the window in which each was made
        self._renewed: set[tuple[str, str]] = set()  # entity and resource

    def renew(self, entity: str, resource: str) -> None:
        """Note that a bucket is reset, or gone: what was used before is forgiven."""
        self._renewed.add((entity, resource))

    def follow(self, changes: list[Change]) -> None:
        for change in changes:
            bucket = bucket_of(change.key)
            if bucket is None or not change.key[0].endswith(FIRST_SHARD):
                continue
            if change.new is None:
                self.renew(*bucket[1:])
                continue
            for name in quotas_of(change.new):
                self._follow(bucket, name, change.old, change.new)

    def _follow(self, bucket: Bucket, name: str, old: Item | None, new: Item) -> None:
        self.writes += 1
        window, place = window_of(new, name), (bucket, name)
        if old is None:
            self._first[place] = window
        elif calendar_of(old, name) != calendar_of(new, name):
            self._first.pop(place, None)
        elif window < window_of(old, name):
            raise Wrong(f"{bucket} {name}: window {window} comes after {window_of(old, name)}")
        else:
            self.turns += window > window_of(old, name)
        left, used, held = level(new, name), int(new[f"c_{name}"]["N"]), held_of(new, name)
        if min(held, default=0) < 0:
            raise Wrong(f"{bucket} {name}: more is given back than is held: {held}")
        if used < sum(held):
            raise Wrong(f"{bucket} {name}: {used} is used, and {sum(held)} of it held")
        takes = old is None or sum(held) > sum(held_of(old, name))
        if takes and left < 0 and admitted(old, new) > 0:
            raise Wrong(f"{bucket} {name}: a charge leaves {left}")
        if bucket[1:] in self._renewed or window != self._first.get(place):
            return
        amount = amount_of(new, name) + topped_up(new, name)
        if left + used != amount:
            raise Wrong(f"{bucket} {name}: {left} is left and {used} used of {amount}")


def quotas_of(item: Item) -> list[str]:
    return [name[2:] for name in item if name.startswith("p_") and item[name]["S"][:2] == "q:"]


def calendar_of(item: Item, name: str) -> str | None:
    """Return the windows of a quota as they are stored; None if the limit is no quota."""
    if name not in quotas_of(item):
        return None
    return str(item[f"p_{name}"]["S"].partition("/")[2].partition(",")[0])


def window_of(item: Item, name: str) -> int:
    return (SPAN // 2 - int(item[f"t_{name}"]["N"])) // SPAN


def level(item: Item, name: str) -> int:
    return int(item[f"t_{name}"]["N"]) + window_of(item, name) * SPAN


def held_of(item: Item, name: str) -> list[int]:
    """Return the amounts that calls hold, for each window and expiry."""
    if name not in quotas_of(item):
        return []
    number = item[f"p_{name}"]["S"].split(":")[1]
    return [
        int(value["N"])
        for each, value in item.items()
        if each[0] == "y" and each[1:].partition("_")[0] == number
    ]


def topped_up(item: Item, name: str) -> int:
    """Return what was added to the running window."""
    attribute = "z" + item[f"p_{name}"]["S"].split(":")[1]
    stored = int(item[attribute]["N"]) if attribute in item else 0
    is_of_window = (SPAN // 2 - stored) // SPAN == window_of(item, name)
    return stored + window_of(item, name) * SPAN if stored and is_of_window else 0


def amount_of(item: Item, name: str) -> int:
    """Return the amount of a quota in thousandths; histories have whole amounts."""
    text = item[f"p_{name}"]["S"].split(":")[2].partition("/")[0]
    thousands = text.endswith("k")
    return int(text.removesuffix("k")) * 1000 * (1000 if thousands else 1)

"""What buckets have really consumed, by the writes that the table has applied; and checks of it.

The ledger knows items by their stored attributes and nothing of the package. It counts each write
for the hour that runs in the item after it, and compares after every write with what is stored:
each hour of an origin (one life of one item) is in the item or in the usage row of its day, once.
The row of a day names its origins: a query looks into the bucket for those that are open, so an
origin may be closed only when the row has all of its hours.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.support.dynamodb.model.expressions import Item
from tests.support.dynamodb.model.table import Change, ModelTable

HOUR_S, DAY_S, DAY = 3600, 86_400, 24
OPEN, CLOSED = "open", "closed"
INDEX_KEYS = ("GSI2PK", "GSI2SK", "GSI4PK")
# The counts of an item in the order of ``Used``: those of the running and of the finished hour.
RUNNING = ("ac", "rj", "rx", "wt", "sh", "rf", "ax")
FINISHED = ("ua", "ur", "ux", "uw", "us", "uf", "ue")
MOST_SHARDS = 8  # of a bucket in a history
Bucket = tuple[str, str, str]  # partition prefix (namespace), entity, resource


class Used(NamedTuple):
    """Usage of one origin in one hour: net and through children by limit, and how acquires ended.

    ``of_children`` are those of the rejected ones that children count, too, ``as_further`` those
    that another resource counts, and ``elsewhere`` the admitted ones that are calls of another
    bucket.
    """

    net: Counter[str]
    through: Counter[str]
    admitted: int
    rejected: int
    of_children: int = 0
    waited: int = 0
    shadowed: int = 0
    as_further: int = 0
    elsewhere: int = 0

    @property
    def ends(self) -> tuple[int, ...]:
        """How acquires ended."""
        return self[2:]

    def plus(self, other: Used) -> Used:
        return Used(
            _added(self.net, other.net),
            _added(self.through, other.through),
            *map(sum, zip(self.ends, other.ends, strict=True)),
        )

    @property
    def shown(self) -> dict[str, Any]:
        """Without zeros, so that equal usage is equal."""
        return {
            "net": {name: each for name, each in self.net.items() if each},
            "through": {name: each for name, each in self.through.items() if each},
            "events": self.ends,
        }


def _added(one: Counter[str], other: Counter[str]) -> Counter[str]:
    total = Counter(one)
    total.update(other)  # keeps what is negative
    return total


NOTHING = Used(Counter(), Counter(), 0, 0)


class Wrong(AssertionError):
    """A stored figure differs from the ledger, or a rule of hours is broken."""


class Ledger:
    """Follows every change of a table. ``retention_s`` is None if usage is not kept."""

    def __init__(self, table: ModelTable, retention_s: float | None) -> None:
        self._table, self._retention_s = table, retention_s
        self.used: defaultdict[Bucket, dict[tuple[int, str], Used]] = defaultdict(dict)
        self.consumed: defaultdict[Bucket, Counter[str]] = defaultdict(Counter)
        self.versions: defaultdict[Bucket, list[tuple[int, tuple[int, str], Used]]] = defaultdict(
            list
        )
        self.writes = 0
        self.turns = 0
        self.stores = 0
        self.clears = 0
        self._origins: dict[str, Bucket] = {}
        self._reached: dict[tuple[Bucket, int, str], int] = {}  # by shard and origin: latest hour
        self._stored: dict[tuple[Bucket, int, str], str] = {}
        table.listeners.append(self.follow)

    def follow(self, changes: list[Change]) -> None:
        """Count what one call has changed, then compare what is stored."""
        touched: set[Bucket] = set()
        for change in changes:
            bucket = bucket_of(change.key)
            if bucket is not None:
                touched.add(bucket)
                self._count(bucket, change)
                continue
            row = row_of(change.key)
            if row is not None:
                touched.add(row.bucket)
                self._follow_row(row, change)
        for bucket in touched:
            self.check(bucket, changes[-1].at_s)

    # --- items of buckets

    def _count(self, bucket: Bucket, change: Change) -> None:
        old, new = change.old, change.new
        self.writes += 1
        if new is None:
            return
        net = _consumed(old, new)
        self.consumed[bucket].update(net)
        if "h" not in new:
            return
        origin, hour = new["o"]["S"], _int(new, "h")
        shard = int(change.key[0].rpartition("#")[2])
        self._check_origin(bucket, change, origin, hour)
        self._reached[bucket, shard, origin] = hour
        stamped = stamp_s(new["op"]["S"]) // HOUR_S
        is_positive = any(amount > 0 for amount in net.values())
        if (
            hour < stamped
            and is_positive
            and not self._was_later_before((bucket, shard, origin), stamped)
        ):
            raise Wrong(f"{bucket}: a charge in hour {stamped} counts for hour {hour}")
        begins = old is None or "h" not in old or _int(old, "h") != hour
        self.turns += begins and old is not None
        before = None if begins else old
        delta = Used(
            net,
            _through(before, new),
            *(_int(new, name) - _int(before, name) for name in RUNNING),
        )
        if old is not None and "ph" in old and "ph" not in new:
            self.clears += 1
        if begins and old is not None and "h" in old and _text(old, "rq") != _text(new, "uq"):
            raise Wrong(f"{bucket}: {old.get('rq')} was asked, the turn says {new.get('uq')}")
        self._book(bucket, (hour, origin), delta)

    def _was_later_before(self, place: tuple[Bucket, int, str], hour: int) -> bool:
        """Whether a client may know an earlier item of this key, in which this hour had begun.

        Then clocks are hours apart, and its charge counts for the hour that runs.
        """
        return any(
            reached >= hour
            for other, reached in self._reached.items()
            if other[:2] == place[:2] and other != place
        )

    def _book(self, bucket: Bucket, place: tuple[int, str], delta: Used) -> None:
        hours = self.used[bucket]
        hours[place] = hours.get(place, NOTHING).plus(delta)
        self.versions[bucket].append((len(self._table.stream), place, hours[place]))

    def _check_origin(self, bucket: Bucket, change: Change, origin: str, hour: int) -> None:
        if change.old is None:
            if origin in self._origins:
                raise Wrong(f"origin {origin} has returned")
            self._origins[origin] = bucket
        elif "o" in change.old and change.old["o"]["S"] != origin:
            raise Wrong(f"{change.old['o']} has become {origin}")
        elif "h" in change.old and hour < _int(change.old, "h"):
            raise Wrong(f"hour {hour} of {origin} comes after {change.old['h']}")
        else:
            self._origins[origin] = bucket

    # --- rows of usage

    def _follow_row(self, row: RowKey, change: Change) -> None:
        old, new = change.old or {}, change.new
        if new is None:
            if not change.by_ttl:
                raise Wrong(f"usage of {row} was deleted")
            return
        self._check_row(row, old, new)
        for hour, origin, text in hours_of(row.day, new):
            before = self._stored.get((row.bucket, hour, origin))
            if before == text:
                continue
            if before is not None:
                raise Wrong(f"{origin} of {row} in {hour} was {before} and becomes {text}")
            self._stored[row.bucket, hour, origin] = text
            self.stores += 1
            if origin not in self._origins:  # a credit to a bucket that is gone
                self._origins[origin] = row.bucket
                used = parsed(text, new)
                self.consumed[row.bucket].update(used.net)
                self._book(row.bucket, (hour, origin), used)

    def _check_row(self, row: RowKey, old: Item, new: Item) -> None:
        """Raise Wrong if a write changes what must stay: keys, names, the end of an origin."""
        for name in INDEX_KEYS:
            if name not in new or old.get(name, new[name]) != new[name]:
                raise Wrong(f"{row}: {name} was {old.get(name)} and becomes {new.get(name)}")
        for name, value in old.items():
            kept = new.get(name)
            if name.startswith("o_") and value["S"] == OPEN and kept == {"S": CLOSED}:
                continue
            if kept != value:
                raise Wrong(f"{row}: {name} was {value} and becomes {kept}")
        if self._retention_s is not None:
            expires_s = (row.day + 1) * DAY_S + self._retention_s
            if _int(new, "ttl") != expires_s:
                raise Wrong(f"{row}: expires at {new.get('ttl')} instead of {expires_s}")

    # --- what is stored

    def check(self, bucket: Bucket, now_s: float) -> None:
        """Raise Wrong unless every hour that is kept is stored exactly as it was consumed."""
        if self._retention_s is None:
            return
        stored = self.stored(bucket)
        ledger = self.used[bucket]
        for place in stored.keys() | ledger.keys():
            if (place[0] // DAY + 1) * DAY_S + self._retention_s <= now_s:
                continue
            one, other = stored.get(place, NOTHING), ledger.get(place, NOTHING)
            if one.shown != other.shown:
                raise Wrong(f"{bucket} {place}: stored {one.shown}, consumed {other.shown}")

    def rows(self, bucket: Bucket) -> list[tuple[RowKey, Item]]:
        """The usage rows of a bucket."""
        partition = f"{bucket[0]}/ENTITY#{bucket[1]}"
        items = self._table.partitions.get(partition, {})
        rows = [(row_of((partition, sk)), item) for sk, item in items.items()]
        return [(row, item) for row, item in rows if row is not None and row.bucket == bucket]

    def stored(self, bucket: Bucket) -> dict[tuple[int, str], Used]:
        """Every hour of every origin, as rows and live items have it."""
        hours: dict[tuple[int, str], Used] = {}
        marked: dict[tuple[int, str], str] = {}
        for row, item in self.rows(bucket):
            for hour, origin, text in hours_of(row.day, item):
                hours[hour, origin] = parsed(text, item)
            marked |= {
                (row.day, name[2:]): value["S"]
                for name, value in item.items()
                if name.startswith("o_")
            }
        for item in self.live(bucket):
            if "h" in item:
                self._add_live(bucket, item, hours, marked)
        return hours

    def _add_live(
        self,
        bucket: Bucket,
        item: Item,
        hours: dict[tuple[int, str], Used],
        marked: dict[tuple[int, str], str],
    ) -> None:
        """Add the hours that an item holds; queries must not overlook them."""
        origin, running = item["o"]["S"], _int(item, "h")
        if (running, origin) in hours:
            raise Wrong(f"{origin} of {bucket} is stored while hour {running} runs")
        if marked.get((running // DAY, origin)) == CLOSED:
            raise Wrong(f"{origin} of {bucket} is closed while hour {running} runs")
        for (hour, of), _ in list(hours.items()):
            is_of_day = of == origin and hour // DAY == running // DAY
            if is_of_day and (running // DAY, origin) not in marked:
                raise Wrong(f"{origin} of {bucket} runs in {running}: its row is not open")
        hours[running, origin] = _running(item)
        if "ph" not in item:
            return
        finished, place = _finished(item), (_int(item, "ph"), origin)
        if place in hours and hours[place].shown != finished.shown:
            raise Wrong(f"{place} of {bucket}: stored {hours[place]}, item {finished}")
        if place not in hours and marked.get((place[0] // DAY, origin)) == CLOSED:
            raise Wrong(f"{place} of {bucket} is closed before it is stored")
        hours[place] = finished

    def live(self, bucket: Bucket) -> list[Item]:
        """The items of a bucket, of all its shards."""
        namespace, entity, resource = bucket
        items = []
        for number in range(MOST_SHARDS):
            item = self._table.item(f"{namespace}/BUCKET#{entity}#{resource}#{number}", "#STATE")
            if item is not None:
                items.append(item)
        return items

    # --- figures for comparison with queries

    def by_hour(self, bucket: Bucket) -> dict[int, Used]:
        hours: dict[int, Used] = {}
        for (hour, _), used in self.used[bucket].items():
            hours[hour] = hours.get(hour, NOTHING).plus(used)
        return hours

    def bounds(self, bucket: Bucket, since: int, length: int = 1) -> dict[int, tuple[Used, Used]]:
        """Least and most that each window can show to a reader that began at a sequence number.

        ``length`` is that of the windows in hours. Each hour shows whole tokens.
        """
        places: dict[tuple[int, str], list[Used]] = {}
        for at, place, used in self.versions[bucket]:
            if at <= since or place not in places:
                places[place] = [used] if at <= since else [NOTHING, used]
            else:
                places[place].append(used)
        bounds: dict[int, tuple[Used, Used]] = {}
        for (hour, _), versions in places.items():
            low, high = bounds.get(hour, (NOTHING, NOTHING))
            bounds[hour] = (low.plus(_extreme(versions, min)), high.plus(_extreme(versions, max)))
        windows: dict[int, tuple[Used, Used]] = {}
        for hour, (least, most) in bounds.items():
            low, high = windows.get(hour - hour % length, (NOTHING, NOTHING))
            windows[hour - hour % length] = (low.plus(_whole(least)), high.plus(most))
        return windows


def _extreme(versions: list[Used], pick: Any) -> Used:
    names = {name for used in versions for name in used.net}
    children = {name for used in versions for name in used.through}
    return Used(
        Counter({name: pick(used.net[name] for used in versions) for name in names}),
        Counter({name: pick(used.through[name] for used in versions) for name in children}),
        *map(pick, zip(*(used.ends for used in versions), strict=True)),
    )


def _whole(used: Used) -> Used:
    """Usage in whole tokens, rounded down."""
    net, through = (
        Counter({name: amount // 1000 * 1000 for name, amount in amounts.items()})
        for amounts in (used.net, used.through)
    )
    return used._replace(net=net, through=through)


# --- stored forms


def bucket_of(key: tuple[str, str]) -> Bucket | None:
    pk, sk = key
    namespace, _, rest = pk.partition("/")
    if not rest.startswith("BUCKET#") or sk != "#STATE":
        return None
    _, entity, resource, _ = rest.split("#")
    return namespace, entity, resource


class RowKey(NamedTuple):
    """What the key of a usage row says; the day counts from 1970."""

    bucket: Bucket
    day: int
    shard: int


def row_of(key: tuple[str, str]) -> RowKey | None:
    pk, sk = key
    namespace, _, rest = pk.partition("/")
    if not rest.startswith("ENTITY#") or not sk.startswith("#USAGE#"):
        return None
    _, _, resource, day, shard = sk.split("#")
    moment = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    bucket = (namespace, rest.partition("#")[2], resource)
    return RowKey(bucket, int(moment.timestamp()) // DAY_S, int(shard))


def hours_of(day: int, item: Item) -> list[tuple[int, str, str]]:
    """The stored hours of a row: hour, origin and text."""
    return [
        (day * DAY + int(name[:2]), name[3:], value["S"])
        for name, value in item.items()
        if name[:2].isdigit()
    ]


def parsed(text: str, row: Item) -> Used:
    """The text of a stored hour; the row has the names of the limits."""
    empty: list[Any] = [0, [], [], 0, 0, 0, {}, 0, 0, 0, None]
    digest, *parts = json.loads(text)
    admitted, nets, throughs, *counts = parts + empty[len(parts) :]
    rejected, of_children, waited, _, *others, _ = counts
    names = json.loads(row[f"n_{digest}"]["S"])
    net = Counter(dict(zip(names, nets, strict=True)))
    through = Counter(dict(zip(names, throughs, strict=True))) if throughs else Counter()
    return Used(net, through, admitted, rejected, of_children, waited, *others)


def plain(name: str) -> str:
    """The name of a limit without the digest that tells apart those of calls."""
    return name.partition("~")[0]


def stamp_s(write_id: str) -> int:
    """When a write was stamped, in seconds."""
    return int(write_id.lstrip("~").partition(".")[0], 16)


def limits_of(item: Item) -> list[str]:
    return [name[2:] for name in item if name.startswith("c_")]


def _int(item: Item | None, name: str) -> int:
    return 0 if item is None or name not in item else int(item[name]["N"])


def _text(item: Item, name: str) -> str:
    return str(item[name]["S"]) if name in item else ""


def _slot(item: Item, limit: str) -> str:
    parts = str(item[f"p_{limit}"]["S"]).split(":")
    return parts[1] if parts[0] == "q" else parts[3]


def _consumed(old: Item | None, new: Item) -> Counter[str]:
    """What a write has consumed: one that drops a limit only moves what was counted before."""
    net: Counter[str] = Counter()
    if old is not None and set(limits_of(old)) - set(limits_of(new)):
        return net
    for limit in limits_of(new):
        net[plain(limit)] += _int(new, f"c_{limit}") - _int(old, f"c_{limit}")
    return net


def _through(old: Item | None, new: Item) -> Counter[str]:
    through: Counter[str] = Counter()
    if old is not None and set(limits_of(old)) - set(limits_of(new)):
        return through
    for limit in limits_of(new):
        name = f"k{_slot(new, limit)}"
        through[plain(limit)] += _int(new, name) - _int(old, name)
    return through


def _running(item: Item) -> Used:
    net: Counter[str] = Counter()
    through: Counter[str] = Counter()
    for limit in limits_of(item):
        slot = _slot(item, limit)
        net[plain(limit)] += _int(item, f"c_{limit}") - _int(item, f"b{slot}")
        through[plain(limit)] += _int(item, f"k{slot}")
    return Used(net, through, *(_int(item, name) for name in RUNNING))


def _finished(item: Item) -> Used:
    net: Counter[str] = Counter()
    through: Counter[str] = Counter()
    for limit in limits_of(item):
        slot = _slot(item, limit)
        net[plain(limit)] += _int(item, f"u{slot}")
        through[plain(limit)] += _int(item, f"v{slot}")
    return Used(net, through, *(_int(item, name) for name in FINISHED))

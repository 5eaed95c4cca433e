"""A bucket whose hours are read from its items and from the usage rows, without the package."""

import json
from collections import Counter
from datetime import UTC, datetime

from tests.integration.dynamodb.sharding import world as sharded
from tests.support.dynamodb.world import API, USER

HOUR_MS = 3_600_000


def number(item, name):
    return int(item.get(name, {"N": "0"})["N"])


class World(sharded.World):
    """Usage by hour, added up from all items and rows of an entity."""

    @property
    def hour(self):
        return self.clock() // HOUR_MS

    @property
    def day(self):
        return self.hour // 24

    def next_hour(self, ms=0):
        """Go to the border, or so far behind it."""
        self.clock.set((self.hour + 1) * HOUR_MS + ms)

    def rows(self, entity_id=USER):
        """By hour, what each origin has stored."""
        hours = {}
        for item in self._row_items(entity_id):
            for name, value in item.items():
                if name[:2].isdigit():
                    hour = _day_of(item) * 24 + int(name[:2])
                    hours.setdefault(hour, {})[name[3:]] = _stored(value["S"], item)
        return hours

    def _row_items(self, entity_id):
        partition = f"{self._repositories[0].namespace_id}/ENTITY#{entity_id}"
        body = {
            "KeyConditionExpression": "PK = :pk AND begins_with(SK, :sk)",
            "ExpressionAttributeValues": {
                ":pk": {"S": partition},
                ":sk": {"S": f"#USAGE#{API}#"},
            },
            "ConsistentRead": True,
        }
        return self._raw.call("Query", body)["Items"]

    def marks(self, entity_id=USER):
        """By day and shard, whether each origin is open."""
        return {
            (_day_of(item), int(item["SK"]["S"].rpartition("#")[2])): {
                name[2:]: value["S"] for name, value in item.items() if name.startswith("o_")
            }
            for item in self._row_items(entity_id)
        }

    def counted(self, limit="rpm", entity_id=USER):
        """Millitokens by hour: stored ones, and what items still hold."""
        return {hour: sums[limit] for hour, sums in self._sums(entity_id).items() if sums[limit]}

    def through(self, limit="rpm", entity_id=USER):
        sums = self._sums(entity_id, part=1)
        return {hour: counts[limit] for hour, counts in sums.items() if counts[limit]}

    def events(self, entity_id=USER, *, rejected=False):
        sums = self._sums(entity_id, part=int(rejected))
        return {hour: counts[""] for hour, counts in sums.items() if counts[""]}

    def _sums(self, entity_id, part=0):
        hours = {}  # (hour, origin) -> amounts: an origin counts an hour once
        for item in self.items(entity_id).values():
            origin, slots = item["o"]["S"], _slots(item)
            hours[number(item, "h"), origin] = {
                **{
                    limit: (
                        number(item, f"c_{limit}") - number(item, f"b{i}"),
                        number(item, f"k{i}"),
                    )
                    for limit, i in slots.items()
                },
                "": _counts(item, "ac", "rj", "rx", "wt", "rq"),
            }
            if "ph" in item:
                hours[number(item, "ph"), origin] = {
                    **{
                        limit: (number(item, f"u{i}"), number(item, f"v{i}"))
                        for limit, i in slots.items()
                        if f"u{i}" in item  # else the limit was added after the hour
                    },
                    "": _counts(item, "ua", "ur", "ux", "uw", "uq"),
                }
        for hour, origins in self.rows(entity_id).items():
            for origin, amounts in origins.items():
                before = hours.setdefault((hour, origin), amounts)
                assert before == amounts, "two values of one hour"
        sums = {}
        for (hour, _), amounts in hours.items():
            for name, pair in amounts.items():
                sums.setdefault(hour, Counter())[name.partition("~")[0]] += pair[part]
        return sums


def _counts(item, *names):
    *numbers, asked = names
    slots = {str(slot): name for name, slot in _slots(item).items()}
    text = item.get(asked, {"S": ""})["S"].partition(";")[0]
    amounts = (part.split("=") for part in text.split(",") if part)
    return (*(number(item, name) for name in numbers), {slots[at]: int(n) for at, n in amounts})


def _slots(item):
    return {
        name[2:]: int(value["S"].split(":")[3])
        for name, value in item.items()
        if name.startswith("p_")
    }


def _day_of(row):
    text = row["SK"]["S"].split("#")[3]
    return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) // 86_400


def _stored(text, row):
    """What a stored hour says: amounts by limit, and under no name how acquires ended."""
    digest, *parts = json.loads(text)
    admitted, net, through, *counts = parts + [0, [], [], 0, 0, 0, {}][len(parts) :]
    names = json.loads(row[f"n_{digest}"]["S"])
    amounts = zip(net, through or [0] * len(net), strict=True)
    return {**dict(zip(names, amounts, strict=True)), "": (admitted, *counts)}

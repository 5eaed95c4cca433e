"""The table: items, indexes, transactions, expiry and a stream of changes."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tests.support.dynamodb.model.expressions import (
    Compiled,
    Invalid,
    Item,
    check_paths,
    condition,
    name_of,
    update,
)
from zae_limiter.dynamodb.table import INDEXES

Key = tuple[str, str]
Body = Mapping[str, Any]
KILOBYTE = 1024
MOST_ACTIONS = 100
TOKEN_S = 600.0  # for so long a transaction that comes again is known
INDEX_OF = {index.name: index for index in INDEXES}


class Refusal(Exception):
    """An answer of DynamoDB's other than success; nothing was written."""

    def __init__(self, code: str, message: str = "", **content: Any) -> None:
        self.code, self.content = code, content
        super().__init__(f"{code}: {message}")


class Change(NamedTuple):
    """One item that was written or removed: a record of the stream."""

    sequence: int
    at_s: float
    key: Key
    old: Item | None
    new: Item | None
    by_ttl: bool = False

    def record(self) -> dict[str, Any]:
        """The record as a stream delivers it to a function."""
        pk, sk = self.key
        images = {"OldImage": self.old, "NewImage": self.new}
        kind = "REMOVE" if self.new is None else "INSERT" if self.old is None else "MODIFY"
        record: dict[str, Any] = {
            "eventID": f"{self.sequence:032x}",
            "eventName": kind,
            "eventSource": "aws:dynamodb",
            "dynamodb": {
                "ApproximateCreationDateTime": int(self.at_s),
                "Keys": {"PK": {"S": pk}, "SK": {"S": sk}},
                "SequenceNumber": f"{self.sequence:021d}",
                "StreamViewType": "NEW_AND_OLD_IMAGES",
                **{name: image for name, image in images.items() if image is not None},
            },
        }
        if self.by_ttl:
            record["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        return record


class ModelTable:
    """Answers the calls that the package makes, one at a time, as DynamoDB would.

    ``lag_s`` is how far an index and an eventually consistent read may be behind. Items are never
    changed in place: an answer may be kept. ``listeners`` hear of the changes
    that one call has made, all at once.
    """

    def __init__(self, name: str = "table", *, lag_s: float = 0.0, seed: int = 0) -> None:
        self.name = name
        self.partitions: dict[str, dict[str, Item]] = {}
        self.stream: list[Change] = []
        self.listeners: list[Callable[[list[Change]], None]] = []
        self.units: Counter[str] = Counter()
        self.is_metered = False
        self.invalid: list[tuple[str, Body, str]] = []  # requests that were refused for good
        self._lag_s = lag_s
        self._chance = random.Random(seed)
        self._indexes: dict[str, dict[str, set[Key]]] = {index.name: {} for index in INDEXES}
        self._indexed: dict[Key, Item] = {}  # items as the indexes have them
        self._lagging: deque[Change] = deque()
        self._before: dict[Key, tuple[float, Item | None]] = {}  # for eventually consistent reads
        self._tokens: dict[str, tuple[float, Any]] = {}
        self._sequence = 0
        self._operations = {
            "UpdateItem": self._update_item,
            "PutItem": self._put_item,
            "DeleteItem": self._delete_item,
            "GetItem": self._get_item,
            "Query": self._query,
            "Scan": self._scan,
            "BatchGetItem": self._batch_get,
            "BatchWriteItem": self._batch_write,
            "TransactWriteItems": self._transact_write,
            "TransactGetItems": self._transact_get,
        }

    def call(self, operation: str, body: Body, now_s: float) -> dict[str, Any]:
        """Answer one request; raises Refusal."""
        seen = len(self.stream)
        try:
            answer = self._operations[operation](body, now_s)
        except Invalid as error:
            self.invalid.append((operation, body, str(error)))
            raise Refusal("ValidationException", str(error)) from None
        self._notify(seen)
        return answer

    def _notify(self, seen: int) -> None:
        changes = self.stream[seen:]
        if changes:
            for listener in self.listeners:
                listener(changes)

    def item(self, pk: str, sk: str) -> Item | None:
        return self.partitions.get(pk, {}).get(sk)

    def items(self) -> Iterable[Item]:
        for partition in self.partitions.values():
            yield from partition.values()

    def expire(self, now_s: float) -> int:
        """Remove what is past its time to live, as DynamoDB does sooner or later."""
        gone = [item for item in self.items() if "ttl" in item and int(item["ttl"]["N"]) < now_s]
        for item in gone:
            self._write(_key(item), item, None, now_s, by_ttl=True)
        self._notify(len(self.stream) - len(gone))
        return len(gone)

    # --- writes

    def _update_item(self, body: Body, now_s: float) -> dict[str, Any]:
        key, old, new = self._updated(body)
        self._meter("UpdateItem", old, new)
        self._write(key, old, new, now_s)
        returned = body.get("ReturnValues", "NONE")
        if returned == "ALL_NEW":
            return {"Attributes": new}
        if old is None or returned not in ("ALL_OLD", "UPDATED_OLD"):
            return {}
        shown = old if returned == "ALL_OLD" else _changed(body, old)
        return {"Attributes": shown} if shown else {}

    def _put_item(self, body: Body, now_s: float) -> dict[str, Any]:
        key, old, new = self._put(body)
        self._meter("PutItem", old, new)
        self._write(key, old, new, now_s)
        return {"Attributes": old} if old and body.get("ReturnValues") == "ALL_OLD" else {}

    def _delete_item(self, body: Body, now_s: float) -> dict[str, Any]:
        key, old, new = self._deleted(body)
        self._meter("DeleteItem", old, new)
        self._write(key, old, new, now_s)
        return {"Attributes": old} if old and body.get("ReturnValues") == "ALL_OLD" else {}

    def _updated(self, body: Body) -> tuple[Key, Item | None, Item]:
        key = _key(body["Key"])
        old = self.item(*key)
        change = update(body["UpdateExpression"]) if "UpdateExpression" in body else None
        self._check(body, old, change)
        names = body.get("ExpressionAttributeNames", {})
        base = dict(body["Key"]) if old is None else old
        new = base
        if change is not None:
            new = change.run(base, names, body.get("ExpressionAttributeValues", {}))
        if _key(new) != key:
            raise Invalid("cannot update a part of the key")
        return key, old, new

    def _put(self, body: Body) -> tuple[Key, Item | None, Item]:
        new = dict(body["Item"])
        old = self.item(*_key(new))
        self._check(body, old, None)
        return _key(new), old, new

    def _deleted(self, body: Body) -> tuple[Key, Item | None, None]:
        key = _key(body["Key"])
        old = self.item(*key)
        self._check(body, old, None)
        return key, old, None

    def _check(self, body: Body, old: Item | None, change: Compiled | None) -> None:
        """Raise unless the condition holds, and every placeholder is used."""
        used = change.placeholders if change is not None else frozenset()
        names = body.get("ExpressionAttributeNames", {})
        values = body.get("ExpressionAttributeValues", {})
        text = body.get("ConditionExpression")
        condition_of = None if text is None else condition(text)
        if condition_of is not None:
            used |= condition_of.placeholders
        if used != names.keys() | values.keys():
            raise Invalid(f"unused or missing: {sorted(used ^ (names.keys() | values.keys()))}")
        if change is not None:
            check_paths(change, names)
        if condition_of is not None and not condition_of.run(old or {}, names, values):
            self._meter("refused", old, old)
            content = {}
            if old is not None and body.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
                content["item"] = old
            raise Refusal("ConditionalCheckFailedException", **content)

    def _write(
        self, key: Key, old: Item | None, new: Item | None, now_s: float, *, by_ttl: bool = False
    ) -> None:
        if new is not None:
            self.partitions.setdefault(key[0], {})[key[1]] = new
        elif old is not None:
            del self.partitions[key[0]][key[1]]
        if old == new:  # makes no record
            return
        self._sequence += 1
        change = Change(self._sequence, now_s, key, old, new, by_ttl)
        self.stream.append(change)
        if self._lag_s:
            self._lagging.append(change)
            self._before[key] = (now_s, old)
        else:
            self._index(change)

    # --- transactions

    def _transact_write(self, body: Body, now_s: float) -> dict[str, Any]:
        token, items = body.get("ClientRequestToken"), body["TransactItems"]
        if token in self._tokens and now_s - self._tokens[token][0] < TOKEN_S:
            if self._tokens[token][1] != items:
                raise Refusal("IdempotentParameterMismatchException")
            return {}
        if not 1 <= len(items) <= MOST_ACTIONS:
            raise Invalid("a transaction has from 1 to 100 actions")
        planned, reasons = [], []
        for action in items:
            ((kind, request),) = action.items()
            try:
                planned.append(self._planned(kind, request))
                reasons.append({"Code": "None"})
            except Refusal as refusal:
                reason = {"Code": "ConditionalCheckFailed", "Message": str(refusal)}
                if "item" in refusal.content:
                    reason["Item"] = refusal.content["item"]
                reasons.append(reason)
            except Invalid as error:
                reasons.append({"Code": "ValidationError", "Message": str(error)})
        if any(reason["Code"] != "None" for reason in reasons):
            raise Refusal("TransactionCanceledException", reasons=reasons)
        keys = [key for key, _, _, _ in planned]
        if len(set(keys)) < len(keys):
            raise Invalid("a transaction cannot name an item twice")
        for key, old, new, is_write in planned:
            self._meter("transaction", old, new, each=2)
            if is_write:
                self._write(key, old, new, now_s)
        if token is not None:
            self._tokens[token] = (now_s, items)
        return {}

    def _planned(self, kind: str, request: Body) -> tuple[Key, Item | None, Item | None, bool]:
        if kind == "Update":
            return (*self._updated(request), True)
        if kind == "Put":
            return (*self._put(request), True)
        if kind == "Delete":
            return (*self._deleted(request), True)
        key, old, _ = self._deleted(request)  # a ConditionCheck
        return key, old, old, False

    def _transact_get(self, body: Body, now_s: float) -> dict[str, Any]:
        items = [self.item(*_key(each["Get"]["Key"])) for each in body["TransactItems"]]
        return {"Responses": [{} if item is None else {"Item": item} for item in items]}

    # --- reads

    def _get_item(self, body: Body, now_s: float) -> dict[str, Any]:
        item = self._read(_key(body["Key"]), now_s, consistent=body.get("ConsistentRead", False))
        return {} if item is None else {"Item": item}

    def _read(self, key: Key, now_s: float, *, consistent: bool) -> Item | None:
        if not consistent and key in self._before:
            since_s, item = self._before[key]
            if now_s - since_s < self._lag_s and self._chance.random() < 0.5:
                return item
        return self.item(*key)

    def _batch_get(self, body: Body, now_s: float) -> dict[str, Any]:
        responses = {}
        for table, request in body["RequestItems"].items():
            consistent = request.get("ConsistentRead", False)
            keys = [_key(each) for each in request["Keys"]]
            if len(set(keys)) < len(keys) or len(keys) > MOST_ACTIONS:
                raise Invalid("a batch has at most 100 different keys")
            items = [self._read(key, now_s, consistent=consistent) for key in keys]
            responses[table] = [item for item in items if item is not None]
        return {"Responses": responses, "UnprocessedKeys": {}}

    def _batch_write(self, body: Body, now_s: float) -> dict[str, Any]:
        for requests in body["RequestItems"].values():
            for request in requests:
                if "DeleteRequest" in request:
                    self._delete_item({"Key": request["DeleteRequest"]["Key"]}, now_s)
                else:
                    self._put_item({"Item": request["PutRequest"]["Item"]}, now_s)
        return {"UnprocessedItems": {}}

    def _scan(self, body: Body, now_s: float) -> dict[str, Any]:
        return {"Items": list(self.items())}

    def _query(self, body: Body, now_s: float) -> dict[str, Any]:
        names = body.get("ExpressionAttributeNames", {})
        values = body.get("ExpressionAttributeValues", {})
        wanted = condition(body["KeyConditionExpression"])
        only = condition(body["FilterExpression"]) if "FilterExpression" in body else None
        used = wanted.placeholders | (only.placeholders if only is not None else frozenset())
        if used != names.keys() | values.keys():
            raise Invalid("unused or missing placeholders")
        index_name = body.get("IndexName")
        rows = self._rows(index_name, _partition(body, names, values), now_s)
        rows = [row for row in rows if wanted.run(row[1], names, values)]
        if not body.get("ScanIndexForward", True):
            rows.reverse()
        rows = _after(
            rows,
            body.get("ExclusiveStartKey"),
            backwards=not body.get("ScanIndexForward", True),
            index_name=index_name,
        )
        limit = body.get("Limit", len(rows))
        page, rest = rows[:limit], rows[limit:]
        answer: dict[str, Any] = {
            "Items": [
                _projected(item, index_name)
                for _, item in page
                if only is None or only.run(item, names, values)
            ]
        }
        if page and (rest or len(page) == body.get("Limit")):
            answer["LastEvaluatedKey"] = _cursor(page[-1][1], index_name)
        return answer

    def _rows(
        self, index_name: str | None, partition: str, now_s: float
    ) -> list[tuple[tuple[str, ...], Item]]:
        """Items of one partition with their sort keys, in order."""
        if index_name is None:
            items = self.partitions.get(partition, {})
            return [((sk,), items[sk]) for sk in sorted(items)]
        self._catch_up(now_s)
        keys = self._indexes[index_name].get(partition, ())
        rows = [(_place(self._indexed[key], index_name), self._indexed[key]) for key in keys]
        return sorted(rows, key=lambda row: row[0])

    # --- indexes

    def _catch_up(self, now_s: float) -> None:
        while self._lagging and self._lagging[0].at_s <= now_s - self._lag_s:
            self._index(self._lagging.popleft())

    def _index(self, change: Change) -> None:
        for index in INDEXES:
            before = _entry(self._indexed.get(change.key), index)
            after = _entry(change.new, index)
            if before != after:
                entries = self._indexes[index.name]
                if before is not None:
                    entries[before].discard(change.key)
                if after is not None:
                    entries.setdefault(after, set()).add(change.key)
        if change.new is None:
            self._indexed.pop(change.key, None)
        else:
            self._indexed[change.key] = change.new

    # --- what it would cost

    def _meter(self, kind: str, old: Item | None, new: Item | None, *, each: int = 1) -> None:
        if not self.is_metered:
            return
        larger = max(_size(old), _size(new))
        units = each * max(1, -(-larger // KILOBYTE))
        if kind != "refused":
            for index in INDEXES:
                units += each * _index_units(old, new, index)
        self.units[kind] += units
        self.units["all"] += units


def _changed(body: Body, item: Item) -> Item:
    """Return those attributes of an item that an update changes."""
    names = body.get("ExpressionAttributeNames", {})
    changed = {name_of(path, names) for path in update(body["UpdateExpression"]).paths}
    return {name: value for name, value in item.items() if name in changed}


def _key(attributes: Body) -> Key:
    return attributes["PK"]["S"], attributes["SK"]["S"]


def _entry(item: Item | None, index: Any) -> str | None:
    """The partition of an index that an item is listed in, if any."""
    if item is None or index.partition not in item:
        return None
    if index.sort is not None and index.sort not in item:
        return None
    return str(item[index.partition]["S"])


def _place(item: Item, index_name: str) -> tuple[str, ...]:
    index = INDEX_OF[index_name]
    sort = "" if index.sort is None else item[index.sort]["S"]
    return (sort, *_key(item))


def _names(index_name: str | None) -> tuple[str, ...]:
    if index_name is None:
        return ("PK", "SK")
    index = INDEX_OF[index_name]
    return ("PK", "SK", index.partition, *(() if index.sort is None else (index.sort,)))


def _cursor(item: Item, index_name: str | None) -> Item:
    return {name: item[name] for name in _names(index_name)}


def _projected(item: Item, index_name: str | None) -> Item:
    if index_name is None or INDEX_OF[index_name].projection == "ALL":
        return item
    return _cursor(item, index_name)


def _after(
    rows: list[tuple[tuple[str, ...], Item]],
    start: Item | None,
    *,
    backwards: bool,
    index_name: str | None,
) -> list[tuple[tuple[str, ...], Item]]:
    if not start:
        return rows
    place = (start["SK"]["S"],) if index_name is None else _place(start, index_name)
    if backwards:
        return [row for row in rows if row[0] < place]
    return [row for row in rows if row[0] > place]


def _partition(body: Body, names: Body, values: Body) -> str:
    """The value of the partition key: the first comparison of a key condition is with it."""
    left, equals, right = body["KeyConditionExpression"].replace("(", " ").split()[:3]
    wanted = "PK" if "IndexName" not in body else INDEX_OF[body["IndexName"]].partition
    if names.get(left, left) != wanted or equals != "=":
        raise Invalid("a query names its partition first")
    return str(values[right.rstrip(")")]["S"])


def _size(item: Item | None) -> int:
    """The size of an item as DynamoDB counts it."""
    if item is None:
        return 0
    total = 0
    for name, value in item.items():
        ((kind, content),) = value.items()
        if kind == "N":
            total += len(name) + (len(content.lstrip("-")) + 1) // 2 + 1 + content.startswith("-")
        else:
            total += len(name) + (1 if kind == "BOOL" else len(content.encode()))
    return total


def _index_units(old: Item | None, new: Item | None, index: Any) -> int:
    """Units for the entries that a write changes: one for each that is put or removed."""
    before, after = _entry(old, index), _entry(new, index)
    if before is None and after is None:
        return 0
    if before is not None and after is not None:
        assert old is not None
        assert new is not None
        if _place(old, index.name) == _place(new, index.name) and before == after:
            return int(index.projection == "ALL" and old != new)
        return 2
    return 1

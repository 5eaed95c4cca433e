"""Planted defects: a table that ignores one guard of the protocol, so that a history must fail.

The engine stays as it is. The table rewrites a request before it answers: it ignores a condition,
replaces a value that should be kept, or loses a part of a transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.support.dynamodb.model.expressions import Item, with_blanks
from tests.support.dynamodb.model.table import Body, Key, ModelTable

DAY_S = 86_400
ALWAYS = "attribute_exists(PK)"
Rewrite = Callable[[str, Body], Body]  # of one write: its kind, and the request
Applies = Callable[[str, Body], bool]
Defect = Callable[[str, Body], Body]  # of one call: its operation, and the request

_COMPARISON = re.compile(r"(#\w+)(?:=|<=|>=|<|>):\w+|attribute_not_exists\((#\w+)\)")
_KEPT = re.compile(r"(#\w+)=if_not_exists\(\1,(:\w+)\)")


class DefectiveTable(ModelTable):
    """A model table with one planted defect."""

    def __init__(self, defect: Defect, **options: Any) -> None:
        super().__init__(**options)
        self._defect = defect

    def call(self, operation: str, body: Body, now_s: float) -> dict[str, Any]:
        return super().call(operation, self._defect(operation, body), now_s)


class StaleRowsTable(ModelTable):
    """Answers with usage rows of a while ago, as if they were read before the buckets."""

    behind_s = 30.0

    def _read(self, key: Key, now_s: float, *, consistent: bool) -> Item | None:
        item = super()._read(key, now_s, consistent=consistent)
        return None if item is None else self._as_of(item, now_s - self.behind_s)

    def _rows(
        self, index_name: str | None, partition: str, now_s: float
    ) -> list[tuple[tuple[str, ...], Item]]:
        rows = super()._rows(index_name, partition, now_s)
        shown = [(place, self._as_of(item, now_s - self.behind_s)) for place, item in rows]
        return [(place, item) for place, item in shown if item is not None]

    def _as_of(self, item: Item, moment_s: float) -> Item | None:
        """Return an item at a moment; bucket items are always up to date."""
        if not item["SK"]["S"].startswith("#USAGE#"):
            return item
        key = (item["PK"]["S"], item["SK"]["S"])
        changes = [each for each in self.stream if each.key == key and each.at_s <= moment_s]
        return changes[-1].new if changes else None


def table_with(defect: Defect) -> Callable[..., ModelTable]:
    """Return a function that makes tables with the defect."""
    return lambda **options: DefectiveTable(defect, **options)


def in_each_write(rewrite: Rewrite) -> Defect:
    """Return a defect that rewrites every write, alone or in a transaction."""

    def defect(operation: str, body: Body) -> Body:
        if operation in ("UpdateItem", "DeleteItem", "PutItem"):
            return rewrite(operation.removesuffix("Item"), body)
        if operation == "TransactWriteItems":
            actions = [
                {kind: rewrite(kind, request) for kind, request in action.items()}
                for action in body["TransactItems"]
            ]
            return {**body, "TransactItems": actions}
        return body

    return defect


def ignored_guard(attribute: str, applies: Applies) -> Defect:
    """Ignore the conditions on an attribute, a pattern, in the writes that ``applies`` selects."""

    def rewrite(kind: str, request: Body) -> Body:
        text = request.get("ConditionExpression")
        if text is None or not applies(kind, request):
            return request
        names = request.get("ExpressionAttributeNames", {})

        def loosened(match: re.Match[str]) -> str:
            name = names[match[1] or match[2]]
            return f"({match[0]} OR {ALWAYS})" if re.fullmatch(attribute, name) else match[0]

        return {**request, "ConditionExpression": _COMPARISON.sub(loosened, text)}

    return in_each_write(rewrite)


def replaced_value(attribute: str, applies: Applies) -> Defect:
    """Replace an attribute that a write sets only where it is missing."""

    def rewrite(kind: str, request: Body) -> Body:
        if kind != "Update" or not applies(kind, request):
            return request
        names = request["ExpressionAttributeNames"]

        def replaced(match: re.Match[str]) -> str:
            is_meant = re.fullmatch(attribute, names[match[1]])
            return f"{match[1]}={match[2]}" if is_meant else match[0]

        return {**request, "UpdateExpression": _KEPT.sub(replaced, request["UpdateExpression"])}

    return in_each_write(rewrite)


# --- kinds of writes


def spelled(request: Body, part: str) -> str:
    """Return an expression of a request with its attribute names in place of placeholders."""
    names = request.get("ExpressionAttributeNames", {})
    expression = with_blanks(request.get(part, ""))
    return re.sub(r"#\w+", lambda match: names[match[0]], expression)


def is_of_bucket(request: Body) -> bool:
    return _sort_key(request) == "#STATE"


def is_of_usage(request: Body) -> bool:
    return _sort_key(request).startswith("#USAGE#")


def is_turn(kind: str, request: Body) -> bool:
    """Whether a write turns a bucket to the next hour."""
    return "ph = h" in spelled(request, "UpdateExpression")


def is_turn_of_no_finished_hour(kind: str, request: Body) -> bool:
    """Whether a write turns a bucket in which its client has seen no finished hour."""
    return is_turn(kind, request) and "ph =" not in spelled(request, "ConditionExpression")


def is_clear(kind: str, request: Body) -> bool:
    """Whether a write clears a finished hour that was stored."""
    return spelled(request, "UpdateExpression").startswith("REMOVE ph")


def is_first_write(kind: str, request: Body) -> bool:
    """Whether a write creates a bucket if it is missing."""
    return "if_not_exists(o," in spelled(request, "UpdateExpression")


def is_drop(kind: str, request: Body) -> bool:
    """Whether a write drops a limit of earlier calls."""
    _, _, removed = spelled(request, "UpdateExpression").partition(" REMOVE ")
    return re.search(r"\bp_", removed) is not None


def is_late_write(kind: str, request: Body) -> bool:
    """Whether a write counts in an hour that others have turned to."""
    return kind == "Update" and is_of_bucket(request) and not is_first_write(kind, request)


def is_store(kind: str, request: Body) -> bool:
    """Whether a write stores hours in a usage row."""
    names = request.get("ExpressionAttributeNames", {}).values()
    return is_of_usage(request) and any(re.fullmatch(r"\d\d_.*", name) for name in names)


def is_announcement(kind: str, request: Body) -> bool:
    """Whether a write announces a day that a bucket counts hours of."""
    return is_of_usage(request) and not is_store(kind, request)


def is_removal(kind: str, request: Body) -> bool:
    """Whether a write removes a bucket that was deleted; a merge requires the limits as well."""
    text = spelled(request, "ConditionExpression")
    return kind == "Delete" and is_of_bucket(request) and "lh =" not in text


def is_merge(kind: str, request: Body) -> bool:
    """Whether a write removes a shard that is merged into its sibling."""
    text = spelled(request, "ConditionExpression")
    return kind == "Delete" and is_of_bucket(request) and "lh =" in text


def _sort_key(request: Body) -> str:
    return str((request.get("Key") or request["Item"])["SK"]["S"])


# --- defects that are no ignored condition


def lost_hours_of_removed_buckets(operation: str, body: Body) -> Body:
    """Delete a bucket without the rows that store its hours."""
    if operation != "TransactWriteItems":
        return body
    actions = body["TransactItems"]
    if not any("Delete" in each and is_of_bucket(each["Delete"]) for each in actions):
        return body
    kept = [each for each in actions if not is_of_usage(next(iter(each.values())))]
    return {**body, "TransactItems": kept}


def lost_rows(operation: str, body: Body) -> Body:
    """Write the row of a finished hour to a place where nothing looks for it."""
    is_row = operation == "UpdateItem" and is_of_usage(body)
    if not is_row or is_announcement("Update", body):
        return body
    return {**body, "Key": {**body["Key"], "PK": {"S": "lost"}}}


def closed_by_every_store(operation: str, body: Body) -> Body:
    """Close an origin although the bucket item counts on in the same day."""

    def rewrite(kind: str, request: Body) -> Body:
        if not is_store(kind, request):
            return request
        values = request["ExpressionAttributeValues"]
        closed = {
            short: {"S": "closed"} if value == {"S": "open"} else value
            for short, value in values.items()
        }
        expression = _KEPT.sub(r"\1=\2", request["UpdateExpression"])
        return {
            **request,
            "UpdateExpression": expression,
            "ExpressionAttributeValues": closed,
        }

    return in_each_write(rewrite)(operation, body)


def lost_attribute(attribute: str, applies: Applies) -> Defect:
    """Write an attribute, a pattern, to a name where nothing looks for it."""

    def rewrite(kind: str, request: Body) -> Body:
        if not applies(kind, request):
            return request
        names = {
            short: f"lost {name}" if re.fullmatch(attribute, name) else name
            for short, name in request["ExpressionAttributeNames"].items()
        }
        return {**request, "ExpressionAttributeNames": names}

    return in_each_write(rewrite)


def lost_pause(operation: str, body: Body) -> Body:
    """Create the second half of a split bucket without its pause."""

    def rewrite(kind: str, request: Body) -> Body:
        if kind != "Put" or not is_of_bucket(request):
            return request
        kept = {name: value for name, value in request["Item"].items() if name != "nb"}
        return {**request, "Item": kept}

    return in_each_write(rewrite)(operation, body)


def early_expiry(days: int) -> Defect:
    """Let buckets expire so many days early, before their usage."""

    def rewrite(kind: str, request: Body) -> Body:
        set_to = re.search(r"\bttl = (:\w+)", spelled(request, "UpdateExpression"))
        if set_to is None or not is_of_bucket(request):
            return request
        values = request["ExpressionAttributeValues"]
        earlier = {"N": str(int(values[set_to[1]]["N"]) - days * DAY_S)}
        return {**request, "ExpressionAttributeValues": {**values, set_to[1]: earlier}}

    return in_each_write(rewrite)


def returning_origins() -> Defect:
    """Give a bucket that is created again the origin of the earlier one."""
    first: dict[str, Any] = {}

    def rewrite(kind: str, request: Body) -> Body:
        if not is_first_write(kind, request):
            return request
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        [placeholder] = [
            match[2]
            for match in _KEPT.finditer(request["UpdateExpression"])
            if names[match[1]] == "o"
        ]
        origin = first.setdefault(request["Key"]["PK"]["S"], values[placeholder])
        return {**request, "ExpressionAttributeValues": {**values, placeholder: origin}}

    return in_each_write(rewrite)

"""Plays a scenario against a store, and tells what its clients sent to it.

A scenario is one caller with a clock that stands still, so the same code sends the same requests.
Only ids are drawn by chance: they are replaced by their number, in the order in which they appear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.support.dynamodb.seen import Exchange
from tests.support.dynamodb.tables import store_url
from tests.support.dynamodb.trees import Awaited
from tests.support.dynamodb.world import Failure, written_later
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.testing import FakeClock

USER, ORG, API, POOL = "user-1", "org-1", "api", "pool"
PATIENT_S = 30  # a busy machine is no outage

# What chance draws, besides the origins of buckets: the id of a write, the token of a transaction,
# the end of an event's id.
_DRAWN = {
    "write": r"\b[0-9a-f]{8}\.[0-9a-f]{8}\b",
    "token": r"\b[0-9a-f]{32}\b",
    "event": r"(?<=-)[0-9a-f]{6}-[0-9a-f]{6}\b",
}


class Play:
    """The store of one scenario: an admin who prepares it, and the client that is looked at."""

    def __init__(self, tree: Any, clock: FakeClock, admin: Any, repo: Any) -> None:
        self.clock, self.admin, self.repo = clock, admin, repo
        self.first = Limit.per_minute("tok", 1)  # the limit that the scenario is about
        self._tree = tree
        self._limiter = tree.limiter(repo)

    async def limits(self, *limits: Limit) -> None:
        """Give every bucket these limits, unseen."""
        self.first = next(limit for limit in limits if limit.name == "tok")
        await self.admin.set_system_defaults(list(limits))

    async def family(self) -> None:
        """Make the user a child that cascades, of a parent that is in use."""
        await self.admin.create_entity(ORG)
        await self.admin.create_entity(USER, parent_id=ORG, cascade=True)
        await self.take(entity=ORG)  # else the resource is registered from two buckets at once

    @asynccontextmanager
    async def call(self, *, entity: str = USER, resource: str = API, **given: Any) -> Any:
        """Make an acquire; keywords that are no options of one are amounts."""
        names = ("limits", "also", "on_error", "mode", "timeout")
        options = {name: given.pop(name) for name in names if name in given}
        async with self._limiter.acquire(entity, resource, given, **options) as lease:
            await self.settled()  # marks of thresholds are written after the answer
            yield lease
        await self.settled()

    async def take(self, **given: Any) -> None:
        async with self.call(**given):
            pass

    async def refused(self, **given: Any) -> None:
        """Make an acquire that must be rejected."""
        try:
            await self.take(**given)
        except RateLimitExceeded:
            await self.settled()
        else:
            raise AssertionError("the call was admitted")

    async def fail(self, **given: Any) -> None:
        """Make an acquire whose block raises."""
        try:
            async with self.call(**given):
                raise Failure
        except Failure:
            await self.settled()

    async def settled(self) -> None:
        """Wait for the writes that no caller waits for."""
        await written_later(self.repo)

    async def another(self) -> Play:
        """Return a second process, which is not looked at and knows nothing of the first."""
        return Play(self._tree, self.clock, self.admin, self.admin)


def part(lease: Any, resource: str) -> Any:
    """Return the lease of a further resource."""
    if isinstance(lease, Awaited):
        return Awaited(lease.blocking.resource(resource))
    return lease.resource(resource)


@asynccontextmanager
async def playing(tree: Any, table: str, endpoint: str, proxy: Any, namespace: str) -> Any:
    """Open the store of a scenario; its client goes through the proxy, its admin past it."""
    clock = FakeClock()
    options = {
        "clock": clock,
        "namespace": namespace,
        "request_timeout": PATIENT_S,
        "rejection_cache_ttl": 2,
    }
    admin = await tree.build(url=store_url(table, endpoint), **options)
    repo = await tree.build(url=store_url(table, proxy.url), **options)
    try:
        yield Play(tree, clock, admin, repo)
    finally:
        await repo.close()
        await admin.close()


def transcript(requests: Sequence[Exchange], table: str, namespace_id: str) -> str:
    """Return the requests of a scenario as text, in the order of each item that they name.

    Requests about different items may overtake each other.
    """
    lines = [_line(each, table, namespace_id) for each in requests]
    lines.sort(key=lambda line: _subject(line[1]))  # stable: the order of arrival stays
    text = "\n".join(f"{operation} {body}" for operation, body in lines)
    origins = {origin for each in requests for origin in _origins(each.body)}
    patterns = {**_DRAWN, "origin": "|".join(map(re.escape, sorted(origins))) or r"(?!)"}
    drawn = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in patterns.items()))
    numbers: dict[str, dict[str, int]] = {kind: {} for kind in patterns}

    def numbered(found: re.Match[str]) -> str:
        of_kind = numbers[str(found.lastgroup)]
        return f"<{found.lastgroup} {of_kind.setdefault(found[0], len(of_kind) + 1)}>"

    return drawn.sub(numbered, text)


def _origins(body: Any) -> Iterator[str]:
    """Find the origins of buckets: what is compared with the attribute ``o``, or becomes it."""
    if isinstance(body, list):
        for each in body:
            yield from _origins(each)
    if not isinstance(body, dict):
        return
    names, values = body.get("ExpressionAttributeNames", {}), body.get("ExpressionAttributeValues")
    places = [place for place, name in names.items() if name == "o"]
    text = f"{body.get('UpdateExpression', '')} {body.get('ConditionExpression', '')}"
    for place in places:
        for value in re.findall(rf"{place}=(?:if_not_exists\({place},)?(:\w+)", text):
            yield values[value]["S"]
    for name in names.values():
        if re.fullmatch(r"o_[\w-]{8}", name):
            yield name[2:]
    if "Item" in body and "o" in body["Item"]:
        yield body["Item"]["o"]["S"]
    for each in body.values():
        yield from _origins(each)


def _line(request: Exchange, table: str, namespace_id: str) -> tuple[str, str]:
    body = json.loads(request.raw_body)
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    text = text.replace(table, "<table>").replace(namespace_id, "<ns>")
    return request.operation.partition(" ")[0], _OF_NAMESPACE.sub("<k>", text)


# The parts of the index of a namespace are chosen by hashes of keys, which begin with its drawn id.
_OF_NAMESPACE = re.compile(r"(?<=<ns>/ALL#)\d+")
_KEY = re.compile(r'"PK":\{"S":"([^"]*)"\},"SK":\{"S":"([^"]*)"')


def _subject(body: str) -> tuple[str, str]:
    """Return the first key that a request names."""
    found = _KEY.search(body)
    return (found[1], found[2]) if found else ("", "")

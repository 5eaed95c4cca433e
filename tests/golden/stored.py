"""Stores of one fixed history, as files, and what is read from them.

``python -m tests.golden.stored`` writes them. A later commit reads them, so that nobody loses what
is stored. With ``ZAEL_STORED=FOLDER`` an earlier commit reads what a later one has written by
``python -m tests.golden.stored FOLDER``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.golden.recording import CREDENTIALS
from tests.support.dynamodb.shared import shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.testing import FakeClock

OWN = Path(__file__).parent / "stores"
SQLITE, ITEMS = "limits.sqlite", "items.json"
END_MS = FakeClock()() + (26 * 3600 + 600) * 1000  # when the history is over
KEY, TEAM, MODEL, POOL = "key-1", "team-1", "gpt-4", "all-models"
AT_ONCE = 25  # items of one BatchWriteItem

DEFAULTS = [
    Limit.per_minute("rpm", 60),
    Limit.per_minute("tpm", 10_000, burst=20_000),
    Limit.concurrent("calls", 5),
    Limit.per_hour("soft", 100, soft=True),
]
MONEY = [
    Limit.budget("usd", "25.50", per="month", zone="America/New_York"),
    Limit.quota("tokens", 1_000_000, per="week", on="mon", at="06:00", thresholds=(50,)),
    Limit.quota("session", 5_000, after_first_use="5h", hold_ttl=None),
]


async def fill(repo: Repository, clock: FakeClock) -> None:
    """Make the history: every kind of limit, switch, change and record."""
    limiter = RateLimiter(repo)
    await repo.set_system_defaults(DEFAULTS, on_unavailable="block")
    await repo.set_resource_defaults(POOL, MONEY)
    await repo.create_entity(TEAM, name="Team")
    await repo.create_entity(KEY, parent_id=TEAM, cascade=True, metadata={"plan": "pro"})
    await repo.set_limits(TEAM, [Limit.per_minute("rpm", 600), *MONEY], MODEL)
    for _ in range(3):
        async with limiter.acquire(KEY, MODEL, {"rpm": 1, "tpm": 500, "calls": 1}) as lease:
            await lease.settle(tpm=812)
        clock.advance(minutes=40)
    also = {POOL: {"usd": "1.25", "tokens": 600_000, "session": 100}}
    async with limiter.acquire(KEY, MODEL, {"rpm": 1}, also=also) as lease:
        await lease.resource(POOL).settle(usd="0.123456789")
    try:
        async with limiter.acquire(KEY, POOL, {"usd": 100}):
            raise AssertionError("the budget admits too much")
    except RateLimitExceeded:
        pass
    clock.advance(hours=20)
    async with limiter.acquire(KEY, MODEL, {"rpm": 1}, limits=[Limit.per_minute("rpm", 5)]):
        await repo.set_mode("embeddings", mode="shadow")
        await repo.set_mode(MODEL, "key-2", "deny", until=clock() / 1000 + 10**7)
    await repo.top_up(KEY, POOL, {"usd": 5}, principal="ops")
    await repo.reset_bucket(KEY, MODEL, principal="ops")
    await repo.pause(TEAM, POOL, 300, principal="ops")
    clock.set(END_MS - 60_000)
    # A process that dies: its holds and slots stay.
    call = limiter.acquire(KEY, POOL, {"usd": 2, "tokens": 10})
    await call.__aenter__()
    clock.set(END_MS)


async def go_on(repo: Repository, clock: FakeClock) -> None:
    """Use a store of the history, as its users would."""
    limiter = RateLimiter(repo)
    for amounts in ({"rpm": 1, "tpm": 5, "calls": 1}, {"soft": 3}, {}):
        async with limiter.acquire(KEY, MODEL, amounts):
            pass
    async with limiter.acquire(KEY, POOL, {"usd": "0.5", "tokens": 5}) as lease:
        await lease.settle(usd="0.25")
    clock.advance(days=40)
    async with limiter.acquire(KEY, POOL, {"usd": "0.5", "session": 5}):
        pass


async def told(repo: Repository, clock: FakeClock) -> dict[str, Any]:
    """Return all that a store tells, in plain values."""
    names = [(KEY, MODEL), (KEY, POOL), (TEAM, MODEL), (TEAM, POOL), ("key-2", MODEL)]
    limiter = RateLimiter(repo)
    found = {
        "system": await repo.get_system_defaults(),
        "entities": [await repo.get_entity(each) for each in (KEY, TEAM)],
        "children": await repo.get_children(TEAM),
        "resources": await repo.list_resources(),
        "buckets": (await repo.list_buckets(100))[0],
        "limits": [await repo.resolve_limits(*each) for each in names],
        "modes": [await repo.resolve_mode(*each) for each in names],
        "available": [await limiter.check_availability(*each) for each in names],
        "usage": [await repo.get_usage_snapshots(each) for each in (KEY, TEAM)],
        "audit": await repo.get_audit_events(limit=100),
    }
    return json.loads(json.dumps(found, default=_plain))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, datetime | Decimal):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return repr(value)


# --- the files


@asynccontextmanager
async def opened(url: str, clock: FakeClock) -> AsyncIterator[Repository]:
    """Open a store, and make its namespace if it is new."""
    builder = Repository.builder().url(url).clock(clock).namespace("golden")
    repo = await builder.register_missing_namespace().build()
    try:
        yield repo
    finally:
        await repo.close()


def load_items(table: str, folder: Path) -> None:
    """Put the kept items into a table."""
    items = json.loads((folder / ITEMS).read_text(encoding="utf-8"))
    with closing(DynamoClient(table, endpoint_url=shared_endpoint(), request_timeout=30)) as client:
        for start in range(0, len(items), AT_ONCE):
            puts = [{"PutRequest": {"Item": item}} for item in items[start : start + AT_ONCE]]
            client.call("BatchWriteItem", {"RequestItems": {table: puts}}, repeatable=True)


def items_of(table: str) -> list[dict[str, Any]]:
    with closing(DynamoClient(table, endpoint_url=shared_endpoint(), request_timeout=30)) as client:
        items = client.call("Scan", {"ConsistentRead": True})["Items"]
    return sorted(items, key=lambda item: (item["PK"]["S"], item["SK"]["S"]))


def read_told(folder: Path, engine: str, moment: str) -> dict[str, Any]:
    """Return what a store told when its files were written."""
    return json.loads((folder / f"{engine}-{moment}.json").read_text(encoding="utf-8"))


async def tell(url: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Tell of a store of the history, before and after further use."""
    clock = FakeClock(END_MS)
    async with opened(url, clock) as repo:
        yield "told", await told(repo, clock)
        await go_on(repo, clock)
    async with opened(url, clock) as repo:  # the usage of the calls is stored
        yield "later", await told(repo, clock)


async def _write(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, SQLITE)
        await _make(f"sqlite:///{file}")
        shutil.copy(file, folder / SQLITE)
        await _note(f"sqlite:///{file}", folder, "sqlite")
    with temporary_table() as table:
        url = store_url(table, shared_endpoint())
        await _make(url)
        _put(folder / ITEMS, items_of(table))
        await _note(url, folder, "dynamodb")


async def _make(url: str) -> None:
    clock = FakeClock()
    async with opened(url, clock) as repo:
        await fill(repo, clock)


async def _note(url: str, folder: Path, engine: str) -> None:
    async for moment, seen in tell(url):
        _put(folder / f"{engine}-{moment}.json", seen)


def _put(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ |= CREDENTIALS
    named = Path(sys.argv[1]) if len(sys.argv) > 1 else OWN
    named.mkdir(parents=True, exist_ok=True)
    asyncio.run(_write(named))

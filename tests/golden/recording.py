"""The kept requests, a file for each script: ``python -m tests.golden.recording [SCRIPT …]``.

Record them again only for a change that is meant to send other requests, in one commit. Its
message lists each kind of difference with its reason.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from tests.golden.player import playing, transcript
from tests.golden.scenarios import Scenario, all_scenarios
from tests.support.dynamodb.proxy import Proxy
from tests.support.dynamodb.shared import shared_endpoint
from tests.support.dynamodb.tables import temporary_table
from tests.support.dynamodb.trees import AsyncTree, SyncTree

TREES = (AsyncTree, SyncTree)
HEADING = "== "
CREDENTIALS = {  # any server for tests takes them
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
FOLDER = Path(__file__).parent / "requests"


async def played(scenario: Scenario, tree: Any, table: str) -> str:
    """Play a scenario in a namespace of its own, and return its requests as text."""
    proxy, namespace = _sorting_proxy(), f"golden-{secrets.token_hex(4)}"
    async with playing(tree, table, shared_endpoint(), proxy, namespace) as play:
        await play.limits(*scenario.limits)
        namespace_id = play.repo.namespace_id
        with proxy.measure() as seen:
            await scenario.script(play)
            await play.repo.close()  # what it has noted is stored
    return transcript(seen.requests, table, namespace_id)


@cache
def _sorting_proxy() -> Proxy:
    """Return a proxy that sorts the attributes of answers: requests name limits in their order."""
    proxy = Proxy(shared_endpoint())
    proxy.link.sorts_answers = True
    atexit.register(proxy.start().stop)
    return proxy


def kept(topic: str) -> dict[str, str]:
    """Return the kept requests of a script, by the kind of limit."""
    found = {}
    for section in _file(topic).read_text(encoding="utf-8").split(HEADING)[1:]:
        kind, _, requests = section.partition("\n")
        found[kind] = requests.strip("\n")
    return found


def topics() -> list[str]:
    """Return the names of the scripts that have kept requests."""
    return sorted(file.stem for file in FOLDER.glob("*.txt"))


def _file(topic: str) -> Path:
    return FOLDER / f"{topic}.txt"


async def _record(only: list[str]) -> int:
    """Keep what the scenarios send now, if both trees send the same twice."""
    wrong, found = 0, defaultdict[str, dict[str, str]](dict)
    with temporary_table(shared_endpoint()) as table:
        for scenario in all_scenarios():
            if only and scenario.topic not in only:
                continue
            try:
                plays = [await played(scenario, tree(), table) for tree in TREES * 2]
            except Exception as error:  # noqa: BLE001 - all scenarios are to be tried
                wrong += 1
                sys.stderr.write(f"{scenario.topic} {scenario.kind}: {error!r}\n")
                continue
            if len(set(plays)) > 1:
                wrong += 1
                sys.stderr.write(f"{scenario.topic} {scenario.kind}: no play is like another\n")
                _show_difference(plays)
            found[scenario.topic][scenario.kind] = plays[0]
    for topic, sections in found.items():
        text = "\n".join(f"{HEADING}{kind}\n{requests}\n" for kind, requests in sections.items())
        _file(topic).write_text(text, encoding="utf-8")
    return wrong


def _show_difference(plays: list[str]) -> None:
    """Show where two plays begin to differ."""
    one, two = plays[0], next(play for play in plays if play != plays[0])
    letters = enumerate(zip(one, two, strict=False))
    same = next((at for at, (first, second) in letters if first != second), 0)
    for play in (one, two):
        sys.stderr.write(f"  {play[max(0, same - 60) : same + 60]!r}\n")


if __name__ == "__main__":
    os.environ |= CREDENTIALS
    FOLDER.mkdir(exist_ok=True)
    sys.exit(min(asyncio.run(_record(sys.argv[1:])), 1))

"""The faults, and what each one does to the processes and the store of a run.

A fault begins after a second of peace, and is over before the last part of the run, so that the
history shows the recovery. Every fault counts how often it has struck.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from errno import ENOSPC
from pathlib import Path
from random import Random

from proof.harness.diary import Diary, now_ns
from proof.harness.plan import (
    DYNAMODB,
    LIMITS_REDIS,
    MEMORY,
    PYRATE_SQLITE,
    REMOVAL,
    SQLITE,
    THROTTLED_REDIS,
)
from proof.harness.processes import Worker
from proof.harness.stores import STACK, Store, can_mount
from tests.support.dynamodb.faults import Kind
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.items.stored.attributes import Item
from zae_limiter.store_errors import ConditionFailed

LATER = "requests twice, a second later"
PEACE_S = 1.0
FROZEN_S = 5.0
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
CLOCK_OFF_S = 1.5
REMOVED_EVERY_S = 0.05
PROCESSES = (SQLITE, DYNAMODB, LIMITS_REDIS, THROTTLED_REDIS, PYRATE_SQLITE)
ALL = (MEMORY, *PROCESSES)
SERVERS = (DYNAMODB, LIMITS_REDIS, THROTTLED_REDIS)
PROXIED = (DYNAMODB,)
FILES = (SQLITE, PYRATE_SQLITE)
# Starts a process of root that obeys the permissions of files, as those of other users do.
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override")


@dataclass(slots=True)
class Scene:
    """What a fault acts on."""

    store: Store
    workers: list[Worker]
    diary: Diary
    chance: Random
    folder: Path
    ends: float  # of the monotonic clock: the fault is over by then
    offsets: list[Path] = field(default_factory=list)

    def sleep(self, seconds: float) -> bool:
        """Sleep, but not beyond the end; False if the end has come."""
        left = self.ends - time.monotonic()
        time.sleep(max(0.0, min(seconds, left)))
        return seconds < left

    def struck(self, name: str, begin: int, firings: int) -> None:
        self.diary.tell("fault", name=name, begin=begin, end=now_ns(), firings=firings)


Strike = Callable[[Scene], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: to whom it can happen, and why not to the others."""

    name: str
    strike: Strike
    subjects: tuple[str, ...]
    elsewhere: str = "does not apply"
    has_offsets: bool = False
    is_promised: bool = True  # otherwise the figures are stated, and no promise is broken
    obeys_permissions: bool = False  # processes of root do not, unless they give up that right
    needs: Callable[[], str | None] = lambda: None  # why it cannot be made on this machine

    def environment(self, offsets: Path) -> Mapping[str, str]:
        """Return the variables of a process whose clock follows the offset in a file."""
        if not self.has_offsets:
            return {}
        return {
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": str(offsets),
            "FAKETIME_CACHE_DURATION": "1",
            # The time since boot is no host's to change; nor is the clock of the diaries.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def prefix(self) -> tuple[str, ...]:
        """The command that starts a process with the rights that the fault needs."""
        return UNPRIVILEGED if self.obeys_permissions and os.geteuid() == 0 else ()


def _nothing(scene: Scene) -> None:
    scene.sleep(10**6)


def _kill(scene: Scene) -> None:
    while scene.sleep(scene.chance.uniform(0.1, 0.6)):
        worker, begin = scene.chance.choice(scene.workers), now_ns()
        worker.kill()
        worker.begin_again()
        scene.struck("kill", begin, 1)


def _freeze(scene: Scene) -> None:
    worker, begin = scene.chance.choice(scene.workers), now_ns()
    worker.freeze()
    try:
        scene.sleep(FROZEN_S)
    finally:
        worker.thaw()
    scene.struck("freeze", begin, 1)


def _restart(scene: Scene) -> None:
    assert scene.store.server is not None
    while scene.sleep(scene.chance.uniform(0.1, 0.8)):
        begin = now_ns()
        scene.store.server.kill()
        time.sleep(scene.chance.uniform(0, 0.3))
        scene.store.server.restart()
        scene.struck("restart", begin, 1)


def _remove_expired(scene: Scene) -> None:
    """Remove expired buckets as DynamoDB does, but at once instead of within days."""
    assert scene.store.server is not None
    client = DynamoClient(STACK, endpoint_url=scene.store.server.url, request_timeout=20)
    try:
        while scene.sleep(REMOVED_EVERY_S):
            begin, now_s = now_ns(), str(int(time.time()))
            removed = sum(_removed(client, item, now_s) for item in _expired(client, now_s))
            if removed:
                scene.struck("removal", begin, removed)
    finally:
        client.close()


def _expired(client: DynamoClient, now_s: str) -> list[Item]:
    """Return the keys of all expired items."""
    body = {
        "FilterExpression": "#ttl < :now",
        "ProjectionExpression": "PK, SK",
        "ExpressionAttributeNames": {"#ttl": "ttl"},
        "ExpressionAttributeValues": {":now": {"N": now_s}},
        "ConsistentRead": True,
    }
    items: list[Item] = []
    while True:
        page = client.call("Scan", body)
        items += page["Items"]
        if "LastEvaluatedKey" not in page:
            return items
        body["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def _removed(client: DynamoClient, key: Item, now_s: str) -> bool:
    """Remove an item if it is still expired."""
    body = {
        "Key": key,
        "ConditionExpression": "#ttl < :now",
        "ExpressionAttributeNames": {"#ttl": "ttl"},
        "ExpressionAttributeValues": {":now": {"N": now_s}},
    }
    try:
        client.call("DeleteItem", body)
    except ConditionFailed:  # it was used meanwhile
        return False
    return True


def _on_the_way(
    kind: Kind,
    part: float = 0.1,
    lasts_s: float = 0.8,
    *,
    only_first: bool = False,
    delay_ms: float = 0,
) -> Strike:
    """Return a fault that befalls a part of the requests, in bursts."""

    def strike(scene: Scene) -> None:
        proxies = scene.store.proxies[:1] if only_first else scene.store.proxies
        while scene.sleep(scene.chance.uniform(0.1, 0.5)):
            begin = now_ns()
            faults = [
                each.fault(kind, when=lambda _: scene.chance.random() < part, delay_ms=delay_ms)
                for each in proxies
            ]
            try:
                scene.sleep(lasts_s)
            finally:
                for each in faults:
                    each.remove()
            scene.struck(kind, begin, sum(each.used for each in faults))

    return strike


def _drip(scene: Scene) -> None:
    while scene.sleep(scene.chance.uniform(0.1, 0.5)):
        begin = now_ns()
        for proxy in scene.store.proxies:
            proxy.link.drip_ms = 40
        with scene.store.proxies[1].measure() as seen:
            scene.sleep(1.5)
        for proxy in scene.store.proxies:
            proxy.link.drip_ms = 0
        scene.struck("drip", begin, seen.calls)


def _jump(scene: Scene) -> None:
    """Set the clocks of hosts, again and again."""
    begin, firings = now_ns(), 0
    while scene.sleep(scene.chance.uniform(0.5, 1.5)):
        offsets = scene.chance.choice(scene.offsets)
        set_offset(offsets, scene.chance.uniform(-CLOCK_OFF_S, CLOCK_OFF_S))
        firings += 1
    scene.struck("jump", begin, firings)


def set_offset(path: Path, seconds: float) -> None:
    path.write_text(f"{seconds:+.3f}s")


def _fill_disk(scene: Scene) -> None:
    assert scene.store.disk is not None
    while scene.sleep(scene.chance.uniform(0.1, 0.5)):
        begin, ballast = now_ns(), scene.store.disk / "ballast"
        firings = _write_until_full(ballast)
        scene.sleep(0.8)
        firings += _write_until_full(ballast)  # room that a checkpoint has made
        scene.sleep(0.4)
        ballast.unlink()
        scene.struck("full", begin, firings)


def _write_until_full(path: Path) -> int:
    """Take all space; 1 if there is none left."""
    for size in (2**20, 2**12, 1):
        try:
            with path.open("ab", buffering=0) as file:
                while True:
                    file.write(b"\0" * size)
        except OSError as error:
            if error.errno != ENOSPC:
                raise
    return 1


def _protect(scene: Scene) -> None:
    """Make the file read-only; a process that begins meanwhile cannot write to it.

    Processes that have the file open go on: permissions are looked at when a file is opened.
    """
    assert scene.store.disk is not None
    disk = scene.store.disk
    while scene.sleep(scene.chance.uniform(0.1, 0.5)):
        worker, begin = scene.chance.choice(scene.workers), now_ns()
        worker.kill()
        _set_modes(disk, folder=0o555, file=0o444)
        try:
            was_refused = worker.begin_refused()
            scene.sleep(0.8)
        finally:
            _set_modes(disk, folder=0o755, file=0o644)
        if was_refused:
            worker.ready()
            worker.go()
        scene.struck("read-only", begin, int(was_refused))


def _set_modes(disk: Path, *, folder: int, file: int) -> None:
    disk.chmod(folder)
    for path in disk.iterdir():
        if path.suffix == ".lock":  # of another limiter, which opens it for every call
            continue
        with suppress(FileNotFoundError):  # SQLite removes files of its own
            path.chmod(file)


def _both(first: Strike, second: Strike) -> Strike:
    """Return two faults at once: the second one in a thread of its own."""

    def strike(scene: Scene) -> None:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(second, scene)
            first(scene)
            other.result()

    return strike


def _no_faketime() -> str | None:
    if Path(FAKETIME).exists():
        return None
    return "libfaketime is not installed: apt-get install libfaketime"


def _no_mount() -> str | None:
    return None if can_mount() else "only root can mount a small file system"


def _no_setpriv() -> str | None:
    if os.geteuid() != 0 or shutil.which(UNPRIVILEGED[0]):
        return None
    return "root obeys no permissions, and setpriv is not installed: apt-get install util-linux"


_LOSE = _on_the_way("lose_answer")
FAULTS = {
    each.name: each
    for each in (
        Fault("none", _nothing, ALL),
        Fault("kill -9 of clients", _kill, PROCESSES, "the state is in the client"),
        Fault("SIGSTOP of a client", _freeze, ALL),
        Fault(
            "clocks",
            _jump,
            tuple(subject for subject in ALL if subject != PYRATE_SQLITE),
            "needs time.sleep, which fails under libfaketime",
            has_offsets=True,
            needs=_no_faketime,
        ),
        Fault("kill -9 of the store", _restart, SERVERS, "has no server"),
        Fault(REMOVAL, _remove_expired, PROXIED, "removes expired buckets itself"),
        Fault("lost answers", _LOSE, PROXIED, "is not reached by HTTP"),
        Fault("requests twice", _on_the_way("doubled"), PROXIED, "is not reached by HTTP"),
        Fault(
            LATER,
            _on_the_way("again", delay_ms=1000),
            PROXIED,
            "is not reached by HTTP",
            is_promised=False,
        ),
        Fault("throttling", _on_the_way("throttle", 0.5), PROXIED, "is not throttled"),
        Fault("5xx before", _on_the_way("error_before", 0.3), PROXIED, "is not reached by HTTP"),
        Fault("5xx after", _on_the_way("error_after", 0.2), PROXIED, "is not reached by HTTP"),
        Fault("slow drip", _drip, PROXIED, "is not reached by HTTP"),
        Fault("black hole", _on_the_way("black_hole", 1, 1.2), PROXIED, "is not reached by HTTP"),
        Fault(
            "partition of a client",
            _on_the_way("black_hole", 1, 2.5, only_first=True),
            PROXIED,
            "is not reached by HTTP",
        ),
        Fault("full disk", _fill_disk, FILES, "has no file", needs=_no_mount),
        Fault(
            "read-only file",
            _protect,
            FILES,
            "has no file",
            obeys_permissions=True,
            needs=_no_setpriv,
        ),
        Fault(
            "full disk and kill -9", _both(_fill_disk, _kill), FILES, "has no file", needs=_no_mount
        ),
        Fault("lost answers and kill -9", _both(_LOSE, _kill), PROXIED, "is not reached by HTTP"),
    )
}

"""The stores of the subjects: a file, a server with a proxy before it, or nothing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from proof.harness.plan import DYNAMODB, LIMITS_REDIS, MEMORY, THROTTLED_REDIS, Plan
from tests.support.dynamodb import DynamoServer, Proxy
from tests.support.dynamodb.tables import store_url
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table

STACK = "proof-of-limits"
HOST = "127.0.0.1"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
    "AWS_DEFAULT_REGION": "us-east-1",
}
DISK_BYTES = 16 * 2**20


class RedisServer:
    """A Redis that writes every change to its file at once, so that it survives a kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self.restart()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        options = f"--bind {HOST} --port {self.port} --save  --appendonly yes --appendfsync always"
        self._process = subprocess.Popen(
            ["redis-server", *options.split(" "), "--dir", str(self._folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        give_up_at = time.monotonic() + 20
        while time.monotonic() < give_up_at:
            with socket.socket() as probe:
                if probe.connect_ex((HOST, self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError("redis-server did not start")


@dataclass(slots=True)
class Store:
    """Where a subject keeps its state; ``proxies`` are the ways there, of process 0 and others."""

    url: str
    other_url: str = ""
    server: DynamoServer | RedisServer | None = None
    proxies: tuple[Proxy, ...] = ()
    disk: Path | None = None


@contextmanager
def open_store(plan: Plan, folder: Path) -> Iterator[Store]:
    """Open the store of a plan's subject; it is gone after the block."""
    with ExitStack() as stack:
        if plan.subject == MEMORY:
            yield Store("memory://proof")
        elif plan.subject == DYNAMODB:
            yield _dynamodb(stack, folder)
        elif plan.subject in (LIMITS_REDIS, THROTTLED_REDIS):
            redis = RedisServer(folder)
            stack.callback(redis.kill)
            yield Store(redis.url, server=redis)
        else:
            disk = folder / "disk"
            disk.mkdir()
            if plan.fault.startswith("full disk"):
                _mount(stack, disk)
            yield Store(f"sqlite:///{disk}/limits.db", disk=disk)


def _dynamodb(stack: ExitStack, folder: Path) -> Store:
    os.environ.update(CREDENTIALS)
    server = stack.enter_context(DynamoServer(folder / "table.db"))
    first = stack.enter_context(Proxy(server.url))
    others = stack.enter_context(Proxy(server.url))
    client = DynamoClient(STACK, endpoint_url=server.url, request_timeout=20)
    make_table(client, stream=False)
    client.close()
    return Store(store_url(STACK, others.url), store_url(STACK, first.url), server, (first, others))


def can_mount() -> bool:
    """Return whether a small file system can be made here: as root, on Linux."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


def _mount(stack: ExitStack, disk: Path) -> None:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], check=True
    )
    stack.callback(subprocess.run, ["umount", "-l", str(disk)], check=False)

"""A Redis of its own on a private port, in memory, for the limiters that need one."""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import time
from functools import cache

from benchmarks import cores

HOST = "127.0.0.1"
STARTED_WITHIN_S = 10.0
PAUSE_S = 0.02
BINARY = "redis-server"
MISSING = (
    f"{BINARY} is not installed, so the limiters on Redis do not take part: "
    "apt-get install redis-server (its service need not run)"
)


def is_installed() -> bool:
    return shutil.which(BINARY) is not None


@cache
def redis_url() -> str:
    """Started when first asked for; ends with this process."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    options = {
        "--bind": HOST,
        "--port": str(port),
        "--save": "",
        "--appendonly": "no",
        "--daemonize": "no",
    }
    with cores.of_servers():
        process = subprocess.Popen(
            [BINARY, *(part for option in options.items() for part in option)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(_end, process)
    _wait(port, process)
    return f"redis://{HOST}:{port}"


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < give_up_at and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(PAUSE_S)
    raise SystemExit(f"{BINARY} did not start on port {port}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()

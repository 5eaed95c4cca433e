"""Several workers: processes that share one listening socket, started again when they die."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from zae_limiter_service.worker import CLOSING_S, WorkerPlace, settings_text

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from zae_limiter_service.settings import ServiceSettings

LOOK_S = 0.2  # between two looks at the workers
RESTART_S = 1.0  # a worker that dies at once is not started again sooner
_logger = logging.getLogger(__name__)


class Supervisor:
    """Runs workers until SIGTERM or SIGINT, and waits for their ends."""

    def __init__(self, settings: ServiceSettings, host: str, listener: socket.socket) -> None:
        self._settings, self._host, self._listener = settings, host, listener
        self._workers: dict[int, subprocess.Popen[str]] = {}
        self._started_at: dict[int, float] = {}
        self._stopping = threading.Event()

    def run(self) -> None:
        """Serve until a signal comes."""
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._on_signal)
        # Only the user of the service can enter the folder.
        with tempfile.TemporaryDirectory(prefix="zae-limiter-") as folder:
            try:
                for number in range(self._settings.workers):
                    self._start(number, Path(folder))
                while not self._stopping.wait(LOOK_S):
                    self._restart_dead(Path(folder))
            finally:
                self._stop()

    def _start(self, number: int, folder: Path) -> None:
        place = WorkerPlace(self._host, number, folder)
        descriptor = self._listener.fileno()
        worker = subprocess.Popen(
            [sys.executable, "-m", "zae_limiter_service.worker", str(descriptor)],
            stdin=subprocess.PIPE,
            pass_fds=[descriptor],
            text=True,
            start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
        )
        assert worker.stdin is not None
        worker.stdin.write(settings_text(self._settings, place) + "\n")
        worker.stdin.flush()
        self._workers[number], self._started_at[number] = worker, time.monotonic()

    def _restart_dead(self, folder: Path) -> None:
        for number, worker in list(self._workers.items()):
            if worker.poll() is None or time.monotonic() - self._started_at[number] < RESTART_S:
                continue
            _logger.error("worker %d ended with %s and is started again", number, worker.returncode)
            self._start(number, folder)

    def _stop(self) -> None:
        """Let all workers drain at the same time; kill those that take too long."""
        for worker in self._workers.values():
            worker.terminate()
        ends_at = time.monotonic() + self._settings.drain_s + 3 * CLOSING_S
        for worker in self._workers.values():
            try:
                worker.wait(max(0.1, ends_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping.set()

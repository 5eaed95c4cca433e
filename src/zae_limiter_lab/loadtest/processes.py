"""A load test on this machine: a Locust master and workers, each a process of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from zae_limiter_lab.loadtest import LoadPlan, LoadTestError

NODES = "zae_limiter_lab.loadtest.nodes"
LOOK_EVERY_S = 0.1  # for workers that have ended
ENDED_WITHIN_S = 20.0  # after the end of the test; then processes are killed
MAX_LOG = 2000  # characters of a log that an error may quote
DEBUG_VARIABLE = "ZAEL_DEBUG"

OnMessage = Callable[[dict[str, Any]], None]
MessageQueue = queue.SimpleQueue[dict[str, Any] | None]  # None is the end of the process


@dataclass(slots=True)
class Outcome:
    """How a local load test has ended. ``report`` is None if the master could not make one."""

    report: dict[str, Any] | None = None
    interrupted: bool = False
    lost_workers: list[str] = field(default_factory=list)


class LocalLoadTest:
    """Runs one plan. Processes end with the block, and also when this process is killed."""

    def __init__(
        self, plan: LoadPlan, on_message: OnMessage, environment: dict[str, str] | None = None
    ) -> None:
        self._plan = plan
        self._on_message = on_message
        self._environment = environment or {}
        self._messages: MessageQueue = queue.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="zael-loadtest-")
        self._master: NodeProcess | None = None
        self._workers: list[NodeProcess] = []
        self._interrupts = 0
        self._is_stopping = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for node in self._nodes:
            node.kill()
        self._folder.cleanup()

    def run(self) -> Outcome:
        """Run to the end. The first Ctrl-C ends the test early, a second one at once."""
        outcome = Outcome()
        self._master = self._start("master")
        self._messages = self._master.queue_messages()
        while True:
            try:
                if self._step(outcome):
                    return outcome
            except KeyboardInterrupt:
                self._interrupts += 1
                outcome.interrupted = True
                if self._interrupts > 1:
                    return outcome
                self._master.stop()

    @property
    def _nodes(self) -> list[NodeProcess]:
        return [*self._workers, *([self._master] if self._master else [])]

    def _step(self, outcome: Outcome) -> bool:
        """Handle one message; True if the master has ended."""
        try:
            message = self._messages.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            self._look(outcome)
            return False
        if message is None:
            self._wait(outcome)
            return True
        if message["event"] == "error":
            raise LoadTestError(str(message["text"]))
        if message["event"] == "listening":
            for number in range(self._plan.workers):
                self._workers.append(self._start("worker", str(message["port"]), number=number))
        elif message["event"] == "stopping":
            self._is_stopping = True
        elif message["event"] == "done":
            outcome.report = message["report"]
        self._on_message(message)
        return False

    def _look(self, outcome: Outcome) -> None:
        """Note workers that have ended before the test did."""
        for node in self._workers:
            if node.process.poll() is not None and not (node.noted or self._is_stopping):
                node.noted = True
                text = f"worker {node.number + 1} of {self._plan.workers} {node.end()}"
                outcome.lost_workers.append(text)
                self._on_message({"event": "lost", "text": text})
        has_lost_all = self._workers and all(node.noted for node in self._workers)
        if has_lost_all and self._master is not None:
            self._master.stop()

    def _wait(self, outcome: Outcome) -> None:
        """Wait for the processes; raises if the master ended without a report."""
        until = time.monotonic() + ENDED_WITHIN_S
        for node in self._nodes:
            node.wait(until)
        master = self._master
        if outcome.report is None and not outcome.interrupted and master is not None:
            raise LoadTestError(f"the Locust master {master.end()}")

    def _start(self, *arguments: str, number: int = 0) -> NodeProcess:
        log = Path(self._folder.name) / f"{arguments[0]}-{number}.log"
        return NodeProcess(self._plan, arguments, log, self._environment, number)


def _python() -> list[str]:
    """Return an interpreter that does not take a ``locust.py`` of this folder for Locust.

    On AWS the package itself is in this folder, and is found nowhere else.
    """
    is_package_here = Path(__file__).parents[2] == Path.cwd()
    return [sys.executable] if is_package_here else [sys.executable, "-P"]


class NodeProcess:
    """A process that runs ``nodes`` in a session of its own: Ctrl-C reaches this process alone."""

    def __init__(
        self,
        plan: LoadPlan,
        arguments: tuple[str, ...],
        log: Path,
        environment: dict[str, str] | None = None,
        number: int = 0,
    ) -> None:
        self.number = number
        self.noted = False
        self._log = log
        debug = os.environ.get(DEBUG_VARIABLE) == "1"
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*_python(), "-m", NODES, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if debug else stderr,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self.stdin.write(plan.as_json().encode() + b"\n")
        self.stdin.flush()

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def messages(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def queue_messages(self) -> MessageQueue:
        """Return a queue that a thread fills with the messages of the process."""
        waiting: MessageQueue = queue.SimpleQueue()

        def read() -> None:
            for line in self.messages:
                waiting.put(json.loads(line))
            waiting.put(None)

        threading.Thread(target=read, daemon=True).start()
        return waiting

    def stop(self) -> None:
        """Ask the process to end: it sees the end of its stdin."""
        self.stdin.close()

    def wait(self, until: float) -> None:
        self.stop()
        try:
            self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the process whatever it does; may be called twice."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.stop()
        self.messages.close()

    def end(self) -> str:
        """Return how the process has ended, with the last line of its log."""
        code = self.process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        try:
            lines = self._log.read_text(errors="replace")[-MAX_LOG:].strip().splitlines()
        except OSError:
            lines = []
        return f"{how}: {lines[-1].strip()}" if lines else how

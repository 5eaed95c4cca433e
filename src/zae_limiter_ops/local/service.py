"""Start, describe and stop the local server of this user; commands may run at the same time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from zae_limiter.shell_words import command_line
from zae_limiter_ops.local import (
    PORT,
    LocalServerError,
    PortTakenError,
    installs,
    private_folder,
    processes,
    refuse_windows,
    server_url,
    state_folder,
)
from zae_limiter_ops.local.launch import launch_detached, listens
from zae_limiter_ops.local.programs import (
    DynoxideProgram,
    MinistackProgram,
    ServerProgram,
)
from zae_limiter_ops.local.records import RecordFile, ServerRecord, locked
from zae_limiter_ops.local.status import ServerStatus, answer_ms

ENGINES = ("dynoxide", "ministack")
DEFAULT_ENGINE = "dynoxide"
ANSWERS_WITHIN_S = 10.0  # the time that ``up`` waits for a server that already runs
FREED_WITHIN_S = 2.0  # the time in which the port of a killed server becomes free
PAUSE_S = 0.05


class WantedServer(NamedTuple):
    """The options of ``up``; None means any value."""

    engine: str | None = None
    port: int | None = None


class LocalService:
    """The one server of a user, with its data and log in the user's state folder.

    ``report`` is called with a line about each slow step, such as fetching a server.
    """

    def __init__(self, report: Callable[[str], None] = lambda text: None) -> None:
        refuse_windows()
        self.folder = state_folder()
        self.log = self.folder / "server.log"
        self._report = report
        self._records = RecordFile(self.folder / "server.json")

    # --- up

    def up(self, wanted: WantedServer) -> tuple[ServerRecord, bool]:
        """Start the server unless it runs; return its record and whether it was started now.

        A server that has ended by itself is started again with the same options, unless others are
        wanted. Raises if a server with other options runs, or if the port is taken.
        """
        with self._locked():
            record = self._records.read()
            if record is not None and self.is_running(record):
                _refuse_other(record, wanted)
                if self._answers(record):
                    return record, False
            if record is not None:
                self._clean_up(record)
            engine, port = _choose_options(wanted, record)
            if record is not None and record.port == port:
                _wait_until_freed(port)
            started = self._start(engine, port)
            # The data still contains the limiters of the earlier server.
            if record is not None and record.data is not None and record.data == started.data:
                started = started._replace(stacks=record.stacks)
            self._records.write(started)
            return started, True

    def _answers(self, record: ServerRecord) -> bool:
        """Wait until the server answers; return False if it ends instead."""
        give_up_at = time.monotonic() + ANSWERS_WITHIN_S
        while answer_ms(record.port, record.health_path) is None:
            if not self.is_running(record):
                return False
            if time.monotonic() > give_up_at:
                raise LocalServerError(
                    f"{record.engine} runs, but does not answer at {server_url(record.port)}; "
                    "read its log: zae-limiter local logs; then stop it: zae-limiter local down"
                )
            time.sleep(PAUSE_S)
        return True

    def _start(self, engine: str, port: int) -> ServerRecord:
        if listens(port):
            raise PortTakenError(_port_taken(port))
        try:
            return self._start_process(engine, port)
        except PortTakenError:  # another program has taken the port in the meantime
            raise PortTakenError(_port_taken(port)) from None

    def _start_process(self, engine: str, port: int) -> ServerRecord:
        program, data = self._program(engine)
        version = program.version()
        pid = launch_detached(program, port, self.log)
        token = processes.start_token(pid)
        if token is None:
            raise LocalServerError(
                f"{engine} ended right after its start; its log {self.log} has the reason"
            )
        return ServerRecord(
            engine=engine,
            version=version,
            port=port,
            started_at_ms=_now_ms(),
            health_path=program.health_path,
            has_stacks=program.has_stacks,
            pid=pid,
            token=token,
            data=data,
        )

    def _program(self, engine: str) -> tuple[ServerProgram, str | None]:
        """Install the program if it is missing; return it, and the file of its data or None."""
        folder = private_folder(self.folder / engine)
        if engine == "ministack":
            return MinistackProgram(installs.install_ministack(self._report), folder), None
        file = folder / "tables.db"
        return DynoxideProgram(installs.install_dynoxide(self._report), file), str(file)

    def note_stack(self, name: str) -> None:
        """Record that a limiter was provisioned; ``env`` names the latest one."""
        with self._locked():
            record = self._records.read()
            if record is not None:
                self._records.write(record.with_stack(name))

    # --- down

    def down(self) -> tuple[ServerRecord | None, bool]:
        """Stop the server; return its record, and whether the server was running."""
        with self._locked():
            record = self._records.read()
            if record is None or not record.was_left_running:
                return None, False
            was_running = self.is_running(record)
            if was_running and record.pid is not None and record.token is not None:
                processes.end(record.pid, record.token)
            self._clean_up(record)
            if record.data is not None:  # the next server needs the names of the limiters in it
                self._records.write(record._replace(pid=None, token=None))
            else:
                self._records.remove()
            return record, was_running

    def delete_data(self) -> list[str]:
        """Delete the data of stopped servers; return the deleted folders."""
        with self._locked():
            record = self._records.read()
            if record is not None and self.is_running(record):
                raise LocalServerError("the server was started again; stop it first")
            folders = [self.folder / engine for engine in ENGINES]
            existing = [folder for folder in folders if folder.is_dir()]
            for folder in existing:
                shutil.rmtree(folder)
            self._records.remove()
            return [str(folder) for folder in existing]

    def _clean_up(self, record: ServerRecord) -> None:
        """Remove the temporary files of a server that has ended."""
        if record.engine == "ministack":
            shutil.rmtree(self.folder / "ministack", ignore_errors=True)

    # --- status

    def status(self) -> ServerStatus:
        """Return the state of the server, without changing anything."""
        record = self._records.read()
        if record is None or not record.was_left_running:
            return ServerStatus("stopped")
        if not self.is_running(record):
            return ServerStatus("ended", record)
        latency_ms = answer_ms(record.port, record.health_path)
        state = "not answering" if latency_ms is None else "running"
        return ServerStatus(state, record, latency_ms)

    def running(self) -> ServerRecord:
        """Return the record of the running server; raise if no server runs."""
        record = self._records.read()
        if record is None or not self.is_running(record):
            raise LocalServerError("no local server is running; start one: zae-limiter local up")
        return record

    def is_running(self, record: ServerRecord) -> bool:
        """Return whether the process of a record still runs."""
        if record.pid is None or record.token is None:
            return False
        return processes.is_running(record.pid, record.token)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        private_folder(self.folder)
        with locked(
            self.folder / "server.lock", lambda: self._report("waiting for another command")
        ):
            yield


def _choose_options(wanted: WantedServer, record: ServerRecord | None) -> tuple[str, int]:
    """Return engine and port.

    Each is the wanted value, or that of a server that has crashed, or the default.
    """
    has_crashed = record is not None and record.was_left_running
    if record is None or not has_crashed or wanted.engine not in (None, record.engine):
        return wanted.engine or DEFAULT_ENGINE, wanted.port or PORT
    return record.engine, wanted.port or record.port


def _refuse_other(record: ServerRecord, wanted: WantedServer) -> None:
    """Raise if the options of the running server differ from the wanted options."""
    runs = WantedServer(record.engine, record.port)
    if any(asked not in (None, found) for asked, found in zip(wanted, runs, strict=True)):
        raise LocalServerError(
            f"{record.engine} is running on port {record.port}; stop it first: "
            "zae-limiter local down"
        )


def _wait_until_freed(port: int) -> None:
    """Wait until a server that was just killed has closed its socket."""
    give_up_at = time.monotonic() + FREED_WITHIN_S
    while listens(port) and time.monotonic() < give_up_at:
        time.sleep(PAUSE_S)


def _port_taken(port: int) -> str:
    other = port + 1 if port < 65535 else port - 1
    return (
        f"port {port} is taken by another program (lsof -i :{port} names it); stop it, or choose "
        f"another port: {command_line('local', 'up', options=('--port', str(other)))}"
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

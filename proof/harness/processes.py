"""The worker processes of a run, which can be killed, stopped, and begun again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
DONE_WITHIN_S = 60
SHOWN = 3000  # characters of its errors, if it fails


class Worker:
    """One process, under its number; a later incarnation takes the place of a killed one."""

    def __init__(
        self,
        folder: Path,
        number: int,
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
    ) -> None:
        self._folder, self._number, self._environment = folder, number, dict(environment)
        self._prefix = prefix
        self._incarnation = 0
        self._start()

    def _start(self) -> None:
        errors = self._folder / f"process-{self._number}.{self._incarnation}.log"
        self._errors, self._log = errors, errors.open("w")
        self._process = subprocess.Popen(
            [
                *self._prefix,
                sys.executable,
                "-m",
                "proof.worker",
                str(self._folder),
                str(self._number),
                str(self._incarnation),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env={**os.environ, **self._environment},
        )

    def ready(self) -> None:
        self._hear("ready")

    def go(self) -> None:
        self._tell("go")

    def stop(self) -> None:
        self._tell("stop")

    def done(self) -> None:
        self._hear("done")
        self._process.wait(DONE_WITHIN_S)

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._close()

    def begin_again(self) -> None:
        """Start another process in its place, and let it work."""
        self._incarnation += 1
        self._start()
        self.ready()
        self.go()

    def begin_refused(self) -> bool:
        """Start another process, whose store refuses it; True if it waits until it is let in.

        Other limiters open their store and fail later: such a process works at once.
        """
        self._incarnation += 1
        self._start()
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() == "refused":
            return True
        self.go()
        return False

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Leave nothing behind, whatever has happened."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()

    def _hear(self, word: str) -> None:
        assert self._process.stdout is not None
        began = time.monotonic()
        line = self._process.stdout.readline().strip()
        if line != word:
            raise RuntimeError(
                f"process {self._number}.{self._incarnation} said {line!r} instead of {word!r} "
                f"after {time.monotonic() - began:.1f} s (exit code {self._process.poll()}):\n"
                + self._errors.read_text()[-SHOWN:]
            )

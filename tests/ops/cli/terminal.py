"""The real command, in a process of its own: with pipes, or in a pseudo-terminal.

``run`` and ``terminal`` fork it, which is cheap; ``run_command`` starts a new interpreter.
"""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from tests.ops.cli.nursery import fork

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*[349][0-7](?:;\d+)*m")
CTRL_C = b"\x03"

MODULE = (sys.executable, "-m", "zae_limiter")

# A shell makes background jobs ignore SIGINT, and child processes inherit that: restore it.
INTERRUPTIBLE = (
    "import os, signal, sys\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def environment(**more):
    """Return our environment without the variables that change the output."""
    names = {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in names and not name.startswith(("ZAEL_", "AWS_"))
    }
    return {**kept, "TERM": "xterm-256color", **{name: str(value) for name, value in more.items()}}


# Reading 100,000 buckets takes over a minute on a starved machine; the test has its own limit.
END_S = 600


def run(*args, **more):
    """Run the command to its end, with files for its output and an empty stdin."""
    with TemporaryFile() as out, TemporaryFile() as err, Path(os.devnull).open() as nothing:
        files = [each.fileno() for each in (nothing, out, err)]
        code = fork(args, files, environment(**more)).wait()
        return subprocess.CompletedProcess(args, code, _text(out), _text(err))


def _text(file):
    file.seek(0)
    return file.read().decode()


def run_command(*command, **more):
    """The same with a new process of any program: ``run_command(*MODULE, "--help")``."""
    return subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(**more),
        timeout=END_S,
    )


def only_line(text):
    """Return the only line of ``text``."""
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


class Terminal:
    """A process whose input and output are a terminal."""

    def __init__(self, process, master):
        self._process = process
        self._master = master
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.output = ""

    def press(self, keys):
        os.write(self._master, keys)

    def read_until(self, text, seconds=20.0):
        until = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < until, self.output
            assert self._read(), self.output

    def wait_until_it_reads(self, seconds=20.0):
        """Wait until the process sleeps, after its question: it is reading."""
        until = time.monotonic() + seconds
        stat = Path(f"/proc/{self._process.pid}/stat")
        while stat.read_text().rpartition(") ")[2][0] != "S":
            assert time.monotonic() < until, self.output
            time.sleep(0.001)

    def wait(self):
        """Read all output and return the exit code."""
        while self._read():
            pass
        return self._process.wait()

    def _read(self):
        ready, _, _ = select.select([self._master], [], [], 20)
        try:
            chunk = os.read(self._master, 65536) if ready else b""
        except OSError:  # Linux reports the end of a terminal as an error
            chunk = b""
        self.output += self._decoder.decode(chunk)
        return bool(chunk)


@contextmanager
def terminal(*args, columns=80, lines=24, **more):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = fork(args, [slave] * 3, environment(**more))
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.end()
        os.close(master)

"""Real faults: locks that others hold, processes of their own, clocks that stop or fail."""

import fcntl
import gc
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing, contextmanager, suppress

from zae_limiter.testing import FakeClock


class Failure(Exception):
    """Ends a block that goes wrong."""


@contextmanager
def a_failing_block():
    """Around a block that has to end with a Failure, and with no other error."""
    with suppress(Failure):
        yield
        raise AssertionError("the block did not fail")


class HeldFile:
    """A file lock, held as another process holds it: through an open file of its own."""

    def __init__(self, path, suffix="-lock"):
        self._file = os.open(f"{path}{suffix}", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._once = threading.Lock()

    def free(self):
        if self._once.acquire(blocking=False):
            os.close(self._file)

    def free_in(self, seconds):
        """Free it later; returns the timer, to be joined."""
        timer = threading.Timer(seconds, self.free)
        timer.start()
        return timer

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.free()


@contextmanager
def sqlite_write_lock(path):
    """SQLite's own write lock, held by a program that does not know our file locks."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def is_free(path, suffix):
    """Whether another process could take this file lock now."""
    file = os.open(f"{path}{suffix}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def is_writable(path):
    """Whether another program could write to the database now."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
    return True


def is_open_to_others(path):
    """No lock of any kind is left behind."""
    return is_free(path, "-gate") and is_free(path, "-lock") and is_writable(path)


def descriptors():
    """How many files this process has open, not counting those that nobody refers to."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count of names


def threads():
    """How many threads this process has, whoever started them."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a count of names


def eventually(condition, seconds=10.0):
    """Whether it becomes true; polled, since the kernel does not tell."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def in_thread(call, seconds=10.0):
    """What a call in another thread answers: its result, its error, or "hangs"."""
    answers = []

    def run():
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001 - looked at by the caller
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else "hangs"


def run_script(source, *args, seconds=20.0):
    """Run a program of its own; its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# A shell makes background jobs ignore SIGINT, and child processes inherit that.
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


class Program:
    """A program that reports by lines, goes on when it is told to, and can be interrupted."""

    def __init__(self, source, *args):
        self._process = subprocess.Popen(
            [sys.executable, "-uc", INTERRUPTIBLE + textwrap.dedent(source), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self, expected):
        line = self._process.stdout.readline().strip()
        assert line == expected, line + self._process.stdout.read()

    def go_on(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def interrupt(self, number):
        self._process.send_signal(number)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._process.stdin.close()
        try:
            self._process.wait(5)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


class WatchedClock:
    """A fake clock that tells when the async writer reads it, which it does in a transaction.

    ``at_reading[n]`` is called at the n-th reading outside the main thread, and may raise.
    """

    def __init__(self):
        self.fake = FakeClock()
        self.at_reading = {}
        self._readings = 0

    def __call__(self):
        if threading.current_thread() is not threading.main_thread():
            self._readings += 1
            self.at_reading.pop(self._readings, lambda: None)()
        return self.fake()

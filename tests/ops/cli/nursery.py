"""Processes of the command that need no start: forks of one that has imported everything.

A new interpreter takes 0.3 s to import what a command uses, and the command 0.05 s. What a test
wants of a process (a terminal, signals, exit codes) a fork has as well. Tests about the start
itself start a new interpreter.
"""

import atexit
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

ROOT = Path(__file__).parents[3]
# What commands import when they run. A starved machine would need longer to import botocore than a
# command waits for credentials.
LIBRARIES = (
    *("asyncio", "csv", "sqlite3", "tempfile", "rich.live", "rich.progress", "rich.table"),
    *("botocore.session", "botocore.credentials", "botocore.httpsession"),
)
PACKAGES = (
    "zae_limiter.embedded",
    "zae_limiter.dynamodb",
    "zae_limiter_ops.cli",
    "zae_limiter_lab.cli",
    "zae_limiter_lab.demo",
)
TREES = tuple(f"zae_limiter.{tree}.repository" for tree in ("_async", "_sync"))
ENGINES = tuple(f"zae_limiter.{tree}.engines" for tree in ("_async", "_sync"))


class Child:
    """A process that the nursery has forked."""

    def __init__(self, status):
        self._status = status
        self.pid = int(status.readline())
        self.returncode = None

    def wait(self):
        """Return the exit code, when it has ended; -9 if it was killed."""
        if self.returncode is None:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def end(self):
        """Kill it if it still runs."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


def fork(args, files, environment):
    """Run the command with these as stdin, stdout and stderr."""
    ours, theirs = socket.socketpair()
    words, folder = [str(each) for each in args], str(Path.cwd())
    request = json.dumps({"args": words, "environment": environment, "folder": folder})
    with theirs:
        socket.send_fds(_nursery(), [request.encode()], [*files, theirs.fileno()])
    with ours:
        return Child(ours.makefile())


@cache
def _nursery():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.ops.cli.nursery", str(theirs.fileno())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with theirs:
        child = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT, env=environment)
    atexit.register(lambda: (ours.close(), child.wait()))
    return ours


def _serve(requests):
    """Fork until the tests end; return only in a fork, which is to be the command."""
    while True:
        message, received, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not message:
            os._exit(0)
        *files, status = received
        if os.fork() == 0 and _keep(status):
            requests.close()
            return _become(files, **json.loads(message))
        for each in received:
            os.close(each)


def _keep(status):
    """Fork once more and tell how that fork, to which this returns True, has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os.close(status)
        return True
    os.write(status, b"%d\n" % child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(status, b"%d\n" % code)
    os._exit(0)


def _become(files, args, environment, folder):
    """Turn this process into one that was started for the command."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, max(files) + 1)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["zae-limiter", *args]
    sys.stdin, sys.stdout, sys.stderr = _opened(0, "r"), _opened(1, "w"), _opened(2, "w")


def _opened(file, mode):
    """Return it as the interpreter opens it: by lines on a terminal, and always for errors."""
    by_lines = file == 2 or os.isatty(file)
    return os.fdopen(file, mode, 1 if by_lines else -1, encoding="utf-8", closefd=False)


def _import_all():
    for name in LIBRARIES:
        import_module(name)
    for name in (*PACKAGES, *TREES, *ENGINES):
        for each in walk_packages(import_module(name).__path__, f"{name}."):
            import_module(each.name)


if __name__ == "__main__":
    from zae_limiter_ops.cli import main

    _import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(main())

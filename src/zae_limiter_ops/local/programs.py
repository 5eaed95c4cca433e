"""Server programs: the arguments, environment and announcement of each server."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from zae_limiter_ops.local import HOST, LocalServerError

# A server sees nothing else of our environment: its functions would inherit credentials.
PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
VERSION_WITHIN_S = 10.0
# DynamoDB computes with 38 digits, and Python with 28 unless it is told otherwise. Balances of
# quotas that begin with their first use have 35.
_MINISTACK = """
import decimal, sys
decimal.DefaultContext.prec = decimal.getcontext().prec = 38
from ministack.app import main
sys.exit(main())
"""
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


class ServerProgram:
    """An installed server. The port is chosen at each start."""

    name = ""
    has_stacks = False  # whether it has CloudFormation; otherwise it has tables alone
    started_within_s = 10.0
    pause_s = 0.005  # between two checks whether the server answers
    announcement = b""  # the server prints this text when it is ready
    health_path = "/"

    def __init__(self, binary: Path) -> None:
        self.binary = binary

    def command(self, port: int) -> list[str]:
        """Return the program and its arguments."""
        raise NotImplementedError

    def environment(self, port: int) -> dict[str, str]:
        """Return the environment of the server."""
        return {"PATH": PATH}

    def version(self) -> str:
        """Return the installed version, or "unknown"."""
        raise NotImplementedError


class DynoxideProgram(ServerProgram):
    """A DynamoDB server in one binary.

    It stores tables in memory, or in a file that survives even ``kill -9``.
    """

    name = "dynoxide"
    announcement = b"listening on"

    def __init__(self, binary: Path, db_path: Path | str | None = None) -> None:
        super().__init__(binary)
        self.db_path = db_path

    def command(self, port: int) -> list[str]:
        command = [str(self.binary), "serve", "--host", HOST, "--port", str(port)]
        if self.db_path is not None:
            command += ["--db-path", str(self.db_path)]
        return command

    def version(self) -> str:
        """Return the version that the binary prints; this also checks that the binary runs."""
        try:
            done = subprocess.run(
                [str(self.binary), "--version"],
                capture_output=True,
                text=True,
                check=True,
                stdin=subprocess.DEVNULL,
                timeout=VERSION_WITHIN_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise LocalServerError(
                f"{self.binary} does not run here ({error}); remove it, or name another program: "
                "ZAEL_DYNOXIDE=/path/to/dynoxide"
            ) from error
        return _first_version(done.stdout)


class MinistackProgram(ServerProgram):
    """A server with CloudFormation, Lambda, IAM, S3 and DynamoDB, all in memory.

    With ``auth`` it checks signatures and permissions; the key ``test`` has all permissions.
    """

    name = "ministack"
    has_stacks = True
    started_within_s = 60.0  # it imports a hundred modules, on a machine that may be busy
    pause_s = 0.02
    health_path = "/_ministack/health"

    def __init__(self, binary: Path, folder: Path | str, *, auth: bool = False) -> None:
        super().__init__(binary)
        self.folder = folder
        self.auth = auth

    def command(self, port: int) -> list[str]:
        python = self.binary.resolve().with_name("python")
        if not python.exists():  # it was not installed by pip
            return [str(self.binary)]
        return [str(python), "-I", "-c", _MINISTACK]

    def environment(self, port: int) -> dict[str, str]:
        """Return the variables that ministack needs, and no others: functions inherit them."""
        return {
            "PATH": PATH,
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(port),
            "MINISTACK_HOST": HOST,
            "TMPDIR": str(self.folder),
            **({"AUTH": "true"} if self.auth else {}),
        }

    def version(self) -> str:
        """Return the version in the package's metadata; the program has no option to print it."""
        site = self.binary.resolve().parent.parent / "lib"
        names = sorted(site.glob("python*/site-packages/ministack-*.dist-info"))
        return _first_version(names[-1].name) if names else "unknown"


def _first_version(text: str) -> str:
    found = _VERSION.search(text.replace(".dist-info", ""))
    return found[0] if found else "unknown"

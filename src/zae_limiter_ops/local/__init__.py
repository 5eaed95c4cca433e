"""A DynamoDB-compatible server on this machine, without an account: ``zae-limiter local``.

- ``service`` starts, stops and describes the one server of this user.
- ``launch`` starts a server process and waits until the server answers.
- ``programs`` holds the arguments and environment of each server.
- ``installs`` finds or fetches a server.
- ``records`` stores the facts about a server between commands.
- ``status`` describes the current state of the server.
- ``processes`` identifies and ends processes.
- ``logs`` reads the log of the server.

The tests of this repository start their servers with the same code. Servers listen on this machine
only, because they check neither signatures nor permissions.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from urllib.parse import urlencode

from zae_limiter.exceptions import ZAELimiterError

HOST = "127.0.0.1"
PORT = 4566  # LocalStack's port, which tools for local AWS expect
REGION = "us-east-1"
KEY = "test"  # this access key has all permissions on a local control plane
DEFAULT_STACK = "zae-limiter"  # the stack of a client that names none
FOLDER = "zae-limiter"
FOLDER_MODE = 0o700  # other users may not read tables and logs
FILE_MODE = 0o600


class LocalServerError(ZAELimiterError):
    """The server is not installed, does not start or does not answer; the message gives advice."""


class PortTakenError(LocalServerError):
    """Another program listens on the port."""


def server_url(port: int) -> str:
    return f"http://{HOST}:{port}"


def store_url(port: int, stack: str | None = None) -> str:
    """Return the URL that leads a repository to a table of the local server."""
    query = urlencode({"region": REGION, "endpoint_url": server_url(port)}, safe=":/")
    return f"dynamodb://{stack or DEFAULT_STACK}?{query}"


def client_variables(port: int, stack: str | None = None) -> dict[str, str | None]:
    """Return the variables that lead clients to the local server; None means: unset the variable.

    ``ZAEL_URL`` names the table for programs that name none. The endpoint is set twice, because the
    endpoint of a service takes precedence over the general one.
    """
    url = server_url(port)
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ENDPOINT_URL_DYNAMODB": url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "ZAEL_URL": store_url(port, stack),
        "AWS_SESSION_TOKEN": None,
        "AWS_CREDENTIAL_EXPIRATION": None,
    }


def state_folder() -> Path:
    """Return the folder of the server's record, data and log, by the rules of the system."""
    return _user_folder("XDG_STATE_HOME", ".local/state", "Library/Application Support")


def cache_folder() -> Path:
    """Return the folder of fetched servers; its contents can be fetched again."""
    return _user_folder("XDG_CACHE_HOME", ".cache", "Library/Caches")


def _user_folder(variable: str, on_linux: str, on_macos: str) -> Path:
    named = os.environ.get(variable, "")
    if Path(named).is_absolute():  # the XDG rules ignore relative paths
        return Path(named) / FOLDER
    try:
        home = Path.home()
    except RuntimeError:
        raise LocalServerError(f"this user has no home folder: set HOME or {variable}") from None
    return home / (on_macos if sys.platform == "darwin" else on_linux) / FOLDER


def private_folder(folder: Path) -> Path:
    """Create a folder, and its parents, that only this user can enter; return the folder."""
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        found = folder.stat()
        if stat.S_IMODE(found.st_mode) != FOLDER_MODE:
            folder.chmod(FOLDER_MODE)
    except OSError as error:
        raise LocalServerError(
            f"{folder} cannot be used ({error.strerror}); check it, or choose another place with "
            "XDG_STATE_HOME and XDG_CACHE_HOME"
        ) from error
    return folder


def refuse_windows() -> None:
    """Raise on Windows, whose processes and file locks differ from those of this package."""
    if sys.platform == "win32":
        raise LocalServerError(
            "local servers run on Linux and macOS; on Windows use them in WSL, or work without "
            "DynamoDB: sqlite:///limits.db"
        )

"""A DynamoDB-compatible server on this machine, without an account: ``zae-limiter local``.

``service`` starts, stops and describes the one server of this user; ``launch`` starts a process
and waits until it answers; ``programs`` says how each server is called, ``installs`` finds or
fetches it, ``docker`` does the same with containers. ``records`` is what is remembered between
commands, ``status`` how the server is now, ``processes`` tells processes apart, ``logs`` reads the
log. The tests of this repository start their servers with the same code.

Servers listen on this machine only, since they check neither signatures nor rights.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from urllib.parse import urlencode

from zae_limiter.exceptions import ZAELimiterError

HOST = "127.0.0.1"
PORT = 4566  # LocalStack's, which tools for local AWS expect
REGION = "us-east-1"
KEY = "test"  # the key that may do everything on a local control plane
DEFAULT_STACK = "zae-limiter"  # what a client opens that names none
FOLDER = "zae-limiter"
FOLDER_MODE = 0o700  # tables and logs of one user are of no concern to another
FILE_MODE = 0o600


class LocalServerError(ZAELimiterError):
    """The server is not installed, does not start or does not answer; the text says what to do."""


class PortTakenError(LocalServerError):
    """Another program listens on the port."""


def server_url(port: int) -> str:
    return f"http://{HOST}:{port}"


def store_url(port: int, stack: str | None = None) -> str:
    """Return the URL that leads a repository to a table of the local server."""
    query = urlencode({"region": REGION, "endpoint_url": server_url(port)}, safe=":/")
    return f"dynamodb://{stack or DEFAULT_STACK}?{query}"


def client_variables(port: int, stack: str | None = None) -> dict[str, str | None]:
    """Return the variables that lead clients to the local server; None is for one to unset.

    ``ZAEL_URL`` names the table that is opened where a program names none. The endpoint is there
    twice, since the one of a service wins over the general one.
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
    """Return where the server's record, data and log are, by the rules of the system."""
    return _user_folder("XDG_STATE_HOME", ".local/state", "Library/Application Support")


def cache_folder() -> Path:
    """Return where fetched servers are: what is there can be fetched again."""
    return _user_folder("XDG_CACHE_HOME", ".cache", "Library/Caches")


def _user_folder(variable: str, on_linux: str, on_macos: str) -> Path:
    named = os.environ.get(variable, "")
    if Path(named).is_absolute():  # the XDG rules ignore a relative one
        return Path(named) / FOLDER
    try:
        home = Path.home()
    except RuntimeError:
        raise LocalServerError(f"this user has no home folder: set HOME or {variable}") from None
    return home / (on_macos if sys.platform == "darwin" else on_linux) / FOLDER


def private_folder(folder: Path) -> Path:
    """Create a folder that only this user can enter, with those above; return it."""
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
    """Raise where processes and locks do not work as this room needs them."""
    if sys.platform == "win32":
        raise LocalServerError(
            "local servers run on Linux and macOS; on Windows use them in WSL, or work without "
            "DynamoDB: sqlite:///limits.db"
        )

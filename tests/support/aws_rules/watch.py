"""Looks at every request of the limiter as it leaves its socket, in either tree and any thread.

``install`` wraps the ``send`` of Python's sockets, so the limiter itself stays as it is. Requests
that break a documented rule of DynamoDB are kept until ``take_violations`` returns them. If
``ZAEL_RECORD_FORMS`` names a folder, the form of each request is kept there, in a file of each
process. Requests inside of TLS are not seen.
"""

from __future__ import annotations

import _socket
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.aws_rules.forms import Form, form_of
from tests.support.aws_rules.rules import violations_of_encoded

_TARGET = re.compile(rb"^x-amz-target:\s*DynamoDB_\w+\.(\w+)", re.IGNORECASE | re.MULTILINE)
_OWN_AGENT = re.compile(rb"^user-agent:[ \t]*zae-limiter/", re.IGNORECASE | re.MULTILINE)
_FOLDER = os.environ.get("ZAEL_RECORD_FORMS")
_violations: list[str] = []
_forms: set[Form] = set()
_pauses: list[None] = []


def install() -> None:
    """Watch all sockets of this process from now on."""
    socket.socket.send = _send  # type: ignore[method-assign,assignment]


@contextmanager
def unwatched() -> Iterator[None]:
    """Look at no request in the block: it sends requests that break the rules on purpose."""
    _pauses.append(None)
    try:
        yield
    finally:
        _pauses.pop()


def take_violations() -> list[str]:
    """Return the violations since the last call."""
    found = _violations[:]
    del _violations[: len(found)]
    return found


def store_forms() -> None:
    """Write the forms that this process has sent so far, if they are recorded."""
    if _FOLDER and _forms:
        lines = [json.dumps(form) for form in sorted(_forms)]
        Path(_FOLDER, f"{os.getpid()}.jsonl").write_text("\n".join(lines))


def read_forms(folder: Path) -> list[Form]:
    """Return the forms that all processes have recorded."""
    lines = {line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()}
    return sorted(Form(*json.loads(line)) for line in lines)


def _send(sock: socket.socket, data: Any, *flags: int) -> int:
    if not _pauses and bytes(data[:5]) == b"POST ":
        look_at(bytes(data))
    return _socket.socket.send(sock, data, *flags)


def look_at(request: bytes) -> None:
    """Check a request, if it is one of the limiter's to DynamoDB."""
    head, _, body = request.partition(b"\r\n\r\n")
    target = _TARGET.search(head)
    if target is None or _OWN_AGENT.search(head) is None:
        return
    operation = target[1].decode()
    try:
        _violations.extend(violations_of_encoded(operation, body))
    except ValueError:  # a test sends something else on purpose
        return
    if _FOLDER:
        _forms.add(form_of(operation, json.loads(body)))

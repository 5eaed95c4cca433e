"""YAML files of the service: mistakes are told with their line, changes are taken up at runtime."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from zae_limiter.bounded_yaml import TRUE, MalformedYaml, YamlNode, is_tagged, place_of, read_nodes
from zae_limiter.exceptions import ValidationError

T = TypeVar("T")

CHECK_S = 1.0  # between two looks at a file
MAX_BYTES = 1_000_000
_logger = logging.getLogger(__name__)


class FileError(ValidationError):
    """A file has a mistake, at a line that counts from 1."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__("file", source, f"line {line}: {reason}")
        self.line = line
        self.args = (f"{source}:{line}: {reason}",)


class Node:
    """A value of a YAML file that knows its line. Every access checks the kind of the value."""

    def __init__(self, node: YamlNode, source: str) -> None:
        self._node = node
        self._source = source

    def error(self, reason: str) -> FileError:
        return FileError(self._source, place_of(self._node)[0], reason)

    def mapping(self, known: frozenset[str] | None = None) -> dict[str, Node]:
        """Return the values by key; raise for a key that is repeated or not known."""
        if self._node.id != "mapping":
            raise self.error("must be a mapping")
        found: dict[str, Node] = {}
        for key, value in self._node.value:
            name = Node(key, self._source)
            text = name.text()
            if text in found:
                raise name.error(f"{text!r} comes twice")
            if known is not None and text not in known:
                raise name.error(f"{text!r} is unknown; known are {', '.join(sorted(known))}")
            found[text] = Node(value, self._source)
        return found

    def items(self) -> list[Node]:
        if self._node.id != "sequence":
            raise self.error("must be a list")
        return [Node(each, self._source) for each in self._node.value]

    def text(self) -> str:
        if self._node.id != "scalar" or not self._node.value:
            raise self.error("must be a text")
        return str(self._node.value)

    def flag(self) -> bool:
        if not is_tagged(self._node, "bool"):
            raise self.error("must be true or false")
        return str(self._node.value).lower() in TRUE

    @property
    def is_whole_number(self) -> bool:
        return is_tagged(self._node, "int") and self._node.value.isdecimal()

    def whole_number(self) -> int:
        if not self.is_whole_number or len(self._node.value) > 15:
            raise self.error("must be a whole number")
        return int(self._node.value)

    def checked(self, check: Callable[[str], T]) -> T:
        """Return the text after a check of the library, whose reason is told with the line."""
        text = self.text()
        try:
            return check(text)
        except ValidationError as error:
            raise self.error(f"{text!r} {error.reason}") from None

    def require(self, values: dict[str, Node], name: str) -> Node:
        if name not in values:
            raise self.error(f"{name!r} is missing")
        return values[name]


def read_yaml(path: Path) -> Node:
    """Return the root of a file; raise FileError if it is not YAML."""
    data = path.read_bytes()
    if len(data) > MAX_BYTES:
        raise FileError(str(path), 1, f"the file has more than {MAX_BYTES:,} bytes")
    try:
        root = read_nodes(data.decode(), in_python=True)
    except UnicodeDecodeError as error:
        raise FileError(str(path), 1, str(error)) from None
    except MalformedYaml as error:
        raise FileError(str(path), error.line or 1, error.reason) from None
    if root is None:
        raise FileError(str(path), 1, "the file is empty")
    return Node(root, str(path))


class WatchedFile(Generic[T]):
    """The content of a file. A changed file is read again; one with a mistake changes nothing."""

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        self._path = path
        self._read = read
        self._stamp = self._stamp_now()
        self._content = read(path)
        self._looked_at = time.monotonic()
        self.failed_reloads = 0
        self.reloads = 0

    def current(self) -> T:
        """Return the content as it was a second ago at most."""
        now = time.monotonic()
        if now - self._looked_at >= CHECK_S:
            self._looked_at = now
            self._renew()
        return self._content

    def _renew(self) -> None:
        try:
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._content = self._read(self._path)
            self.reloads += 1
            _logger.warning("%s was changed and is in force", self._path)
        except (OSError, ValidationError) as error:
            self.failed_reloads += 1
            _logger.error("the old content stays in force: %s", error)

    def _stamp_now(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino

"""The command line run in the test's process, which is much cheaper than in its own."""

import json
from typing import NamedTuple

import pytest

from tests.ops.cli.terminal import only_line
from zae_limiter_ops.cli.app import app
from zae_limiter_ops.cli.shared.errors import run


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        assert (self.code, self.err) == (0, ""), self.err
        return json.loads(self.out, parse_constant=lambda word: pytest.fail(f"{word} in JSON"))

    def error(self, code):
        """Return the one line that the command failed with."""
        assert (self.code, self.out) == (code, "")
        line = only_line(self.err)
        assert line.startswith("error: ")
        return line


class CommandLine:
    """Runs commands on one store."""

    def __init__(self, capsys, url):
        self._capsys = capsys
        self.url = url

    def __call__(self, *args):
        self._capsys.readouterr()
        code = run(app, [str(arg) for arg in args])
        return Ran(code, *self._capsys.readouterr())

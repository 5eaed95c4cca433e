"""The log of a server: reading its lines, and deleting a long log."""

import sys
from pathlib import Path

import pytest

from tests.support.child_server import free_port
from zae_limiter_ops.local import LocalServerError, launch
from zae_limiter_ops.local.logs import follow, last_lines
from zae_limiter_ops.local.programs import ServerProgram

LINE = "request {:05d}\n"


def append(log, numbers):
    with log.open("a") as file:
        file.writelines(LINE.format(number) for number in numbers)


def numbers(lines):
    return [int(line.split()[1]) for line in lines]


def test_the_last_lines_are_those_at_the_end(tmp_path):
    log = tmp_path / "server.log"
    assert last_lines(log, 5) == []
    append(log, range(100))
    assert numbers(last_lines(log, 5)) == [95, 96, 97, 98, 99]
    assert last_lines(log, 0) == []


def test_a_reader_that_follows_misses_no_line(tmp_path):
    log = tmp_path / "server.log"
    append(log, range(20))
    rounds = iter([range(20, 50), range(50, 80), range(80, 90)])

    def is_running():
        batch = next(rounds, None)
        append(log, batch or ())
        return batch is not None

    text = "".join(follow(log, 5, is_running))
    assert numbers(text.splitlines()) == list(range(15, 90))


def test_a_reader_waits_for_a_log_that_is_not_there_yet(tmp_path):
    log = tmp_path / "server.log"
    answers = iter([True, False, False])

    def is_running():
        runs = next(answers)
        if not runs and not log.exists():
            append(log, range(3))
        return runs

    assert numbers("".join(follow(log, 5, is_running)).splitlines()) == [0, 1, 2]


class Ends(ServerProgram):
    name = "ends"

    def command(self, port):
        return [sys.executable, "-c", "print('it ends')"]


def test_a_log_that_is_too_long_begins_anew_at_a_start(tmp_path):
    log = tmp_path / "server.log"
    program = Ends(Path(sys.executable))
    for size, begins in [(100, b"x"), (launch.LOG_BYTES + 1, b"it ends")]:
        log.write_bytes(b"x" * size)
        with pytest.raises(LocalServerError, match="it ends"):
            launch.launch_detached(program, free_port(), log)
        assert log.read_bytes().startswith(begins)
        assert log.read_bytes().endswith(b"it ends\n")

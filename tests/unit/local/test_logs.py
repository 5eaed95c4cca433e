"""The bounded log: what is kept, and what a reader sees while it is replaced."""

import subprocess
import sys

from zae_limiter.local import keeper
from zae_limiter.local.keeper import BoundedLog
from zae_limiter.local.logs import Follower, last_lines

LINE = "request {:05d}\n"  # 14 bytes


def write(log, numbers):
    for number in numbers:
        log.write(LINE.format(number).encode())


def numbers(lines):
    return [int(line.split()[1]) for line in lines]


def test_both_files_together_never_exceed_the_bound(tmp_path):
    path = tmp_path / "server.log"
    log = BoundedLog(str(path), 1000)
    write(log, range(1000))
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= 1000
    found = numbers(last_lines(path, 75))
    assert found == list(range(925, 1000))


def test_a_line_longer_than_the_bound_is_written_whole(tmp_path):
    path = tmp_path / "server.log"
    log = BoundedLog(str(path), 10)
    log.write(b"x" * 50)
    log.write(b"y" * 50)
    assert path.read_bytes() == b"y" * 50


def test_a_follower_misses_nothing_while_logs_are_replaced(tmp_path):
    path = tmp_path / "server.log"
    log = BoundedLog(str(path), 500)
    write(log, range(20))
    rounds = iter([range(20, 50), range(50, 80), range(80, 90)])

    def is_running():
        batch = next(rounds, None)
        write(log, batch or ())
        return batch is not None

    with Follower(path) as follower:
        first = follower.last_lines(5)
        text = "".join(follower.follow(is_running))
    assert numbers(first) == list(range(15, 20))
    assert numbers(text.splitlines()) == list(range(20, 90))


def test_a_follower_waits_for_a_log_that_is_not_there_yet(tmp_path):
    path = tmp_path / "server.log"
    answers = iter([True, False])

    def is_running():
        runs = next(answers)
        if not runs:
            write(BoundedLog(str(path), 500), range(3))
        return runs

    with Follower(path) as follower:
        assert follower.last_lines(5) == []
        text = "".join(follower.follow(is_running))
    assert numbers(text.splitlines()) == [0, 1, 2]


def test_the_program_writes_its_input_and_ends_with_it(tmp_path):
    path = tmp_path / "server.log"
    command = [sys.executable, "-I", "-S", keeper.__file__, str(path), "1000"]
    text = "".join(LINE.format(number) for number in range(10)).encode()
    subprocess.run(command, input=text, check=True)
    assert path.read_bytes() == text
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path):
    command = [sys.executable, "-I", "-S", keeper.__file__, str(tmp_path / "gone" / "x"), "1000"]
    subprocess.run(command, input=b"text", check=True)

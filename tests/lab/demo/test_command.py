import json
import re
import signal
import sqlite3
import subprocess
import sys

import pytest

from tests.ops.cli.stores import on_both_engines
from tests.ops.cli.terminal import INTERRUPTIBLE, MODULE, environment, only_line, run, run_command
from zae_limiter import SyncRepository

COUNTS = {"admitted", "limited", "adjusted", "failed"}


def strict_json(text):
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_a_pipe_gets_a_line_a_second_and_a_table(tmp_path):
    found = run("demo", "--seconds", "2", TMPDIR=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    assert lines[0] == "4 tenants calling for 2 s, on sqlite"
    assert [int(float(line.split(" s ")[0])) for line in lines[1:3]] == [1, 2]
    assert all("acquires/s" in line for line in lines[1:3])
    assert lines[4].split()[:4] == ["entity", "admitted", "limited", "adjusted"]
    assert [line.split()[0] for line in lines[6:9]] == ["acme", "├", "└"]
    assert "invariant holds: admitted ≤ capacity + refill + given back" in lines
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in found.stdout
    assert list(tmp_path.iterdir()) == []


def test_json_is_strict_complete_and_alone():
    found = run("demo", "--seconds", "0.5", "--tenants", "2", "--seed", "7", "--output", "json")
    assert (found.returncode, found.stderr) == (0, "")
    data = strict_json(found.stdout)
    assert data.keys() == COUNTS | {
        "engine",
        "options",
        "seconds",
        "acquires",
        "acquires_per_second",
        "entities",
        "invariant",
    }
    assert data["engine"] == "sqlite"
    assert data["options"] == {"seconds": 0.5, "tenants": 2, "seed": 7}
    assert 0.5 <= data["seconds"] < 20
    assert data["acquires"] == data["admitted"] + data["limited"]
    assert data["acquires_per_second"] == pytest.approx(data["acquires"] / data["seconds"], abs=0.1)
    assert [entity["entity_id"] for entity in data["entities"]] == [
        *("acme", "acme-web", "acme-batch"),
        *("globex", "globex-web", "globex-batch"),
    ]
    for entity in data["entities"]:
        assert entity.keys() == COUNTS | {"entity_id", "parent_id", "limits"}
        assert [limit["name"] for limit in entity["limits"]] == ["rpm", "tpm"]
        for limit in entity["limits"]:
            assert limit.keys() == {
                *("name", "capacity", "refill_amount", "refill_period_seconds"),
                *("used", "allowed", "given_back", "refused"),
            }
    assert data["invariant"].keys() == {"holds", "limits", "windows", "debts_checked", "violations"}
    assert data["invariant"]["holds"] is True
    assert data["invariant"]["limits"] == 12
    assert data["invariant"]["violations"] == []


@on_both_engines
def test_the_store_of_a_url_keeps_nothing_of_it(empty_url, engine):
    url = empty_url
    with SyncRepository.open(url=url) as repository:
        repository.create_entity("acme")
    found = run("demo", "--seconds", "1", "--tenants", "2", ZAEL_URL=url)
    assert (found.returncode, found.stderr) == (0, "")
    assert f"2 tenants calling for 1 s, on {engine}" in found.stdout
    assert "invariant holds: admitted ≤ capacity + refill + given back" in found.stdout
    with SyncRepository.open(url=url) as repository:
        assert [each.name for each in repository.list_namespaces()] == ["default"]
        assert repository.list_orphan_namespaces() == []
        assert repository.get_entity("acme") is not None
        assert repository.get_entity("acme-web") is None


def run_until_it_fails(*command):
    """Run a command for longer and longer: a starved machine makes few calls in a second."""
    for seconds in (1, 5, 25):
        found = run(*command, "--seconds", seconds)
        if found.returncode != 0:
            break
    return found


def test_a_store_that_loses_charges_ends_in_exit_code_1(tmp_path):
    url = f"sqlite:///{tmp_path}/limits.db"
    SyncRepository.open(url=url).close()
    with sqlite3.connect(tmp_path / "limits.db") as connection:
        connection.execute(
            "CREATE TRIGGER leak BEFORE UPDATE OF state ON bucket WHEN random() % 3 = 0 "
            "BEGIN SELECT RAISE(IGNORE); END"
        )
    connection.close()
    found = run_until_it_fails("demo", "--url", url)
    assert (found.returncode, found.stderr) == (1, "")
    lines = found.stdout.splitlines()
    verdict = next(index for index, line in enumerate(lines) if "invariant VIOLATED" in line)
    assert "admitted > capacity + refill + given back" in lines[verdict]
    assert "(capacity " in lines[verdict + 1]
    assert "invariant holds" not in found.stdout

    found = run_until_it_fails("demo", "--url", url, "--output", "json")
    assert (found.returncode, found.stderr) == (1, "")
    invariant = strict_json(found.stdout)["invariant"]
    assert invariant["holds"] is False
    for each in invariant["violations"]:
        assert each["admitted"] + each["debts"] > each["allowed"]
        assert each["from_ms"] <= each["to_ms"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--seconds", "0"], "0 is not between 0.1 and 3600"),
        (["--seconds", "-1"], "-1 is not between"),
        (["--seconds", "nan"], "nan is not between"),
        (["--seconds", "inf"], "inf is not between"),
        (["--seconds", "soon"], "'soon' is not a number of seconds"),
        (["--seconds"], "--seconds"),
        (["--tenants", "0"], "0 is not in the range"),
        (["--tenants", "51"], "51 is not in the range"),
        (["--tenants", "many"], "'many' is not a valid integer; see"),
        (["--seed", "1.5"], "'1.5' is not a valid integer"),
        (["--output", "xml"], "'xml' is not one of"),
        (["--url", "redis://x"], "must be memory://, sqlite:///relative.db"),
        (["--url", ""], "must be memory://, sqlite:///relative.db"),
        (["--url", "sqlite:///x.db?mode=ro"], "has no option 'mode'"),
        (["--sekonds", "1"], "--sekonds"),
        (["now"], "unexpected extra argument"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(args, words, capsys):
    from zae_limiter_ops.cli import main

    argv, sys.argv = sys.argv, ["zae-limiter", "demo", *args]
    try:
        assert main() == 2
    finally:
        sys.argv = argv
    out, err = capsys.readouterr()
    assert out == ""
    line = only_line(err)
    assert line.startswith("error: ")
    assert words in line
    assert "--help'" in line


def test_a_missing_folder_is_one_line_that_says_what_to_do(tmp_path):
    found = run("demo", "--url", f"sqlite:///{tmp_path}/missing/limits.db")
    assert (found.returncode, found.stdout) == (1, "")
    assert "create it" in only_line(found.stderr)


def test_debugging_shows_where_it_happened(tmp_path):
    found = run("demo", "--url", f"sqlite:///{tmp_path}/missing/limits.db", ZAEL_DEBUG=1)
    assert found.returncode == 1
    assert "Traceback" in found.stderr


def test_a_reader_that_goes_away_ends_it_without_a_word(tmp_path):
    with subprocess.Popen(
        [*MODULE, "demo", "--seconds", "30"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=tmp_path),
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(10) == 1
    assert list(tmp_path.iterdir()) == []


@on_both_engines
def test_an_interrupt_closes_everything(empty_url):
    url = empty_url
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *MODULE, "demo", "--seconds", "30", "--url", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        process.stdout.readline()
        assert "acquires/s" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    line = err.splitlines()[-1]  # on a starved machine, refunds that failed are logged before
    assert re.match(r"interrupted after \d+\.\d s: ", line)
    assert line.endswith("nothing is left behind")
    with SyncRepository.open(url=url) as repository:
        assert [each.name for each in repository.list_namespaces()] == ["default"]
        assert repository.list_orphan_namespaces() == []


def test_a_narrow_encoding_gets_plain_characters():
    args = ("demo", "--seconds", "0.2", "--tenants", "1")
    found = run_command(*MODULE, *args, PYTHONIOENCODING="ascii")
    assert found.returncode == 0
    assert found.stdout.isascii()
    assert "admitted <= capacity" in found.stdout

"""What a terminal shows: colours, and lines that are folded between words."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.ops.cli.terminal import ANSI, COLOUR, MODULE, environment, run, terminal


def screen_of(*args, columns=80, **more):
    with terminal(*args, columns=columns, **more) as screen:
        code = screen.wait()
    return code, screen.output.replace("\r\n", "\n")


def test_a_refusal_is_red(cli):
    _, text = screen_of("explain", "key-7", "gpt-4", "--url", cli.url)
    assert "\x1b[31mLIMITED\x1b[0m" in text
    assert "\x1b[31mNO: in " in text
    _, text = screen_of("explain", "key-7", "gpt-4", "--url", cli.url, NO_COLOR=1)
    assert "LIMITED" in text
    assert not COLOUR.search(text)


@pytest.mark.parametrize(
    "args",
    [
        ["explain", "key-7", "gpt-4"],
        ["entity", "show", "stranger"],
        ["bucket", "show", "key-7"],
        pytest.param(["explain", "kez-7", "gpt-4"], marks=pytest.mark.slow),
        pytest.param(["entity", "list", "-N", "unheard-of"], marks=pytest.mark.slow),
        pytest.param(["bucket", "reset", "key-7", "nothing"], marks=pytest.mark.slow),
        pytest.param(["namespace", "recover", "unheard-of"], marks=pytest.mark.slow),
    ],
)
def test_lines_are_folded_between_words_at_60_columns(cli, args):
    _, wide = screen_of(*args, "--url", cli.url, columns=400)
    _, narrow = screen_of(*args, "--url", cli.url, columns=60)
    lines = ANSI.sub("", narrow).replace("\r", "").split("\n")
    assert all(len(line) <= 60 or is_whole(line) for line in lines), narrow
    assert {word for line in lines for word in line.split() if len(word) > 3} >= {
        word for word in ANSI.sub("", wide).split() if len(word) > 3 and word.isalpha()
    }


def test_a_table_that_is_too_wide_for_the_terminal_loses_no_column(cli):
    for columns in (100, 80, 40):
        _, text = screen_of("bucket", "list", "--url", cli.url, columns=columns)
        titles = ANSI.sub("", text).partition("──")[0].split("\n")  # long titles are folded
        assert any(line.rstrip("\r ").endswith("rejected") for line in titles), text


@pytest.mark.parametrize(
    "args", [["audit", "list"], ["usage", "list"], ["entity", "show", "key-7"]]
)
def test_a_folded_table_keeps_every_character(cli, args):
    def characters(columns):
        _, text = screen_of(*args, "--url", cli.url, columns=columns)
        table = ANSI.sub("", text.rpartition("\x1b[2K")[2])
        return Counter(char for char in table if char.isascii() and not char.isspace())

    assert characters(80) == characters(300)


def is_whole(line):
    """Whether a line is one word, or a command, which stays in one piece to be copied."""
    return " " not in line.strip() or line.startswith("zae-limiter ")


def test_a_single_thing_is_not_called_many(cli):
    found = cli("entity", "delete", "key-7")
    assert "(in force in 1 place) and its buckets on 1 resource." in found.err


def test_a_full_disk_is_not_a_bug_to_report(cli):
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*MODULE, "entity", "list", "--url", cli.url],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
        )
    assert ran.returncode == 1
    assert (
        ran.stderr == "error: No space left on device; free some space and run the command again\n"
    )


def test_the_version_names_the_default_stack():
    ran = run("version")
    assert "commands use the DynamoDB stack 'zae-limiter'" in ran.stdout


def test_a_region_that_does_not_exist_is_named_as_the_possible_cause():
    ran = run(
        *("entity", "list", "--name", "a-stack", "--region", "eu-wst-1"),
        AWS_ACCESS_KEY_ID="x",
        AWS_SECRET_ACCESS_KEY="y",
    )
    assert ran.returncode == 1
    assert "check --region" in ran.stderr

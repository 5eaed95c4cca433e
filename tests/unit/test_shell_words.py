"""Commands and names in messages, read back by a real shell."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import zae_limiter
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.items.version_record import check_version_record
from zae_limiter.shell_words import command_line, quoted

PACKAGES = ("zae_limiter", "zae_limiter_ops", "zae_limiter_lab", "zae_limiter_provisioner")

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def words_of(line):
    """Return the words that ``sh`` reads a line as."""
    printed = subprocess.run(
        ["/bin/sh", "-c", f"printf '%s\\0' {line}"], check=True, capture_output=True, timeout=60
    )
    return printed.stdout.decode().split("\0")[:-1]


@settings(max_examples=50, deadline=None)
@given(st.lists(texts, min_size=1, max_size=8))
@example(["a'$(exit 7)", '"', "`exit 7`", "a  b", "~", "*", "$HOME", "#", "!x", "é\n", "\\", "|&;"])
def test_a_shell_reads_every_name_as_one_word(names):
    assert words_of(" ".join(map(quoted, names))) == names
    assert words_of(command_line(*(f"a{name}" for name in names))) == [
        "zae-limiter",
        *(f"a{name}" for name in names),
    ]


def test_a_plain_name_is_quoted_like_any_other():
    assert (quoted("key-7"), quoted("it's")) == ("'key-7'", "'it'\"'\"'s'")


def test_arguments_that_begin_like_options_come_last():
    line = command_line("entity", "show", "-x", options=("--url", "memory://"))
    assert line == "zae-limiter entity show --url memory:// -- -x"
    assert command_line("list", options=("--name", "-x"), program="aws") == "aws list --name -x"


def test_the_library_names_a_migration_that_can_be_pasted():
    with pytest.raises(IncompatibleSchemaError) as raised:
        check_version_record({"schema_version": 0}, "my table; exit 7")
    _, _, command = str(raised.value).partition("once: ")
    assert words_of(command) == ["zae-limiter", "upgrade", "--name", "my table; exit 7"]


@pytest.mark.parametrize(
    "by_hand",
    [
        r"zae-limiter [a-z ]+--[a-z-]+[ =]\{",  # a command with a value in it
        r"--[a-z-]+[ =]\{[^}]*!r",  # an option with Python's notation of text
        r"['`]\{\w*\.?(suggested|command|command_line)\(",  # quotes around a command
        r"[^`]`zae-limiter",
    ],
)
def test_no_message_puts_a_command_together_by_hand(by_hand):
    folder = Path(zae_limiter.__file__).parents[1]
    paths = [path for package in PACKAGES for path in (folder / package).rglob("*.py")]
    assert {path.relative_to(folder).parts[0] for path in paths} == set(PACKAGES)
    found = [
        f"{path.relative_to(folder)}: {line.strip()}"
        for path in paths
        for line in path.read_text().splitlines()
        if re.search(by_hand, line)
    ]
    assert found == []

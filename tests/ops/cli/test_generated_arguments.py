"""Whatever a command line contains: an answer, or one line that says what is wrong with it."""

import json
import operator
import unicodedata

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zae_limiter_contract.stopwatch import Stopwatch

from tests.ops.cli.terminal import only_line
from tests.support.generated import ODD, examples, texts
from zae_limiter_ops.cli.app import app
from zae_limiter_ops.cli.shared.errors import CHANGES, DONE, FAILED, WRONG_USAGE

ANSWERED_WITHIN_S = 10
SECRET = "zael-secret"
# Commands of a store; others deploy, serve, or wait for Ctrl-C.
GROUPS = ("bucket", "budget", "entity", "explain", "namespace", "resource", "system", "usage")
# Options that would write files of any name, wait, or lead to another store.
LEFT_OUT = {"--file", "--watch", "--url", "--name", "--region", "--endpoint-url", "--create-table"}
GOOD = [
    "key-7", "project-1", "gpt-4", "rpm", "rpm:10/min", "usd:5USD/month@UTC", "rpm=1", "usd=0.5",
    "60", "deny", "shadow", "tenant-a", "daily", "hourly", "24h", "json", "csv", "table", "name",
    "2026-01-01", "team=search", "--yes", "--all", "-o", "-", "--",
]  # fmt: skip
# No program can pass a NUL to another one.
TEXTS = st.one_of(
    st.sampled_from(GOOD),
    st.builds(
        operator.add, st.sampled_from(["", "", "rpm=", "usd=", "rpm:"]), st.sampled_from(ODD)
    ),
    texts(GOOD),
).map(lambda text: text.replace("\0", ""))
WRONG_URLS = [
    f"dynamodb://user:{SECRET}@stack", f"redis://:{SECRET}@host", f"sqlite:///x.db?key={SECRET}",
    f"dynamodb://user:a?{SECRET}@stack", f"dynamodb://stack?endpoint_url=http://u:{SECRET}@x",
]  # fmt: skip


def commands():
    """Return all commands of the groups, by their words."""
    context = click.Context(app)
    found = {}
    for name in GROUPS:
        command = app.get_command(context, name)
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found[name, inner] = command.get_command(context, inner)
        else:
            found[(name,)] = command
    return found


COMMANDS = commands()


@st.composite
def lines(draw, command):
    """Return arguments of a command that are nearly right."""
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [
        each
        for each in command.params
        if isinstance(each, click.Option) and each.opts[0] not in LEFT_OUT
    ]
    line = [draw(TEXTS) for _ in arguments]
    required = [each for each in options if each.required]
    for option in [*required, *draw(st.lists(st.sampled_from(options), max_size=2))]:
        line.append(option.opts[0])
        if not option.is_flag:
            line.append(draw(TEXTS))
    if draw(st.integers(0, 5)) == 0:
        line.insert(draw(st.integers(0, len(line))), draw(TEXTS))
    return line


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@examples(25)
@given(data=st.data())
def test_a_command_line_has_an_answer_or_one_mistake(cli, words, data):
    line = data.draw(lines(COMMANDS[words]))
    with Stopwatch() as watch:
        ran = cli(*words, *line)
    assert watch.within(ANSWERED_WITHIN_S), watch
    assert ran.code in (DONE, FAILED, WRONG_USAGE, CHANGES), ran
    assert "ZAEL_DEBUG" not in ran.err  # which is asked for after a defect
    assert not controls(ran.out + ran.err)
    if ran.code in (FAILED, WRONG_USAGE):
        assert only_line(ran.err).startswith("error: ")
    if ran.code == DONE and ran.out[:1] in ("{", "[") and "json" in line:
        json.loads(ran.out)


@examples(30)
@given(url=st.sampled_from(WRONG_URLS), data=st.data())
def test_no_mistake_of_a_url_shows_its_secret(cli, url, data):
    ran = cli("entity", "list", "--url", url, data.draw(TEXTS))
    assert ran.code == WRONG_USAGE
    assert SECRET not in ran.out + ran.err


def controls(text):
    """Return the characters that a terminal would obey or hide."""
    return {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs")} - {
        "\n",
        "\t",
    }

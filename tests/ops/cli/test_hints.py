"""A command that a hint suggests works on the same store as the one that gave the hint."""

import shlex

import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.ops.cli.stores import on_dynamodb
from tests.support.dynamodb import shared_endpoint
from zae_limiter.store_url import parse_url


def command_in(text, *words):
    """Return the words of the suggested command that begins with ``words``."""
    command = shlex.join(["zae-limiter", *words])
    assert command in text, text
    line = text[text.index(command) :].partition("; ")[0].partition("'")[0]
    return shlex.split(line)


@pytest.fixture
def empty_url(empty_url):
    """Without an option, which a hint would have to quote."""
    return empty_url.partition("?synchronous")[0]


@pytest.mark.parametrize(
    ("args", "words", "with_namespace"),
    [
        (["entity", "show", "stranger"], ["entity", "create", "stranger"], True),
        (["entity", "create", "key-7"], ["entity", "show", "key-7"], True),
        (["entity", "create", "key-7"], ["entity", "set-parent", "key-7"], True),
        (["entity", "get-limits", "key-9"], ["entity", "show", "key-9"], True),
        (["explain", "nothing", "here"], ["system", "set-defaults"], True),
        (["entity", "create", "key-8", "--parent", "taem"], ["entity", "create", "taem"], True),
        (["entity", "set-parent", "key-9", "team"], ["entity", "create", "key-9"], True),
    ],
)
def test_options_of_the_command_line_are_repeated(
    cli, tmp_path, monkeypatch, args, words, with_namespace
):
    monkeypatch.delenv("ZAEL_URL")
    store = ["--url", cli.url, "--namespace", "tenant-a"]
    if args[:2] == ["entity", "create"]:
        cli(*args, *store)
    ran = cli(*args, *store)
    command = command_in(ran.err + ran.out, *words)[1:]
    assert (command[: len(words)], command[-len(store) :]) == (words, store)


def test_the_hint_after_a_deletion_names_a_child_and_the_store(cli, monkeypatch):
    monkeypatch.delenv("ZAEL_URL")
    store = ["--url", cli.url]
    cli("entity", "create", "team", *store)
    cli("entity", "create", "key-8", "--parent", "team", *store)
    ran = cli("entity", "delete", "team", "--yes", *store)
    words = ["entity", "set-parent", "key-8", "PARENT"]
    assert command_in(ran.err, *words)[1:] == [*words, *store]


def test_what_the_environment_names_is_not_repeated(cli):
    assert command_in(cli("entity", "show", "stranger").err, "entity", "create")[1:] == [
        *("entity", "create", "stranger")
    ]


def test_commands_for_all_namespaces_take_no_namespace(cli):
    store = ["--url", cli.url]
    ran = cli("entity", "list", *store, "-N", "unheard-of")
    words = ["namespace", "register", "unheard-of"]
    assert command_in(ran.err, *words)[1:] == [*words, *store]
    ran = cli("namespace", "delete", "tenant-a", "--yes", *store)
    assert command_in(ran.out, "namespace", "recover")[-2:] == store


def test_a_missing_file_is_created_where_it_was_looked_for(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/my file.db"
    _, _, command = cli("entity", "list", "--url", url).err.partition("create one: zae-limiter ")
    words = shlex.split(command)
    assert words == ["namespace", "register", "default", "--url", url]
    assert cli(*words).code == 0


@on_dynamodb
def test_the_options_of_a_stack_are_repeated(url, capsys):
    store = ["--name", parse_url(url).place, "--region", "eu-west-1"]
    store += ["--endpoint-url", shared_endpoint()]
    ran = CommandLine(capsys, url)("entity", "show", "stranger", *store)
    assert command_in(ran.err, "entity", "create")[-6:] == store
    store[1] = "no-such-stack"
    ran = CommandLine(capsys, url)("entity", "list", *store)
    words = command_in(ran.err, "namespace", "register", "default", "--create-table")
    assert words[-6:] == store

"""Commands that remove something state what, and ask, in a real terminal."""

import pytest

from tests.ops.cli.stores import on_both_engines, sqlite_first
from tests.ops.cli.terminal import ANSI, COLOUR, CTRL_C, run, terminal
from zae_limiter import SyncRepository

ASKING = {
    ("system", "delete-defaults"): "acquires for which no other limits are stored will fail",
    ("resource", "delete-defaults", "gpt-4"): "fall back on the system defaults",
    (
        "entity",
        "delete-limits",
        "key-7",
        "-r",
        "gpt-4",
    ): "the next configuration level applies again",
    ("entity", "delete", "project-1"): "1 entity under it ('key-7') will still have it as parent",
    ("bucket", "reset", "key-7", "gpt-4"): "debts are cancelled",
    ("namespace", "delete", "tenant-a"): "can be recovered",
}


def state(url):
    """Return everything that the commands above could change."""
    with SyncRepository.open(url=url) as repository:
        return (
            repository.get_system_defaults(),
            repository.get_resource_defaults("gpt-4"),
            repository.get_limits("key-7", "gpt-4"),
            repository.get_entity("project-1"),
            [event.action for event in repository.get_audit_events("key-7")],
            [each.name for each in repository.list_namespaces()],
        )


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        *(pytest.param("sqlite", args, id=f"{' '.join(args)}-sqlite") for args in ASKING),
        # The question does not depend on the engine; one command shows that the answer counts.
        *(
            pytest.param(
                "dynamodb",
                args,
                id=f"{' '.join(args)}-dynamodb",
                marks=() if args == ("entity", "delete", "project-1") else pytest.mark.slow,
            )
            for args in ASKING
        ),
    ],
)
def test_yes_does_it_and_no_does_not(args, url):
    before = state(url)
    with terminal(*args, ZAEL_URL=url) as screen:
        screen.read_until("[y/N]:")
        screen.press(b"n\n")
        assert screen.wait() == 1
    text = " ".join(ANSI.sub("", screen.output).split())
    assert ASKING[args] in text
    assert "not confirmed; nothing was changed" in text
    assert state(url) == before
    with terminal(*args, ZAEL_URL=url) as screen:
        screen.read_until("[y/N]:")
        screen.press(b"y\n")
        assert screen.wait() == 0
    assert state(url) != before


@sqlite_first
def test_ctrl_c_at_the_question_changes_nothing(url):
    before = state(url)
    with terminal("entity", "delete", "key-7", ZAEL_URL=url) as screen:
        screen.read_until("[y/N]: ")
        screen.wait_until_it_reads()  # a signal before that is noticed with the next key
        screen.press(CTRL_C)
        assert screen.wait() == 130
    assert "interrupted before anything was changed" in screen.output
    assert "Traceback" not in screen.output
    assert state(url) == before


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("args", ASKING, ids=" ".join)
def test_without_a_terminal_it_asks_for_the_option(args, cli, url):
    before = state(url)
    line = cli(*args).error(2)
    assert ASKING[args] in line
    assert "add --yes to confirm" in line
    assert state(url) == before


def test_the_question_does_not_mix_with_the_json(url):
    found = run("entity", "delete", "key-7", "--yes", "--output", "json", ZAEL_URL=url)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == '{\n  "entity_id": "key-7",\n  "deleted": true\n}\n'


def test_colours_are_for_terminals_without_no_color(url):
    args = ("explain", "stranger", "gpt-4")
    with terminal(*args, ZAEL_URL=url) as screen:
        assert screen.wait() == 0
    assert COLOUR.search(screen.output)
    with terminal(*args, ZAEL_URL=url, NO_COLOR=1) as screen:
        assert screen.wait() == 0
    assert not COLOUR.search(screen.output)
    assert "\x1b" not in run(*args, ZAEL_URL=url).stdout


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "args",
    [
        ("entity", "show", "key-7"),
        ("bucket", "show", "key-7"),
        ("audit", "list"),
        ("usage", "list", "-r", "gpt-4"),
    ],
    ids=" ".join,
)
def test_tables_fit_the_terminal_and_nothing_is_cut(args, columns, url):
    with terminal(*args, columns=columns, ZAEL_URL=url) as screen:
        assert screen.wait() == 0
    lines = ANSI.sub("", screen.output).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in screen.output

import sys
from functools import partial
from pathlib import Path

import click
import pytest

from tests.ops.cli.terminal import MODULE, only_line, run_command
from zae_limiter import __version__
from zae_limiter_ops.cli.app import COMMANDS, app

run = partial(run_command, *MODULE)


def commands(command: click.Command, path=()):
    """Every command of the tree, with its path."""
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            yield from commands(command.get_command(ctx, name), (*path, name))


@pytest.mark.parametrize("command", [each for _, each in commands(app)], ids=lambda each: each.name)
def test_every_command_has_help_with_an_example(command):
    text = command.get_help(click.Context(command, info_name="zae-limiter"))
    assert "Example" in text
    assert "zae-limiter " in text.split("Example")[1]
    for option in command.params:
        assert not isinstance(option, click.Option) or option.help, option.name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_each_command_what_its_help_begins_with(name):
    command = app.get_command(click.Context(app), name)
    assert command.get_short_help_str(200) == COMMANDS[name].summary


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_commands(option):
    found = run(option)
    assert found.returncode == 0
    assert found.stderr == ""
    for name in COMMANDS:
        assert f"  {name} " in found.stdout


def test_the_script_and_the_module_are_the_same_program():
    script = Path(sys.executable).with_name("zae-limiter")
    assert run_command(script, "--help").stdout == run("--help").stdout


def test_version():
    found = run("--version")
    assert (found.returncode, found.stdout) == (0, f"zae-limiter {__version__}\n")


def test_the_version_is_above_that_of_another_package_of_our_name():
    """Else pip would replace us by it."""
    assert __version__ == "1.0.0rc1"


def test_no_command_shows_the_help_and_is_wrong_usage():
    found = run()
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("Usage: zae-limiter")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["dmo"], "did you mean 'demo'?"),
        (["nothing-like-it"], "No such command 'nothing-like-it'"),
        (["--bogus"], "--bogus"),
    ],
)
def test_wrong_usage_is_one_line_that_leads_to_the_help(args, words):
    found = run(*args)
    assert found.returncode == 2
    assert found.stdout == ""
    line = only_line(found.stderr)
    assert line.startswith("error: ")
    assert words in line
    assert line.endswith("see 'zae-limiter --help'")


HEAVY = {"asyncio", "botocore", "rich", "sqlite3", "yaml"}


@pytest.mark.parametrize(
    "args", [["demo"], ["entity", "show"], ["usage", "list"], ["deploy"], ["list"], ["upgrade"], []]
)
def test_help_imports_nothing_heavy(args):
    code = (
        f"import sys; sys.argv = ['zae-limiter', *{args}, '--help']\n"
        "from zae_limiter_ops.cli import main; main()\n"
        f"sys.exit(' '.join({HEAVY} & {{*sys.modules}}))"
    )
    found = run_command(sys.executable, "-c", code)
    assert found.stderr.strip() == ""

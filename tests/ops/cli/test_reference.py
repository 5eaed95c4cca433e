"""Help, examples, JSON fields, and the generated page docs/cli.md."""

import inspect
import re
import shlex
from pathlib import Path

import click
import pytest

from tests.ops.cli.stores import on_both_engines
from tools.cli_reference import commands, reference
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter_ops.views.advice import STACK_COMMANDS

PAGE = Path(__file__).parents[3] / "docs/cli.md"
LEAVES = [(path, command) for path, command in commands() if not isinstance(command, click.Group)]
# Commands about stacks; tests/ops/stack runs them on a control plane.
STACKS = ("cfn-template", "lambda-export", *STACK_COMMANDS)
# Commands that need neither a store nor a stack.
STORELESS = {
    ("limits", "schema"): {"file"},
    ("limits", "validate"): {"files", "output"},
    ("local", "up"): {"engine", "port", "name", "output"},
    ("local", "down"): {"delete_data", "yes", "output"},
    ("local", "status"): {"output"},
    ("local", "logs"): {"follow", "lines"},
    ("local", "env"): {"output"},
}
MANIFEST = str(Path(__file__).with_name("limits.yaml"))
# Load tests on AWS are stacks of their own.
LOAD_STACKS = {("loadtest", name) for name in ("deploy", "push", "ui", "list", "delete")}
IDS = [" ".join(path) for path, _ in LEAVES]
SERVERS = (("dashboard",), ("serve",))  # they serve until they are stopped
REPLAY = ("audit", "replay")  # a command about stacks in a group about stores
CFN_TEMPLATE = ("limits", "cfn-template")
OF_STORES = [
    (path, command)
    for path, command in LEAVES
    # Load tests start processes; tests/lab/load_runs runs them.
    if path[0] not in (*STACKS, "loadtest", "local")
    and path not in (("limits", "schema"), CFN_TEMPLATE, *SERVERS, REPLAY)
]


def test_the_page_is_what_the_commands_say():
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "update it: python -m tools.cli_reference > docs/cli.md"
    )


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=IDS)
def test_every_command_has_an_example_that_can_be_parsed(path, command):
    text = inspect.cleandoc(command.help).partition("\b\nExample")[2].partition("\n\n")[0]
    lines = [line.strip() for line in text.splitlines()[1:]]
    assert lines
    for line in lines:
        program, *words = shlex.split(line.partition(" > ")[0])
        assert program == "zae-limiter"
        assert tuple(words[: len(path)]) == path, line
        command.make_context("x", words[len(path) :])


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=IDS)
def test_every_command_takes_a_store_and_an_output(path, command):
    names = {param.name for param in command.params}
    if path in STORELESS:
        assert names == STORELESS[path]
    elif path[0] in ("cfn-template", "lambda-export"):  # for a stack that does not exist yet
        assert names - {"function"} == {"file"}
    elif path == CFN_TEMPLATE:  # YAML, for a stack that exists or not
        assert {"url", "stack", "files", "file"} <= names
    elif path in SERVERS:
        assert {"url", "stack", "region", "endpoint_url", "namespace"} <= names
    elif path[-1] == "list" and path[0] in ("list", "loadtest"):
        assert names == {"region", "endpoint_url", "output"}
    else:
        assert {"url", "stack", "region", "endpoint_url", "output"} <= names
    without = ("namespace", "version", "demo", *STACKS)
    if path[0] not in without and path not in (*STORELESS, *LOAD_STACKS, REPLAY):
        assert "namespace" in names
    for param in command.params:
        assert not isinstance(param, click.Option) or param.help, param.name


def test_the_first_sentence_of_each_command_fits_the_list():
    for _, group in commands():
        if isinstance(group, click.Group):
            ctx = click.Context(group, terminal_width=80)
            listed = group.get_help(ctx).partition("Commands:")[2]
            assert "..." not in listed, listed


# --- JSON ------------------------------------------------------------------------------------

SAMPLES = {
    "audit list": [],
    "bucket show": ["key-7"],
    "bucket list": [],
    "bucket reset": ["key-7", "gpt-4", "--yes"],
    "bucket pause": ["key-7", "gpt-4", "30"],
    "bucket top-up": ["key-7", "gpt-4", "-a", "tpm=5"],
    "demo": ["--seconds", "0.1", "--tenants", "1"],
    "entity create": ["key-9", "--parent", "project-1", "-m", "a=b"],
    "entity show": ["key-7"],
    "entity set-mode": ["key-7", "bypass", "-r", "gpt-4", "--until", "2099-01-01"],
    "entity set-parent": ["key-7", "--none"],
    "entity set-limits": ["key-7", "-l", "rpm:5/sec:9"],
    "entity get-limits": ["key-7", "-r", "gpt-4"],
    "entity delete-limits": ["key-7", "-r", "gpt-4", "--yes"],
    "entity list": [],
    "entity list-resources": [],
    "entity delete": ["key-7", "--yes"],
    "explain": ["key-7", "gpt-4", "-c", "tpm=1"],
    "limits plan": ["-f", MANIFEST],
    "limits apply": ["-f", MANIFEST, "--yes"],
    "limits diff": ["-f", MANIFEST],
    "limits export": [],
    "limits validate": ["-f", MANIFEST],
    "budget list": [],
    "namespace register": ["tenant-b", "tenant-c"],
    "namespace list": [],
    "namespace show": ["tenant-a"],
    "namespace delete": ["tenant-a", "--yes"],
    "namespace recover": ["ORPHAN"],
    "namespace orphans": [],
    "namespace purge": ["ORPHAN", "--yes"],
    "resource set-defaults": ["gpt-5", "-l", "rpm:1"],
    "resource get-defaults": ["gpt-4"],
    "resource delete-defaults": ["gpt-4", "--yes"],
    "resource list": [],
    "resource set-mode": ["gpt-4", "shadow"],
    "system set-defaults": ["-l", "rpm:1"],
    "system get-defaults": [],
    "system delete-defaults": ["--yes"],
    "usage list": ["-e", "key-7"],
    "usage summary": ["-r", "gpt-4"],
    "usage top": ["--by", "rpm"],
    "version": [],
    "watch": ["-r", "llama", "--once"],
}


def documented(command):
    """Parse ``JSON: a, b (each: c, d)`` into field names, and inner names by field."""
    text = " ".join(command.help.partition("JSON: ")[2].split()).rstrip(".")
    outer = re.sub(r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "", text)
    each = re.search(r"(\w+) \(each: (.*)\)", text)
    inner = {}
    if each:
        plain = re.sub(r"\((?:[^()]|\([^()]*\))*\)", "", each[2].split("), next_")[0])
        inner = {each[1]: {name.strip() for name in plain.split(")")[0].split(",")}}
    return {name.strip() for name in outer.split(",")}, inner


def _raise_one_threshold(url):
    half = Limit.quota("tokens", 10, per="month", thresholds=[50])
    with (
        SyncRepository.open(url=url) as repository,
        SyncRateLimiter(repository).acquire("key-7", "llama", {"tokens": 5}, [half]),
    ):
        pass


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("path", "command"), OF_STORES, ids=[" ".join(path) for path, _ in OF_STORES]
)
def test_the_json_of_every_command_has_the_fields_that_are_documented(
    path, command, cli, opened, engine
):
    args = SAMPLES[" ".join(path)]
    if "ORPHAN" in args or path[-1] == "orphans":
        orphan = opened.delete_namespace("tenant-a")
        args = [orphan if arg == "ORPHAN" else arg for arg in args]
    if path == ("watch",):
        _raise_one_threshold(cli.url)
    if path == ("budget", "list"):
        budget = Limit.budget("usd", 1, per="month")
        with SyncRateLimiter(opened).acquire("key-7", "gpt-4", {"usd": 1}, [budget]):
            pass
    found = cli(*path, *args, "--output", "json").json
    if "as bucket show" in command.help:
        command = dict(LEAVES)["bucket", "show"]
    names, inner = documented(command)
    assert found.keys() == names
    for name, fields in inner.items():
        if path == ("explain",):
            continue
        assert found[name] or (path[0], engine) == ("usage", "dynamodb") or name == "problems", name
        for item in found[name]:
            assert fields == item.keys()
